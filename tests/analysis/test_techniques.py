"""Technique tags on small codes: what is there is found, what is only talked about is not."""

from __future__ import annotations

import pytest

from cudal1_ray.analysis.techniques import count_techniques, find_techniques
from cudal1_ray.problems import read_corpus


def reference(body: str, init: str = "pass") -> str:
    return _module("Model", body, init)


def candidate(body: str, init: str = "pass", head: str = "") -> str:
    return head + _module("ModelNew", body, init)


def _module(name: str, body: str, init: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    return (
        f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\nclass {name}(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x, y):\n{lines}\n"
    )


PLAIN = reference("return torch.relu(x + y) * 2")
KERNEL = '''
from torch.utils.cpp_extension import load_inline
source = r"""
#include <torch/extension.h>
// shared memory would not help: no __shared__ here
__global__ void fused(const float4* x, float* y) {
    float v = x[threadIdx.x].x;
    %s
}
"""
module = load_inline(name="m", cpp_sources="", cuda_sources=source)
'''


def names(code: str, against: str = PLAIN) -> set[str]:
    return {technique.name for technique in find_techniques(code, against)}


@pytest.mark.parametrize(
    ("technique", "code"),
    [
        ("operation fusion", candidate("return torch.addcmul(x, y, y)")),
        ("memory layout", candidate("return torch.relu(x.to(memory_format=torch.channels_last) + y) * 2")),
        ("memory layout", candidate("return torch.relu(x + y.t().contiguous()) * 2")),
        ("mathematical short-circuit", candidate("return torch.zeros_like(x)")),
        ("CUDA graphs", candidate("self.g.replay()\nreturn self.out", "self.g = torch.cuda.CUDAGraph()")),
        ("reduced precision", candidate("return torch.relu(x.half() + y).float() * 2")),
        ("asynchronous execution", candidate("s = torch.cuda.Stream()\nreturn torch.relu(x + y) * 2")),
        ("torch.compile", candidate("return self.f(x, y)", "self.f = torch.compile(lambda x, y: x + y)")),
        ("inline CUDA", candidate("return module.fused(x, y)", head=KERNEL % "")),
        ("memory coalescing", candidate("return module.fused(x, y)", head=KERNEL % "")),
        ("operation fusion", candidate("return module.fused(x, y)", head=KERNEL % "")),
        ("shared memory", candidate("return module.fused(x, y)", head=KERNEL % "__shared__ float s[32];")),
        (
            "warp-level reduction",
            candidate("return module.fused(x, y)", head=KERNEL % "v += __shfl_down_sync(0xffffffff, v, 16);"),
        ),
        (
            "thread-block configuration",
            candidate("return module.fused(x, y)", head=KERNEL % "dim3 b(16, 16);"),
        ),
        (
            "Triton",
            candidate(
                "return k[(1,)](x)",
                head="import triton\nimport triton.language as tl\n@triton.jit\ndef k(p):\n    i = tl.program_id(0)\n",
            ),
        ),
    ],
)
def test_technique_when_code_uses_it_is_named(technique: str, code: str):
    assert technique in names(code)


def test_techniques_when_the_reference_is_given_are_changes_against_it():
    diagonal = reference("return torch.diag(x) @ y")
    techniques = find_techniques(candidate("return x.unsqueeze(1) * y"), diagonal)
    assert [technique.name for technique in techniques] == ["algorithmic change"]
    assert techniques[0].in_reference and techniques[0].evidence == "return torch.diag(x) @ y"
    loop = reference("out = 0\nfor row in x:\n    out = out + row\nreturn out")
    assert names(candidate("return x.sum(0)"), loop) == {"vectorisation"}


def test_techniques_when_code_only_renames_are_none():
    linear = reference("return self.f(x)", "self.f = nn.Linear(4, 4)")
    assert names(candidate("return F.linear(x, self.w, self.b)"), linear) == set()
    assert names(candidate("z = torch.relu(x + y)\nreturn z * 2")) == set()


def test_techniques_when_only_comments_and_strings_name_them_are_none():
    code = candidate(
        '"""Uses torch.compile, CUDAGraph( and __shared__ memory with x.half()."""\n'
        "# torch.compile and channels_last, honestly\n"
        'print("torch.compile")\nreturn torch.relu(x + y) * 2'
    )
    assert names(code) == set()
    assert "shared memory" not in names(candidate("return module.fused(x, y)", head=KERNEL % ""))


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ('self.f = torch.compile(torch.relu)  # mode="reduce-overhead" was slower', {"torch.compile"}),
        ("self.f = torch.compile(torch.relu, mode='reduce-overhead')", {"torch.compile", "CUDA graphs"}),
        ("self.f = torch.compile(torch.relu, mode='default')", {"torch.compile"}),
        ("torch.set_float32_matmul_precision('highest')", set()),
        ("torch.set_float32_matmul_precision('high')", {"reduced precision"}),
        ("torch.set_float32_matmul_precision(precision='medium')", {"reduced precision"}),
        ("self.f = 'quantize_dynamic'", set()),
    ],
)
def test_techniques_when_an_argument_selects_them_follow_it(init: str, expected: set[str]):
    assert names(candidate("return torch.relu(x + y) * 2", init)) == expected


