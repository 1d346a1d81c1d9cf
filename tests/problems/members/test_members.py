"""Drawn members of the bundled families: problem and candidates do the same work, and no held-out problem's."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from cudal1_ray.problems import MemberDraw, Problem, ProblemsConfig, load_corpus, load_problems
from cudal1_ray.problems.members.text import ModuleText, ReturnLine

PROBLEMS = load_problems(ProblemsConfig())
TRAIN = [problem for problem in PROBLEMS if problem.split == "train"]
HELD_OUT = [problem for problem in PROBLEMS if problem.held_out]
ENTRIES = [entry for entry in load_corpus() if entry.expected == "accepted"]
DRAWN = 8  # members of each problem


def ending(source: str) -> str:
    module = ModuleText.read(source)
    assert module is not None
    return module.body[-1]


def names_in(code: str) -> dict:
    names: dict = {}
    exec(compile(code, "drawn", "exec"), names)
    return names


def small(source: str) -> str:
    """Return the problem with its long axes 96 to 128 places long, to be quick."""
    return re.sub(
        r"^([A-Z]) = (\d+)$",
        lambda match: f"{match[1]} = {min(int(match[2]), 96 + 8 * (ord(match[1]) % 5))}",
        source,
        flags=re.MULTILINE,
    )


@pytest.mark.parametrize(
    "file", [*TRAIN, *ENTRIES], ids=lambda file: getattr(file, "entry_id", None) or file.problem_id
)
def test_module_text_when_written_again_is_the_same_program(file):
    text = file.source if isinstance(file, Problem) else file.code
    module = ModuleText.read(text)
    assert module is not None
    again = ModuleText.read(module.write())
    assert again is not None and again.write() == module.write()
    assert text.strip() in module.write()  # and perhaps an import before it


@pytest.mark.parametrize(
    ("line", "in_place"),
    [
        ("return h * 0.25", "return h.mul_(0.25)"),
        ("return torch.relu(h - 1.0) * 2.0", "return torch.relu_(h.sub_(1.0)).mul_(2.0)"),
        ("return torch.tanh(h * 0.01) + v", "return torch.tanh_(h.mul_(0.01)).add_(v)"),
        ("return h * self.w + self.b", "return h.mul_(self.w).add_(self.b)"),
    ],
)
def test_ending_when_read_is_written_again_in_both_ways(line, in_place):
    ending = ReturnLine.read(line)
    assert ending is not None and (ending.line(), ending.line_in_place()) == (line, in_place)


def test_ending_of_several_results_when_read_is_none():
    assert ReturnLine.read("return s - m * m + c * t") is None


@pytest.mark.parametrize("problem", TRAIN, ids=lambda problem: problem.problem_id)
def test_candidates_of_drawn_members_when_run_return_what_the_member_does(problem):
    members, rng = MemberDraw([problem], ENTRIES, HELD_OUT), np.random.default_rng(0)
    kept = 0
    for _ in range(DRAWN):
        member, candidates = members.draw(problem.problem_id, rng)
        reference = names_in(small(member.source))
        torch.manual_seed(1)
        model, inputs = reference["Model"](*reference["get_init_inputs"]()), reference["get_inputs"]()
        with torch.no_grad():
            expected = model(*(tensor.clone() for tensor in inputs))
        assert expected.isfinite().all()
        for candidate in candidates:
            ours = names_in(candidate.code)["ModelNew"](*reference["get_init_inputs"]())
            ours.load_state_dict(model.state_dict())
            with torch.no_grad():
                outputs = ours(*(tensor.clone() for tensor in inputs))
            assert torch.allclose(outputs, expected, rtol=1e-3, atol=1e-3), candidate.code
        kept += len(candidates)
    assert kept > 0.6 * DRAWN * sum(entry.problem_id == problem.problem_id for entry in ENTRIES)


def test_members_when_drawn_differ_and_none_ends_as_a_held_out_problem():
    members, rng = MemberDraw(TRAIN, ENTRIES, HELD_OUT), np.random.default_rng(0)
    drawn = [members.draw(name, rng)[0].source for name in members.problem_ids * 40]
    assert len(members.problem_ids) == len(TRAIN) and len(set(drawn)) > 0.95 * len(drawn)
    assert not {ending(p.source) for p in HELD_OUT} & {ending(source) for source in drawn}


def test_members_when_drawn_with_the_same_seed_are_the_same():
    members = MemberDraw(TRAIN, ENTRIES, HELD_OUT)
    first, again = (members.draw("swish_chain_2", np.random.default_rng(3)) for _ in range(2))
    assert first == again


def test_members_when_problems_are_not_bundled_are_none():
    assert MemberDraw([Problem("p", HELD_OUT[0].source, "p")], []).problem_ids == []
