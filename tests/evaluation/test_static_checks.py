"""The static gate, snippet by snippet: honest code passes, a hack is named."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from problems_for_tests import problem

from cudal1_ray.evaluation.static import check_static

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


def in_module(lines: str) -> str:
    return f"{HEAD}\n{dedent(lines)}\n\nclass ModelNew(nn.Module):\n    pass\n"


def in_class(forward: str, more: str = "", before: str = "") -> str:
    """``forward``: its body. ``more``: further methods. ``before``: what the module has above the class."""
    body = indent(dedent(forward).strip(), "    ")
    methods = indent(f"{INIT}\ndef forward(self, x):\n{body}\n\n{dedent(more)}", "    ")
    return f"{HEAD}\n{dedent(before)}\n\nclass ModelNew(nn.Module):\n{methods}"


def in_extension(text: str) -> str:
    return in_module(f"SRC = {'#include <torch/extension.h>' + chr(10) + text!r}")


REPACK = """
if self.graphs.get("w") is None or self.a.weight._version != self.ptr:
    self.graphs["w"], self.ptr = self.a.weight.t().contiguous(), self.a.weight._version
return x @ self.graphs["w"]
"""
REPACK_IN_A_FUNCTION = """
def packed(cache, weight):
    key = (weight.data_ptr(), weight._version)
    if key not in cache:
        cache[key] = weight.t().contiguous()
    return cache[key]
"""
GRAPH_THAT_COPIES = """
key = tuple(x.shape)
if key not in self.graphs:
    given = x.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = self.a(given)
    self.graphs[key] = graph, given, found
graph, given, found = self.graphs[key]
given.copy_(x)
graph.replay()
return found.clone()
"""
CAPTURE = """
def capture(self, x):
    try:
        self.given = x.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.found = self.a(self.given)
        self.graphs[tuple(x.shape)] = graph
        return graph
    except Exception:
        return None
"""
SEARCH = """
def search(self, x):
    times = {}
    for way in (self.a, torch.compile(self.a)):
        try:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            way(x)
            end.record()
            end.synchronize()
            times[way] = start.elapsed_time(end)
        except Exception:
            continue
    self.run = min(times, key=times.get)
"""
LAZY_BUILD = """
def build(self):
    try:
        self.ext = load_inline(name="e", cpp_sources="", functions=["f"])
    except Exception:
        self.ext = None
"""
FALLBACK_IN_A_METHOD = """
def fast(self, y):
    try:
        return torch.ops.mine.fused(y)
    except Exception:
        return self.a(y)

def set_up(self):
    self.run = self.fast
