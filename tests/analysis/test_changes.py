"""What candidates change of the exemplars shown: worked out by hand."""

from __future__ import annotations

import pytest

from cudal1_ray.analysis.changes import ChangeCount, change_of, changes_over_steps, count_changes

EXEMPLAR = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def product(a_ptr, b_ptr, BLOCK: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, BLOCK))
    tl.store(b_ptr, tl.dot(a, a, input_precision="tf32x3"))

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        product[(1,)](x, out, BLOCK=128, num_warps=4)
        return out
"""
RENAMED = EXEMPLAR.replace("product", "kernel").replace("out", "y") + "\n# the same\n"
RETUNED = EXEMPLAR.replace("BLOCK=128, num_warps=4", "BLOCK=256, num_warps=8").replace("tf32x3", "tf32")
REWRITTEN = EXEMPLAR.replace("torch.empty_like(x)", "torch.zeros_like(x)")


@pytest.mark.parametrize(
    ("code", "change"),
    [
        (EXEMPLAR, "copied"),
        (RENAMED, "copied"),
        (RETUNED, "retuned"),
        (RETUNED.replace("out", "y"), "retuned"),
        (EXEMPLAR.replace("import torch\n", "import torch\nimport torch.nn.functional as F\n", 1), "copied"),
        (REWRITTEN, "rewritten"),
        (EXEMPLAR[:-30] + "(((", "rewritten"),
    ],
)
def test_change_when_an_exemplar_was_shown_is_the_least(code, change):
    assert change_of(code, [REWRITTEN + "\nx = 1\n", EXEMPLAR]) == change


EXEMPLARS = {"slow": {"code": REWRITTEN, "speedup": 0.5}, "fast": {"code": EXEMPLAR, "speedup": 1.0}}


def row(code: str, speedup: float, ids: tuple[str, ...] = ("slow", "fast"), step: int = 1) -> dict:
    status = "accepted" if speedup else "rejected"
    return {"code": code, "speedup": speedup, "status": status, "exemplar_ids": list(ids), "step": step}


def test_changes_when_counted_are_those_of_samples_with_code_and_known_exemplars():
    rows = [
        row(EXEMPLAR, 1.01),
        row(RETUNED, 1.02),
        row(RETUNED, 1.2),
        row(RETUNED, 0.0),
        row(REWRITTEN, 0.6, ids=("slow",)),
        row("", 0.0),
        row(EXEMPLAR, 1.0, ids=()),
        row(EXEMPLAR, 1.0, ids=("slow", "lost")),
    ]
    assert count_changes(rows, EXEMPLARS) == {
        "copied": ChangeCount(2, 2, 1),
        "retuned": ChangeCount(3, 2, 1),
        "rewritten": ChangeCount(),
    }


def test_changes_when_steps_pass_are_of_the_first_and_the_last_third():
    rows = [row(RETUNED if step > 4 else EXEMPLAR, 1.0, step=step) for step in range(1, 8)]
    parts = changes_over_steps(rows, EXEMPLARS)
    assert [name for name, _ in parts] == ["steps 1 to 2", "steps 6 to 7"]
    assert [counts["retuned"].samples for _, counts in parts] == [0, 2]
    assert [name for name, _ in changes_over_steps(rows[:1], EXEMPLARS)] == ["step 1"]
    assert changes_over_steps([row(EXEMPLAR, 1.0, ids=())], EXEMPLARS) == changes_over_steps([], EXEMPLARS) == []
