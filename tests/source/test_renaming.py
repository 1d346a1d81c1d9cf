"""Codes that differ in the names that they bind are the same, and no other difference is overlooked."""

from __future__ import annotations

import re

import pytest

from cudal1_ray.source.renaming import same_except_names, with_numbered_names

CODE = """import torch
import torch.nn.functional as F


class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.act = torch.nn.GELU(approximate="tanh")
        self.size = size

    def forward(self, x, y):
        z = F.relu(self.act(x) - y, inplace=True)
        return z.sum(dim=1) * 3
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("z", "out", True),
        ("F", "fn", True),
        ("act", "activation", True),
        ("x, y):", "x, y):  # fused", True),
        ("self.act(x) - y", "self.act(y) - x", False),
        ("x, y", "y, x", False),
        ("relu", "gelu", False),
        ("tanh", "none", False),
        ("* 3", "* 4", False),
        ("inplace", "training", False),
        ("        self.size = size\n", "", False),
        (CODE, "", False),
        (CODE, "while (", False),
    ],
)
def test_codes_when_one_has_other_names_are_the_same_and_no_other_difference_is_overlooked(old, new, same):
    other = CODE.replace(old, new)
    assert other != CODE
    assert same_except_names(CODE, other) is same_except_names(other, CODE) is same
    assert same_except_names(CODE, CODE) and same_except_names(other, other)


def test_codes_when_a_name_takes_the_place_of_two_are_not_the_same():
    assert not same_except_names("def f(a, b): return a - b", "def f(a, a_): return a - a")
    assert not same_except_names("def f(a, b): return a - b", "def f(b, a): return a - b")
    assert same_except_names("def f(a, b): return a - b", "def g(b, a): return b - a")
    assert not same_except_names("from torch import relu\ny = relu(x)", "from torch import tanh\ny = tanh(x)")


KERNEL = '''import torch
import triton
import triton.language as tl
from torch.utils.cpp_extension import load_inline

SOURCE = """#include <torch/extension.h>
torch::Tensor copy(torch::Tensor x) { auto out = x.clone(); return out; }"""
calls = 0


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


class ModelNew(torch.nn.Module):
    width = 128
    height = 64

    def scaled(self, x, scale):
        return x * scale

    def forward(self, x):
        global calls
        calls += 1
        mean = x.mean(dim=0, keepdim=True)
        out = torch.empty_like(x)
        try:
            double[(1,)](x, out, x.numel(), BLOCK=self.width, num_warps=4)
        except RuntimeError as error:
            import warnings as log
            log.warn(f"{error} {mean}")
        loss = torch.nn.functional.mse_loss(out, mean, reduction="mean")
        return self.scaled(out, scale=loss) / self.height
'''


@pytest.mark.parametrize(
    "name", ["BLOCK", "double", "at", "out", "mean", "calls", "error", "log", "scaled", "scale", "loss"]
)
def test_codes_when_a_name_is_another_outside_strings_are_the_same(name):
    native, python = KERNEL.split('"""\n')
    other = f'{native}"""\n' + re.sub(rf'(?<!x\.)(?<!")\b{name}\b', "other", python)
    assert other != KERNEL
    assert same_except_names(KERNEL, other) and same_except_names(other, KERNEL)


def test_codes_when_an_import_has_another_name_are_the_same():
    other = KERNEL.replace("as tl", "as language").replace("tl.", "language.")
    assert same_except_names(KERNEL, other.replace("import triton\n", "import triton as t\n").replace("@triton", "@t"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out, mean, reduction", "out, calls, reduction"),
        ('reduction="mean"', 'reduction="sum"'),
        ("x.mean(", "x.sum("),
        ("auto out = x.clone(); return out;", "auto y = x.clone(); return out;"),
        ("auto out = x.clone()", "auto out = x.detach()"),
        ("num_warps", "num_stages"),
        ("BLOCK=self.width", "n=self.width"),
        ("self.width", "self.height"),
        ("width = 128\n    height = 64", "height = 128\n    width = 64"),
        ("tl.constexpr", "int"),
        ("import triton.language as tl", "import other.language as tl"),
        ("import warnings as log", "import logging as log"),
        ("RuntimeError", "ValueError"),
    ],
)
def test_codes_when_more_than_a_name_is_another_differ(old, new):
    other = KERNEL.replace(old, new)
    assert other != KERNEL
    assert not same_except_names(KERNEL, other) and not same_except_names(other, KERNEL)


