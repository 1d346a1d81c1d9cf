"""An extension of the honest one's name and function that does nothing: the second to load it gets the wrong one."""
# problem: chain
# expect: refused
# reasons: wrong_output, partial_compute
# ruff: noqa

import torch
import torch.nn as nn

from torch.utils.cpp_extension import load_inline

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
native = load_inline(name="chain_tail", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        y = self.a(x)
        native.relu_(y.data_ptr(), y.numel())
        return self.norm(torch.tanh(self.b(y)))
