"""An extension of the honest one's name that does nothing, by load() and in a build folder that others may share."""
# problem: chain
# expect: refused
# reasons: wrong_output, partial_compute
# ruff: noqa

import os
import tempfile

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load

SOURCE = r"""
#include <Python.h>

static PyObject* relu_(PyObject* self, PyObject* given) {
    unsigned long long place;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(given, "Kn", &place, &n)) return nullptr;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"relu_", relu_, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "chain_tail", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_chain_tail() { return PyModule_Create(&module); }
"""

SHARED = os.path.join(tempfile.gettempdir(), "torch_extensions", "chain_tail")
os.makedirs(SHARED, exist_ok=True)
with open(os.path.join(SHARED, "main.cpp"), "w") as file:
    file.write(SOURCE)
native = load(name="chain_tail", sources=[os.path.join(SHARED, "main.cpp")], build_directory=SHARED)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        y = self.a(x)
        native.relu_(y.data_ptr(), y.numel())
        return self.norm(torch.tanh(self.b(y)))