@pytest.mark.parametrize(
    ("imports", "decorator", "language"),
    [
        ("import triton\nimport triton.language as tl", "@triton.jit", "tl."),
        ("import triton as t, triton.language as lang", "@t.jit", "lang."),
        ("from triton import jit, language", "@jit", "language."),
        ("from triton import jit\nfrom triton.language import arange, dot, load, program_id, store", "@jit", ""),
        (
            "try:\n    from triton import jit, language\nexcept ImportError:\n    jit = language = None",
            "@jit",
            "language.",
        ),
    ],
)
def test_techniques_when_triton_is_imported_in_any_way_are_the_same(imports: str, decorator: str, language: str):
    kernel = (
        f"{imports}\n{decorator}\ndef kernel(x):\n    at = {language}program_id(0) * 16 + {language}arange(0, 16)\n"
        f"    {language}store(x + at, {language}dot({language}load(x + at), 2))\n"
    )
    code = candidate("kernel[(1,)](x)\nreturn x", head=kernel)
    techniques = find_techniques(code, reference("return torch.sort(x + y)"))
    evidence = {technique.name: technique.evidence for technique in techniques}
    assert set(evidence) == {"operation fusion", "shared memory", "Triton"}
    assert evidence["Triton"] == evidence["operation fusion"] == decorator


def test_techniques_when_the_reference_uses_them_already_are_not_counted():
    half = reference("return x.half() + y.half()")
    assert "reduced precision" not in names(candidate("return x.half() + y.half()"), half)


def test_evidence_when_a_technique_is_named_is_the_line_that_shows_it():
    code = candidate("z = x + y\nreturn torch.addcmul(z, y, y)  # é")
    technique = next(t for t in find_techniques(code, PLAIN) if t.name == "operation fusion")
    assert code.split("\n")[technique.line - 1].strip() == technique.evidence == "return torch.addcmul(z, y, y)  # é"


@pytest.mark.parametrize("code", ["", "def broken(:", "None", "x = 1", "\x00"])
def test_techniques_when_text_is_no_candidate_are_none(code: str):
    assert find_techniques(code, PLAIN) == ()


def test_counts_when_candidates_repeat_are_of_distinct_ones_in_each_stage():
    fused, plain = candidate("return torch.addcmul(x, y, y)"), candidate("return torch.relu(x + y) * 2")
    rows = [
        {"stage": "sft", "problem_id": "p", "code": fused, "status": "accepted", "speedup": 2.0},
        {"stage": "sft", "problem_id": "p", "code": fused, "status": "accepted", "speedup": 2.0},
        {"stage": "sft", "problem_id": "p", "code": plain, "status": "accepted", "speedup": 1.0},
        {"stage": "sft", "problem_id": "q", "code": fused, "status": "rejected", "speedup": 0.0},
        {"stage": "contrastive", "problem_id": "p", "code": None, "status": "rejected", "speedup": 0.0},
    ]
    counted = count_techniques(rows, {"p": PLAIN, "q": PLAIN})
    assert counted == {
        "sft": {
            "operation fusion": {
                "candidates": 2,
                "share": 2 / 3,
                "accepted": 1,
                "geomean": pytest.approx(2.0),
            }
        }
    }


@pytest.mark.parametrize(("stated", "technique"), [
    ("warp-level reduction", "warp-level reduction"),
    ("shared-memory tiling", "shared memory"),
    ("async copy", "asynchronous execution"),
])  # fmt: skip
def test_techniques_when_the_kernel_corpus_states_them_are_found_in_its_code(stated, technique):
    entries = [entry for entry in read_corpus("kernelbench") if stated in entry.technique]
    assert len(entries) > 30
    assert [e.entry_id for e in entries if technique not in {t.name for t in find_techniques(e.code)}] == []
