"""Which problems a session trains on."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.training.assessment import problems_of_table
from tests.training.scripted_run import open_session


def test_problem_when_too_long_for_a_prompt_is_left_out_and_named(tmp_path):
    session = open_session(tmp_path)
    ids = [problem.problem_id for problem in session.train_problems]
    lengths = {problem_id: session.crew.count_tokens(session.prompt(problem_id).text) for problem_id in ids}
    longest = max(lengths.values())
    long = {problem_id for problem_id, tokens in lengths.items() if tokens == longest}
    shorter = open_session(tmp_path / "shorter", f"prompting.max_prompt_tokens={longest - 1}")
    assert {p.problem_id for p in shorter.train_problems} == lengths.keys() - long
    (note,) = shorter.progress._notes
    assert all(problem_id in note for problem_id in long) and "max_prompt_tokens" in note
    with pytest.raises(UserError, match="every training problem"):
        open_session(tmp_path / "none", "prompting.max_prompt_tokens=1")


def test_rotation_when_a_number_is_asked_has_the_problems_of_an_assessment_of_as_many(tmp_path):
    session = open_session(tmp_path, "problems.asked=3", "assessment.problems=3")
    assert len(session.train_problems) > 3
    assert session.rotation == [problem.problem_id for problem in problems_of_table(session, session.train_problems)]
    everything = open_session(tmp_path / "all")
    assert everything.rotation == [problem.problem_id for problem in everything.train_problems]
