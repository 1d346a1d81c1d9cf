"""Candidates made of parts, for tests of what reads their text."""

from textwrap import dedent, indent

HEAD = """
import contextlib
import ctypes
import importlib
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline
"""


INIT = """
def __init__(self, n):
    super().__init__()
    self.a, self.ptr, self.graphs = nn.Linear(n, n), None, {}
"""


def in_class(forward: str, more: str = "", before: str = "") -> str:
    """Return a candidate made of these parts: the body of `forward`, further methods, text above the class."""
    body = indent(dedent(forward).strip(), "    ")
    methods = indent(f"{INIT}\ndef forward(self, x):\n{body}\n\n{dedent(more)}", "    ")
    return f"{HEAD}\n{dedent(before)}\n\nclass ModelNew(nn.Module):\n{methods}"
