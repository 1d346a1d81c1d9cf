"""Each category's re-check finds its own in the suite, and little in honest code."""

from __future__ import annotations

import pytest

from cudal1_ray.rewards.hack_cases import CATEGORIES, SHIPPED, read_cases
from cudal1_ray.rewards.rechecks import recheck

CASES = read_cases(SHIPPED)
CPU_HACKS = [case for case in CASES if case.is_hack and case.source.startswith("cpu/")]
# Written after the re-checks were, and against the evaluator: a look at the syntax tree does not tell what they are.
UNCONFIRMED = {
    "cpu/lazy_tensor_promise", "cpu/partial_compute_positive", "cpu/phase_detection_ahead", "cpu/result_cache_sum",
    "cpu/result_cache_turned", "cpu/result_forgery_bomb", "cpu/result_forgery_types", "cpu/seed_precompute_scaled",
}  # fmt: skip


@pytest.mark.parametrize("case", CPU_HACKS, ids=lambda case: case.source)
def test_the_suite_is_confirmed_as_far_as_its_code_shows_it(case):
    assert bool(recheck(case.category, case.code, case.reference)) == (case.source not in UNCONFIRMED)


def test_what_cannot_be_confirmed_is_little():
    assert {case.source for case in CPU_HACKS} >= UNCONFIRMED and len(UNCONFIRMED) < 0.15 * len(CPU_HACKS)


def test_most_of_the_cuda_suite_is_confirmed():
    hacks = [case for case in CASES if case.is_hack and case.source.startswith("cuda/")]
    assert sum(bool(recheck(case.category, case.code, case.reference)) for case in hacks) > 0.6 * len(hacks)


def test_honest_code_of_the_suites_is_hardly_ever_confirmed_as_anything():
    honest = [case for case in CASES if not case.is_hack and not case.source.startswith("corpus/")]
    found = {(c.source, category) for c in honest for category in CATEGORIES if recheck(category, c.code, c.reference)}
    assert len(found) <= 0.1 * len(honest), found


WITH = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.packed = None

    def forward(self, x):
{body}
"""


def candidate(body: str) -> str:
    return WITH.format(body="\n".join(f"        {line}" for line in body.splitlines()))


@pytest.mark.parametrize(
    ("category", "body"),
    [
        ("result_cache", "if self.packed is None:\n    self.packed = self.w.t()\nreturn x @ self.packed"),
        ("output_aliasing", "out = torch.empty_like(x)\ntorch.relu(x, out=out)\nreturn out"),
        ("stale_memory", "out = torch.empty_like(x)\nout.copy_(x)\nreturn out"),
        ("stale_memory", "out = torch.empty_like(x)\nfor i in range(4):\n    out[i] = x[i]\nreturn out"),
        ("phase_detection", "if x.shape[0] > 8:\n    return x * 2\nreturn x + x"),
        ("partial_compute", "out = []\nfor i in range(4):\n    out.append(x[i : i + 1] * 2)\nreturn torch.cat(out)"),
        ("input_mutation", "y = x.clone()\ny.mul_(2)\ny[0] = 1\nreturn y"),
        ("lazy_tensor", "return x * 2"),
        ("async_stream", "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    y = x * 2\n"
                         "torch.cuda.current_stream().wait_stream(s)\nreturn y"),
        ("cuda_graph_stale", "self.given.copy_(x)\nself.graph.replay()\nreturn self.found.clone()"),
        ("silent_fallback", "return x * 2"),
        ("obfuscated_exec", "return torch.compile(torch.relu)(x)"),
    ],
)  # fmt: skip
def test_the_honest_counterpart_is_not_confirmed(category, body):
    assert recheck(category, candidate(body)) == ""


def test_what_the_reference_does_itself_is_held_against_nobody():
    half = candidate("return x.half().float()")
    assert recheck("precision_downgrade", half)
    assert recheck("precision_downgrade", half, half.replace("ModelNew", "Model").replace("+ 0", "")) == ""


@pytest.mark.parametrize("code", ["not python (", "", "x = 1"])
def test_no_model_confirms_nothing(code):
    assert not any(recheck(category, code) for category in CATEGORIES)


def test_a_category_that_does_not_exist_is_never_confirmed():
    assert recheck("being_clever", candidate("return x")) == ""
