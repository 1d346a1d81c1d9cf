"""The static gate, snippet by snippet: honest code passes, a hack is refused or flagged, a fallback is found."""

from __future__ import annotations

from textwrap import dedent

import pytest

from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.evaluation.screening.static_check import check_static
from tests.evaluation.candidate_texts import HEAD, in_class


def in_module(lines: str) -> str:
    return f"{HEAD}\n{dedent(lines)}\n\nclass ModelNew(nn.Module):\n    pass\n"


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


HONEST = {
    "a function by its dimensions": in_class("return getattr(F, f'max_pool{self.dims}d')(x, 2)"),
    "a docstring about threads": in_class(
        """
        \"\"\"Like at::native, but without std::thread, fork() or connect(): it computes in place.\"\"\"
        return x.relu_()
        """
    ),
    # Extensions that use events, and name in their text what they do not do.
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
    # Addresses and versions that identify no input's values.
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
    # Errors that are raised again, or do not affect the answer.
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
        "the evaluator": in_module("import cudal1_ray.evaluation.inside.harness as h"),
        "the evaluator, by name": in_module("import importlib\nh = importlib.import_module('cudal1_ray.evaluation')"),
    },
    "l2_persist": {
        "a limit": in_module("lib = ctypes.CDLL('libcudart.so')\nlib.cudaDeviceSetLimit(6, 1 << 25)"),
        "a limit by its name": in_module("f = getattr(ctypes.CDLL('libcudart.so'), 'cudaDeviceSetLimit')\nf(6, 9)"),
    },
}


# Findings that running the code shows as well, or settles.
FLAGGED = {
    "obfuscated_exec": {
        "of os": in_module("def run(name):\n    return getattr(os, name)()"),
        "of sys": in_module("import sys as s\ndef run(name):\n    return getattr(s, name)"),
        "of builtins": in_module("def run(name):\n    return getattr(__builtins__, name)"),
        "of importlib": in_module("def run(name):\n    return getattr(importlib, name)"),
        "a patch": in_module("for name in ('allclose', 'equal'):\n    setattr(torch, name, lambda *a: True)"),
    },
}


# Honest idioms of GPUs that are keyed by an address and read the memory again at every call.
KEYED_BY_ADDRESS = {
    "a descriptor": in_class(
        "key = x.data_ptr()\nif key not in self.graphs:\n    self.graphs[key] = describe(x)\n"
        "return launch(self.graphs[key])",
        before="def describe(x):\n    return x\ndef launch(x):\n    return x + 1",
    ),
    "a graph of its own input": in_class(
        """
        if x.data_ptr() not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = self.a(x)
            self.graphs[x.data_ptr()] = graph, out
        graph, out = self.graphs[x.data_ptr()]
        graph.replay()
        return out.clone()
        """
    ),
    "the driver's library": in_module("driver = ctypes.CDLL('libcuda.so.1')"),
    "a function called connect": in_extension(
        "__device__ void connect(int a) { } void f() { connect(1); dlopen(p, 1); }"
    ),
    "joined threads": in_module(
        "import threading\ndef run(f):\n    t = threading.Thread(target=f)\n    t.start()\n    t.join()"
    ),
    "cuDNN off": in_class("with torch.backends.cudnn.flags(enabled=False):\n    return self.a(x)"),
    "TF32 for products": in_module("torch.backends.cuda.matmul.allow_tf32 = True"),
}


@pytest.mark.parametrize("what", HONEST)
def test_honest_code_when_looked_at_is_left_as_it_is(what):
    look = check_static(HONEST[what])
    assert look.refusal is None and not look.handlers and "silent_fallback" not in look.flags


@pytest.mark.parametrize("what", KEYED_BY_ADDRESS)
def test_static_check_when_an_idiom_is_honest_refuses_nothing(what):
    assert check_static(KEYED_BY_ADDRESS[what]).refusal is None


@pytest.mark.parametrize("reason, what", [(reason, what) for reason, codes in HACKS.items() for what in codes])
def test_static_check_when_running_cannot_show_a_hack_refuses_it(reason, what):
    finding = check_static(HACKS[reason][what]).refusal
    assert finding is not None and finding.reason == reason and finding.detail, finding


@pytest.mark.parametrize("reason, what", [(reason, what) for reason, codes in FLAGGED.items() for what in codes])
def test_static_check_when_running_shows_a_hack_flags_it_and_refuses_by_rule(reason, what):
    code = FLAGGED[reason][what]
    look = check_static(code)
    if look.refusal is None:
        assert reason in look.flags
    assert check_static(code, RulesConfig(findings="refuse")).refusal.reason in (reason, "checker_patch")


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
def test_static_check_when_text_is_made_to_take_long_is_quick(code):
    assert check_static(code).refusal is None


@pytest.mark.parametrize("call", ["mprotect(p, 4096, 0)", "(mprotect)(p, 4096, 0)", "sigaction (11, &how, nullptr)"])
def test_static_check_when_native_code_takes_over_faults_refuses_it(call):
    source = f"#include <csignal>\nvoid f(void* p) {{ struct sigaction how; {call}; }}"
    finding = check_static(in_class(f"return load_inline(name='e', cpp_sources={source!r})")).refusal
    assert finding is not None and finding.reason == "sandbox_escape", finding


HONEST_SNIPPETS = [
    "import os\nos.environ['MAX_JOBS'] = '4'",
    "try:\n    import triton\nexcept ImportError:\n    triton = None",
    "g = torch.cuda.CUDAGraph()\ns = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())",
    "f = torch.compile(lambda x: x, mode='max-autotune')",
    "torch.backends.cudnn.benchmark = True",
    "def launch(x):\n    kernel(x.data_ptr(), x.numel())",
    "cache = {}\ncache[(3, 4)] = 1",
    "x = getattr(torch, 'float32')",
    "import math\nfrom functools import lru_cache",
    "SRC = '#include <torch/extension.h>\\ntorch::Tensor f(torch::Tensor x) { return x.detach().clone(); }'",
    "import torch._inductor.config\ntorch._inductor.config.triton.cudagraphs = False",
    "class Block(nn.Module):\n    def forward(self, x):\n        return x",
]


@pytest.mark.parametrize("snippet", HONEST_SNIPPETS)
def test_static_check_when_code_is_honest_refuses_nothing(snippet):
    code = f"import torch\nimport torch.nn as nn\n{snippet}\n\nclass ModelNew(nn.Module):\n    pass\n"
    assert check_static(code).refusal is None


def test_static_check_when_text_is_too_large_or_nested_refuses_it():
    assert check_static("x" * (2 << 20)).refusal.reason == "resource_exhaustion"
    assert check_static("(" * 3000).refusal.reason == "unparsable"