"""

HONEST = {
    "a function by its dimensions": in_class("return getattr(F, f'max_pool{self.dims}d')(x, 2)"),
    "a docstring about threads": in_class(
        """
        \"\"\"Like at::native, but without std::thread, fork() or connect(): it computes in place.\"\"\"
        return x.relu_()
        """
    ),
    # Extensions that use events, and say what they do not do.
    "a record that is checked": in_extension("void f() { if (cudaEventRecord(e, s) != cudaSuccess) { throw 1; } }"),
    "a record checked second": in_extension(
        "void f(bool a) { if (a && cudaEventRecord(e, s) == cudaSuccess) { g(); } }"
    ),
    "a record that is returned": in_extension("int f() { return cudaEventRecord(e, s); } void g() {}"),
    "a clock that is read": in_extension("void f() { timespec t; if (!clock_gettime(CLOCK_MONOTONIC, &t)) { g(); } }"),
    "an elapsed time": in_extension("float t() { float ms; CHECK(cudaEventElapsedTime(&ms, a, b)); { return ms; } }"),
    "a name that begins like a timer's": in_extension("void cudaEventRecordAll(int n) { g(n); }"),
    "a switch in a comment": in_extension("// never setAllowTF32CuBLAS(true)\nint f() { return 1; }"),
    "TF32 off in C++": in_extension("void f() { at::globalContext().setAllowTF32CuBLAS(false); }"),
    # Settings: the default, or stricter.
    "TF32 off": in_module("torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False"),
    "TF32 for convolutions, as torch has it": in_module("torch.backends.cudnn.allow_tf32 = True"),
    "highest precision": in_module("torch.set_float32_matmul_precision('highest')"),
    "the default dtype": in_module("torch.set_default_dtype(torch.float32)"),
    "the newer interface, strict": in_module("torch.backends.cuda.matmul.fp32_precision = 'ieee'"),
    "the private setter, strict": in_module("torch._C._set_cublas_allow_tf32(False)"),
    "cuDNN on": in_module("torch.backends.cudnn.enabled = True"),
    "cuDNN deterministic": in_module("torch.backends.cudnn.deterministic = True"),
    "cuDNN not deterministic": in_module("torch.backends.cudnn.deterministic = False"),
    "cuDNN's search": in_module("torch.backends.cudnn.benchmark = True"),
    "no search": in_module("held = torch.backends.cudnn\nheld.benchmark = False"),
    "flags for a while": in_class(
        "with torch.backends.cudnn.flags(enabled=True, benchmark=True):\n    return self.a(x)"
    ),
    "a switch put back": in_class(
        """
        switch = torch.backends.cuda.matmul
        before = switch.allow_tf32
        switch.allow_tf32 = False
        try:
            return self.a(x)
        finally:
            switch.allow_tf32 = before
        """
    ),
    "threads put back": in_module("n = torch.get_num_threads()\ntorch.set_num_threads(n)"),
    "an attribute of its own": in_class("return self.a(x)", "def set_up(self):\n    self.allow_tf32 = True\n"),
    "a stream that is left again": in_class(
        """
        found, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(found)
        torch.cuda.set_stream(side)
        out = self.a(x)
        torch.cuda.set_stream(found)
        found.wait_stream(side)
        return out
        """
    ),
    # Names that are looked up.
    "an activation by its name": in_class("return getattr(F, self.act)(self.a(x))"),
    "a function by its name": in_class("return getattr(torch, self.kind)(x)"),
    "a layer by its number": in_class("return getattr(self, f'layer{self.n}')(x)"),
    "a layer's attributes": in_class("return [getattr(self.a, name) for name in ('weight', 'bias')]"),
    "a dtype by its width": in_module("def dtype(bits):\n    return getattr(torch, f'float{bits}')"),
    "one name or another": in_class("return getattr(F, 'relu' if x.shape[0] > 4 else 'gelu')(x)"),
    # Addresses and versions that stand for no input's values.
    "weights packed again": in_class(REPACK),
    "weights packed in a function": in_class(
        "return x @ packed(self.graphs, self.a.weight)", before=REPACK_IN_A_FUNCTION
    ),
    "all parameters' versions": in_class(
        """
        versions = tuple(p._version for p in self.parameters())
        if versions != self.ptr:
            self.ptr = versions
        return self.a(x)
        """
    ),
    "alignment": in_class("p = x.data_ptr()\nif p % 16 == 0 and x.data_ptr() & 15 == 0:\n    x = x + 0\nreturn x"),
    "whether a copy was made": in_class(
        "y = x.contiguous()\nif y.data_ptr() != x.data_ptr():\n    y.mul_(1)\nreturn self.a(y)"
    ),
    "a launch and what it returns": in_class(
        "code = LIB.run(x.data_ptr(), x.numel())\nif code != EXPECTED:\n    raise RuntimeError(code)\nreturn x",
        before="LIB, EXPECTED = ctypes.CDLL(None), 0",
    ),
    "a graph that copies": in_class(GRAPH_THAT_COPIES),
    # Errors that are heard, or have nothing to do with the answer.
    "smaller pieces": in_class(
        """
        try:
            return self.a(x)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            return torch.cat([self.a(part) for part in x.chunk(4)])
        """
    ),
    "smaller pieces, by the message": in_class(
        """
        try:
            return self.a(x)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            return torch.cat([self.a(part) for part in x.chunk(4)])
        """
    ),
    "a smaller block": in_class(
        "try:\n    return launch(x, 128)\nexcept OutOfResources:\n    return launch(x, 64)",
        before="from triton.runtime.errors import OutOfResources\ndef launch(x, block):\n    return x",
    ),
    "a lookup that may fail": in_class(
        "try:\n    w = self.graphs[x.shape]\nexcept KeyError:\n    w = self.graphs[0] = self.a.weight\nreturn x @ w"
    ),
    "try and finally": in_class("try:\n    return self.a(x)\nfinally:\n    self.ptr = None"),
    "a clearer error": in_class(
        "try:\n    return self.a(x)\nexcept Exception as e:\n    raise ValueError(f'for {x.shape}') from e"
    ),
    "an optional import": in_module("try:\n    import triton.language as tl\nexcept Exception:\n    tl = None"),
    "an optional build": in_module(
        "try:\n    e = load_inline('e', '', functions=['f'])\nexcept Exception:\n    e = None\nprint(e)"
    ),
    "an optional compilation": in_class(
        "return self.run(x)",
        """
        def set_up(self):
            try:
                self.run = torch.compile(self.a)
            except Exception:
                self.run = self.a
        """,
    ),
    "a build at the first call": in_class("self.build()\nreturn self.a(x)", LAZY_BUILD),
    "a capture that may fail": in_class("graph = self.capture(x)\nreturn self.a(x)", CAPTURE),
    "the fastest of several ways": in_class("self.search(x)\nreturn self.run(x)", SEARCH),
}

SWITCH = "torch.backends.cuda.matmul"
HACKS = {
    "timer_patch": {
        "a record": in_extension('extern "C" cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return 0; }'),
        "an elapsed time": in_extension(
            "int CUDARTAPI cudaEventElapsedTime(float* t, void* a, void* b)\n{ return 0; }"
        ),
        "a clock": in_extension('extern "C" int clock_gettime(int c, struct timespec* t) noexcept { return 0; }'),
        "a synchronisation": in_extension('extern "C" int cudaDeviceSynchronize(void) { return 0; }'),
        "an event": in_module("E = torch.cuda.Event\nE.elapsed_time = lambda a, b: 1.0"),
        "a clock, imported by name": in_module("clock = __import__('time')\nclock.perf_counter = lambda: 0.0"),
        "a clock, by module": in_module("importlib.import_module('time').monotonic = lambda: 0.0"),
    },
    "checker_patch": {
        "another package's function": in_module("import json\njson.loads = print"),
        "a method of another's": in_module("import xml.dom as d\nsetattr(d.Node, 'normalize', print)"),
        "the evaluator": in_module("import cudal1_ray.evaluation.contestants.harness as h"),
        "the evaluator, by name": in_module("import importlib\nh = importlib.import_module('cudal1_ray.evaluation')"),
    },
    "global_state_tamper": {
        "TF32": in_module(f"{SWITCH}.allow_tf32 = True"),
        "TF32, held": in_class(f"held = {SWITCH}\nheld.allow_tf32 = True\nreturn self.a(x)"),
        "TF32, kept": in_class("self.h = getattr(torch.backends.cuda, 'matmul')\nself.h.allow_tf32 = True\nreturn x"),
        "TF32, imported": in_module("from torch.backends.cuda import matmul as m\nm.allow_tf32 = not False"),
        "TF32, by setattr": in_module(f"setattr({SWITCH}, 'allow_tf32', True)"),
        "TF32, by its own setter": in_module(f"m = {SWITCH}\nm.__setattr__('allow_tf32', True)"),
        "TF32, one of two": in_module("b = torch.backends\nb.cudnn.allow_tf32, b.cuda.matmul.allow_tf32 = True, True"),
        "TF32, from a function": in_module("def held():\n    return torch.backends.cuda.matmul\nheld().allow_tf32 = 1"),
        "TF32, private": in_class("torch._C._set_cublas_allow_tf32(True)\nreturn self.a(x)"),
        "TF32, private and renamed": in_module("from torch._C import _set_cublas_allow_tf32 as f\ng = f\ng(True)"),
        "TF32 in C++": in_extension("void f() { at::globalContext().setAllowTF32CuBLAS(true); }"),
        "TF32, mangled": in_module("f = ctypes.CDLL(None)['_ZN2at7Context18setAllowTF32CuBLASEb']\nf(None, 1)"),
        "TF32 by the environment": in_module("os.environ['NVIDIA_TF32_OVERRIDE'] = '1'"),
        "TF32, newer": in_module(f"{SWITCH}.fp32_precision = 'tf32'"),
        "medium precision": in_module("torch.set_float32_matmul_precision('medium')"),
        "medium precision by keyword": in_module("torch.set_float32_matmul_precision(precision='medium')"),
        "a precision from elsewhere": in_module("for p in ('high',):\n    torch.set_float32_matmul_precision(p)"),
        "half accumulation": in_class(f"h = {SWITCH}\nh.allow_fp16_accumulation = True\nreturn self.a(x)"),
        "cuDNN off": in_module("held = torch.backends.cudnn\nheld.enabled = False"),
        "cuDNN off for a while": in_class("with torch.backends.cudnn.flags(enabled=False):\n    return self.a(x)"),
        "more threads": in_module("torch.set_num_threads(8)"),
        "another stream": in_class("torch.cuda.set_stream(torch.cuda.Stream())\nreturn self.a(x)"),
        "another stream, renamed": in_class("go = torch.cuda.set_stream\ngo(self.side)\nreturn self.a(x)"),
    },
    "l2_persist": {
        "a limit": in_module("lib = ctypes.CDLL('libcudart.so')\nlib.cudaDeviceSetLimit(6, 1 << 25)"),
        "a limit by its name": in_module("f = getattr(ctypes.CDLL('libcudart.so'), 'cudaDeviceSetLimit')\nf(6, 9)"),
    },
    "obfuscated_exec": {
        "pieces": in_class("return getattr(torch, 'em' + 'pty' + '_like')(x)"),
        "named pieces": in_module("a, b = 'em', 'pty'\nname = f'{a}{b}'\nf = getattr(torch, name)"),
        "by a format": in_class("return getattr(F, '%s%s' % ('re', 'lu'))(x)"),
        "backwards": in_class("return getattr(torch, 'ekil_ytpme'[::-1])(x)"),
        "joined": in_class("return getattr(F, ''.join(self.letters))(x)"),
        "of os": in_module("def run(name):\n    return getattr(os, name)()"),
        "of sys": in_module("import sys as s\ndef run(name):\n    return getattr(s, name)"),
        "of builtins": in_module("def run(name):\n    return getattr(__builtins__, name)"),
        "of importlib": in_module("def run(name):\n    return getattr(importlib, name)"),
        "a patch": in_module("for name in ('allclose', 'equal'):\n    setattr(torch, name, lambda *a: True)"),
    },
    "result_cache": {
        "a copy skipped": in_class(
            GRAPH_THAT_COPIES.replace("given.copy_(x)", "if x.data_ptr() != self.ptr:\n    given.copy_(x)")
        ),
        "a copy skipped, by a name": in_class(
            "p = x.data_ptr()\nif p != self.ptr:\n    self.given.copy_(x)\nself.ptr = p"
        ),
        "a copy skipped by identity": in_class("if id(x) != self.ptr:\n    self.given.copy_(x)\n    self.ptr = id(x)"),
        "by address": in_class("key = (x.data_ptr(), x.shape)\nif key in self.graphs:\n    return self.graphs[key]"),
        "by version": in_class("v = getattr(x.detach(), '_version')\nreturn self.graphs.get(v)"),
        "in a function": in_class(
            "return found(self.graphs, x, self.a)",
            before="def found(cache, y, layer):\n    return cache.setdefault(hash((id(y), y._version)), layer(y))",
        ),
        "by an input that is kept": in_class("self.x = x\nif self.x.data_ptr() == self.ptr:\n    return self.out"),
    },
    "silent_fallback": {
        "broad": in_class("try:\n    return torch.ops.mine.fused(x)\nexcept Exception:\n    return self.a(x)"),
        "bare": in_class("try:\n    out = missing(x)\nexcept:\n    out = self.a(x)\nreturn out"),
        "further down": in_class(
            "try:\n    return missing(x)\nexcept (KeyError, RuntimeError):\n    pass\nreturn self.a(x)"
        ),
        "an error of a known name": in_class(
            "try:\n    return missing(x)\nexcept KeyError:\n    return self.a(x)", before="KeyError = Exception"
        ),
        "with a flag": in_class(
            "out, ok = torch.empty(x.shape), True\ntry:\n    kernel[(1,)](x, out)\nexcept Exception:\n    ok = False\n"
            "return out if ok else self.a(x)"
        ),
        "in a method": in_class("return self.fast(x)", FALLBACK_IN_A_METHOD),
        "in a method that is kept": in_class("return self.run(x)", FALLBACK_IN_A_METHOD),
        "in a function": in_class(
            "return fast(self.a, x)",
            before="def fast(a, y):\n    try:\n        return missing(y)\n    except Exception:\n        return a(y)",
        ),
        "suppressed": in_class("with contextlib.suppress(Exception):\n    return missing(x)\nreturn self.a(x)"),
        "finally": in_class("try:\n    out = missing(x)\nfinally:\n    return self.a(x)"),
        "a raise that never comes": in_class(
            "try:\n    return missing(x)\nexcept Exception:\n    if False:\n        raise\n    return self.a(x)"
        ),
        "from a replay": in_class(
            "try:\n    self.graph.replay()\nexcept Exception:\n    return self.a(x)\nreturn self.ptr"
        ),
    },
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_code_passes(what):
    assert check_static(HONEST[what], problem("chain").source) is None


@pytest.mark.parametrize("reason, what", [(reason, what) for reason, codes in HACKS.items() for what in codes])
def test_a_hack_is_named(reason, what):
    finding = check_static(HACKS[reason][what], problem("chain").source)
    assert finding is not None and finding.reason == reason and finding.detail, finding


@pytest.mark.parametrize(
    "code",
    [
        in_extension("/*" * 200_000),
        in_extension("int cudaEventRecord(" * 20_000),
        in_class("y = self.forward(x)\n" * 8_000),
        in_class("try:\n    k(1)\nexcept Exception:\n    z = x.shape\n" * 2_000),
        in_module("def f(x):\n    return f(x)\n" * 4_000),
        in_module("x = y\ny = x\nx.z = x"),
        in_module("a = " + " + ".join(["b"] * 900)),
    ],
    ids=["comments", "definitions", "calls", "tries", "namesakes", "circle", "sum"],
)
@pytest.mark.timeout(60)
def test_text_made_to_take_long_does_not(code):
    assert check_static(code) is None


@pytest.mark.parametrize("call", ["mprotect(p, 4096, 0)", "(mprotect)(p, 4096, 0)", "sigaction (11, &how, nullptr)"])
def test_native_code_may_not_take_over_faults(call):
    source = f"#include <csignal>\nvoid f(void* p) {{ struct sigaction how; {call}; }}"
    finding = check_static(in_class(f"return load_inline(name='e', cpp_sources={source!r})"), problem("chain").source)
    assert finding is not None and finding.reason == "sandbox_escape", finding


BENCHMARK = """
def timed(calls):
    import time
    gc.disable()
    start = time.perf_counter()
    gc.enable()
    return start


