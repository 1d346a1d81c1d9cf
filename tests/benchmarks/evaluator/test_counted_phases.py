"""The benchmark of phases counts functions by name: they are there, or a window on a GPU would show it first."""

from __future__ import annotations

import pytest

from benchmarks.evaluator.counting import COUNTED, group_of
from benchmarks.evaluator.phases import of_a_candidate


@pytest.mark.parametrize("label", COUNTED)
def test_counted_phase_when_looked_up_is_a_function_of_its_owner(label):
    owner, name = COUNTED[label]
    assert callable(getattr(owner, name, None)), f"{owner.__name__} has no {name}"


@pytest.mark.parametrize(
    ("phase", "group"),
    [
        ("opening: waiting for a shared turn", "waiting"),
        ("opening: maker: trial", "opening"),
        ("exclusive: reference: go", "timing alone"),
        ("candidate: first go", "first call"),
        ("candidate: go", "compare"),
        ("everything else", "rest"),
    ],
)
def test_group_of_when_given_a_phase_names_what_its_seconds_are_for(phase, group):
    assert group_of(phase) == group


def test_of_a_candidate_when_one_opened_its_problem_states_its_seconds_apart():
    rows = [
        {"reasons": [], "status": "accepted", "opened": opened, "begun": 10.0, "ended": 10.0 + took, "groups": groups}
        for opened, took, groups in (
            (True, 8.0, {"opening": 6.0, "waiting": 2.0}),
            (False, 2.0, {"waiting": 0.5}),
            (False, 4.0, {"waiting": 1.0, "first call": 3.0}),
        )
    ]
    table = of_a_candidate([*rows, {"reasons": ["unparsable"], "status": "rejected"}])
    assert list(table) == ["accepted", "opened its problem"]
    assert table["opened its problem"]["opening"] == [6.0, 0.75]
    assert table["accepted"]["waiting"] == [0.75, 0.25]
    assert table["accepted"]["median_s"] == 3.0