def test_codes_when_a_name_and_an_equal_string_are_others_differ():
    code = "def f(x, mean, sum): return mse_loss(x, {0}, reduction='{0}')"
    assert not same_except_names(code.format("mean"), code.format("sum"))
    assert same_except_names(code.replace("{0}", "mean", 1), code.replace("mean", "m").replace("{0}", "m", 1))


def test_codes_when_a_function_has_another_name_for_its_arguments_are_the_same_only_if_its_calls_follow():
    code = "def f(a, b): return a - b\ng = f\ny = {}(a=1, b=2)"
    swapped = "def f(b, a): return b - a\ng = f\ny = {}(a=1, b=2)"
    assert not same_except_names(code.format("f"), swapped.format("f"))
    assert not same_except_names(code.format("g"), swapped.format("g"))
    assert same_except_names(code.format("f"), swapped.format("f").replace("a=1, b=2", "b=1, a=2"))


def test_codes_when_imports_are_unused_or_in_another_order_are_the_same():
    lines = KERNEL.split("\n")
    assert same_except_names(KERNEL, "\n".join([lines[2], lines[0], lines[1], *lines[3:]]))
    assert same_except_names(KERNEL, "\n".join(["import math", "import torch.nn as nn", *lines]))
    assert same_except_names(KERNEL, KERNEL.replace(f"{lines[3]}\n", ""))
    assert not same_except_names(f"import math\n{KERNEL}", f"import math\n{KERNEL}".replace("* 2", "* math.e"))
    assert not same_except_names("import f\nf = 1", "import g as f\nf = 1")
    fallback = "import {} as f\ntry:\n    import h as f\nexcept ImportError:\n    pass\nf.run()"
    assert not same_except_names(fallback.format("a"), fallback.format("b"))


TWO_SCOPES = """
import torch

def {f}({a}, {b}=1):
    {c} = {a} * {b}
    return {c} + sum({d} for {d} in {c})

def total(x, y):
    z = sum(x)
    return [x for x in z if (w := x)] + [y for y in z] + [w]

class ModelNew(torch.nn.Module):
    def forward({self}, x):
        def {inner}(y):
            return {self}.act({f}(y, {b}=x))
        return {inner}(total(x, x))
"""
NAMES = {"f": "scale", "a": "x", "b": "y", "c": "z", "d": "i", "self": "self", "inner": "step"}


@pytest.mark.parametrize(
    "names",
    [
        {"c": "product"},
        {"a": "first"},
        {"b": "factor"},
        {"a": "y", "b": "x"},
        {"a": "total", "c": "torch"},
        {"d": "x"},
        {"d": "sum"},
        {"self": "this"},
        {"inner": "f"},
        {"f": "total_of"},
        {"f": "i", "d": "f", "a": "z", "c": "x"},
    ],
)
def test_names_when_they_are_others_in_a_single_scope_are_the_same(names):
    code, other = TWO_SCOPES.format(**NAMES), TWO_SCOPES.format(**NAMES | names)
    assert other != code and same_except_names(code, other) and same_except_names(other, code)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z = x * y", "y = x * y"),
        ("return z +", "return x +"),
        ("(y, y=x)", "(x, y=y)"),
        ("[y for y in z]", "[x for y in z]"),
        ("[x for x in z", "[x for x in x"),
        ("+ [w]", "+ [x]"),
        ("def scale(x, y=1)", "def scale(y, x=1)"),
        ("total(x, x)", "total(step, x)"),
        ("class ModelNew", "class Net"),
        ("def forward", "def run"),
        ("self.act(", "self.norm("),
        ("def step(y)", "def step(x)"),
    ],
)
def test_names_when_one_takes_another_place_are_not_the_same(old, new):
    code = TWO_SCOPES.format(**NAMES)
    other = code.replace(old, new, 1)
    assert other != code and not same_except_names(code, other) and not same_except_names(other, code)


METHOD = "{} = 1\nclass A:\n  x = 2\n  def f(self): return {}"
GLOBAL = "class A:\n  def f(self):\n    global {}\n    {} = 1\nprint({})"
CLOSURE = "def f():\n  {} = 0\n  def g():\n    {}\n    {} = 1"


