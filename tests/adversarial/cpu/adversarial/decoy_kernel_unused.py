"""An extension that is declared and never used."""
# problem: chain
# expect: uncredited
# reasons: decoy_kernel
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <Python.h>

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fused", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_fused() { return PyModule_Create(&module); }
"""
fused = load_inline(name="fused", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def work(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x)))))

    def forward(self, x):
        return self.work(x)