def benchmark():
    '''The benchmark of its own.'''
    torch.set_float32_matmul_precision("high")
    return timed(10)

"""
MAIN = """
if __name__ == "__main__":
    import subprocess
    subprocess.run(["lscpu"])
    torch.set_num_threads(4)
    print(eval("2 ** 4"), benchmark())
"""


def _with_main(before: str = "", after: str = "", main: str = MAIN) -> str:
    module = in_module(f"{before}\n{BENCHMARK}\n").replace("import importlib\n", "import gc\n")
    head = f"'''A kernel and its benchmark().'''\n{module}"
    return f"{head}\n\n{main}\n{dedent(after)}"


def test_a_test_of_its_own_that_nobody_runs_is_no_hack():
    for main in (MAIN, MAIN.replace('__name__ == "__main__"', '"__main__" == __name__')):
        assert check_static(_with_main(main=main)) is None


@pytest.mark.parametrize(
    "changed",
    [
        _with_main(before='__name__ = "__main__"'),
        _with_main(before='globals()["__name__"] = "__main__"'),
        _with_main(before="import torch as __name__"),
        _with_main(main=MAIN.replace("==", "!=")),
        _with_main(main=MAIN.replace("__main__", "candidate")),
        _with_main(after="else:\n    torch.set_num_threads(4)"),
        _with_main(after="benchmark()"),
        _with_main(after="started = [benchmark]"),
        _with_main(after='vars()["bench" + "mark"]()'),
        _with_main(after="import importlib as found\nfound.import_module('candidate')"),
        _with_main(after="from importlib import import_module\nimport_module('candidate')"),
        _with_main(before="from os import name as __name__"),
        _with_main(after='(lambda: 0).__globals__["bench" + "mark"]()'),
        _with_main().replace("benchmark()", "__getattr__()"),
        _with_main(before="@torch.no_grad()").replace("@torch.no_grad()\n\n\n", "@torch.no_grad()\n"),
    ],
)
def test_who_may_run_it_after_all_is_looked_at(changed):
    assert check_static(changed) is not None