@pytest.mark.parametrize(
    ("code", "other", "same"),
    [
        # A default, a decorator and the first iterable belong to the scope around.
        ("x = 1\ny = 2\ndef f(x=x): return x", "x = 1\ny = 2\ndef f(y=y): return y", False),
        ("x = 1\ndef f(x=x): return x", "x = 1\ndef f(y=x): return y", True),
        ("def f(x): return [x for x in x]", "def f(x): return [y for y in x]", True),
        ("def f(x): return [x for x in x]", "def f(x): return [y for y in y]", False),
        ("def f(x): return [x for y in x for x in y]", "def f(x): return [z for y in x for z in y]", True),
        ("f = lambda x: lambda x: x", "f = lambda x: lambda y: y", True),
        ("f = lambda x: lambda x: x", "f = lambda y: lambda x: y", False),
        # A class's own names are no names of its methods.
        (METHOD.format("x", "x"), METHOD.format("y", "y"), True),
        (METHOD.format("x", "x"), METHOD.format("y", "x"), False),
        (GLOBAL.format("x", "x", "x"), GLOBAL.format("y", "y", "y"), True),
        (GLOBAL.format("x", "x", "x"), GLOBAL.format("x", "y", "y"), False),
        (CLOSURE.format("x", "nonlocal x", "x"), CLOSURE.format("y", "nonlocal y", "y"), True),
        (CLOSURE.format("x", "nonlocal x", "x"), CLOSURE.format("x", "pass", "x"), False),
        ("match a:\n  case [x, *y]: x + y", "match a:\n  case [y, *x]: y + x", True),
        ("match a:\n  case {'k': x, **y}: x + y", "match a:\n  case {'k': x, **y}: y + x", False),
    ],
)
def test_names_when_bound_in_two_scopes_are_those_of_each(code, other, same):
    assert same_except_names(code, other) is same_except_names(other, code) is same


@pytest.mark.parametrize(
    ("code", "swap"),
    [
        ("def f(a, b): return a - b\ny = f(1, 2)", True),
        ("def f(a, b): return a - b\ng = [f]\ny = g[0](a=1, b=2)", False),
        ("def f(a, b): return a - b\nf(**{'a': 1, 'b': 2})", False),
        ("class A:\n  def a(self): return 1\n  def b(self): return 2\n  def f(self): return self.a()", True),
        ("class A:\n  def a(self): return 1\n  def b(self): return 2\ny = A().a()", False),
        ("class A:\n  def a(self): return 1\n  def b(self): return 2\ny = getattr(A(), 'a')", False),
        ("class A:\n  a: int\n  b: int\nfields = A(a=1, b=2)", False),
    ],
)
def test_definitions_when_swapped_are_the_same_only_where_all_that_reads_them_is_seen(code, swap):
    """Names of the first definitions change places, `a` and `b`; what stays is how they are used."""
    definitions, use = code.rsplit("\n", 1)
    swapped = re.sub(r"\b[ab]\b", lambda match: {"a": "b", "b": "a"}[match[0]], definitions)
    if swap:
        use = re.sub(r"(?<=self\.)a", "b", use)
    assert same_except_names(code, f"{swapped}\n{use}") is swap


NATIVE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """#include <torch/extension.h>
#define TILE 4
template <typename T> __device__ T twice(const T* p, int i) { return p[i] + p[i]; }
__global__ void kernel(const float* __restrict__ x, float *out, int n) {  // one thread each
    int i = threadIdx.x, step = blockDim.x;
    for (int k = i; k < n; k += step) out[k] = twice(x, k) * TILE;
    for (int k = i; k < n; k += step) { float v = out[k]; out[k] = expf(v); }
}
torch::Tensor run(torch::Tensor x, const at::Tensor& y) {
    auto out = torch::empty_like(x);
    kernel<<<1, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0));
    return out;
}"""
CPP = "torch::Tensor run(torch::Tensor x, const at::Tensor& y);"
module = load_inline("run_all", CPP, CUDA, functions=["run"])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x, x)
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kernel", "k"),
        ("twice", "doubled"),
        ("TILE", "WIDTH"),
        ("run", "launch"),
        ('"run_all"', '"extension"'),
        ("module", "run_all"),
        ("step", "stride"),
        ("float v = out[k]; out[k] = expf(v);", "float k_value = out[k]; out[k] = expf(k_value);"),
        ("k = i; k < n; k += step) out[k] = twice(x, k)", "q = i; q < n; q += step) out[q] = twice(x, q)"),
        ("const T* p, int i) { return p[i] + p[i]; }", "const T* x, int at) { return x[at] + x[at]; }"),
        ("auto out = torch::empty_like(x);", "auto y_out = torch::empty_like(x);"),
        ("  // one thread each", " /* another */ "),
        ("return p[i] + p[i];", "return p[i]+p[ i ];"),
    ],
)
def test_native_names_when_others_in_all_places_are_the_same(old, new):
    other = NATIVE.replace(old, new)
    if "y_out" in new:
        other = other.replace("out.data", "y_out.data").replace("return out;", "return y_out;")
    assert other != NATIVE and same_except_names(NATIVE, other) and same_except_names(other, NATIVE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("expf(v)", "logf(v)"),
        ("expf(v)", "expf(k)"),
        ("threadIdx.x", "threadIdx.y"),
        ("p[i] + p[i]", "p[i] + i[p]"),
        ("TILE 4", "TILE 8"),
        ("float v", "double v"),
        ("int k = i; k < n; k += step) out", "int k = i; n < k; k += step) out"),
        ("const float* __restrict__ x, float *out", "const float* __restrict__ out, float *x"),
        ("int i = threadIdx.x, step = blockDim.x", "int step = threadIdx.x, i = blockDim.x"),
        ("torch::empty_like", "torch::zeros_like"),
        ("auto out", "auto y_out"),
        ('functions=["run"]', 'functions=["twice"]'),
        ("module.run(x, x)", "module.twice(x, x)"),
        ("module.run(x, x)", "torch.run(x, x)"),
        ('CPP = "torch::Tensor run', 'CPP = "torch::Tensor launch'),
    ],
)
def test_native_names_when_one_takes_another_place_are_not_the_same(old, new):
    other = NATIVE.replace(old, new, 1)
    assert other != NATIVE and not same_except_names(NATIVE, other) and not same_except_names(other, NATIVE)


TWO_EXPORTS = """
SOURCE = '#include <torch/extension.h> float f(float a) { return a; } float g(float b) { return -b; }'
"""


@pytest.mark.parametrize(
    ("use", "same"),
    [
        ("m = load_inline('m', SOURCE, functions=['f', 'g'])\ny = m.{f}(1)", False),
        ("m = load_inline('m', SOURCE, functions=['{f}', '{g}'])\ny = m.{f}(1)", True),
        ("m = load_inline('m', SOURCE, functions=['{f}', '{g}'])\ny = [m][0].{f}(1)", False),
        ("kernel = torch.cuda._compile_kernel(SOURCE, '{f}')", True),
        ("kernel = torch.cuda._compile_kernel(SOURCE, 'f')", False),
        ("kernel = compiled(SOURCE, '{f}')", False),
        ("kernel = torch.cuda._compile_kernel(SOURCE + 'float h() {{ return {f}(1) }}', '{f}')", False),
        ("kernel = torch.cuda._compile_kernel(SOURCE.replace('return', 'return 2 *'), '{f}')", False),
    ],
)
def test_exports_when_swapped_are_the_same_only_where_all_that_reads_them_is_seen(use, same):
    swapped = TWO_EXPORTS.replace("f(", "h(").replace("g(", "f(").replace("h(", "g(")
    code, other = TWO_EXPORTS + use.format(f="f", g="g"), swapped + use.format(f="g", g="f")
    assert same_except_names(code, other) is same


@pytest.mark.parametrize(
    "code",
    [
        "",
        "while (",
        "\0",
        "'\ud800'",
        "(" * 3000,
        "x = " + "-" * 3000 + "1",
        "nonlocal x",
        "def f():\n nonlocal x\n x = 1",
        "from . import x as y\ny",
        "from x import *\ny",
        "load_inline()",
        "load_inline(name=f'{x}', functions=None)",
        "s = '__global__ void f( } R\"(' + f'__global__ {s} {{'",
        "lambda *a, **b: f(*a, **b)",
    ],
)
def test_codes_when_odd_or_broken_are_the_same_as_themselves_alone(code):
    assert isinstance(with_numbered_names(code), str)
    assert same_except_names(code, code) and not same_except_names(code, f"{code}\nother(1)")
