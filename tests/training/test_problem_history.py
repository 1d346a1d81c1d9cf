"""Which problems a step asks, from what earlier steps showed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cudal1_ray.evaluation import Verdict
from cudal1_ray.training.problem_history import ProblemHistory

RIGHT, WRONG = Verdict("p", "accepted"), Verdict.rejected("p", ("wrong_output",))
BROKEN, UNPARSABLE = Verdict.rejected("p", ("reference_error",)), Verdict.rejected("p", ("unparsable",))


def evaluated_samples(problem_id: str, *verdicts: Verdict) -> list[SimpleNamespace]:
    return [SimpleNamespace(prompt=SimpleNamespace(problem_id=problem_id), verdict=verdict) for verdict in verdicts]


def test_records_when_updated_are_running_shares_of_success_and_of_differing_groups():
    history = ProblemHistory()
    history.update(1, evaluated_samples("a", RIGHT, WRONG), [1.0, -1.0])
    assert history.record("a").informative == 1.0 and history.record("a").success == pytest.approx(0.15)
    history.update(2, evaluated_samples("a", WRONG, WRONG), [0.0, 0.0])
    record = history.record("a")
    assert record.informative == pytest.approx(0.7) and record.success == pytest.approx(0.105) and record.asked_at == 2


def test_problem_when_its_groups_never_differ_is_drawn_seldom_and_not_never():
    history = ProblemHistory()
    for step in range(1, 21):
        history.update(
            step,
            evaluated_samples("solved", RIGHT, RIGHT) + evaluated_samples("hard", RIGHT, WRONG),
            [0.0, 0.0, 1.0, -1.0],
        )
    rng = np.random.default_rng(0)
    drawn = [history.draw(["solved", "hard"], 1, 21, rng)[0] for _ in range(1000)]
    assert 60 < drawn.count("solved") < 140  # weights 0.1 and 1: 91 of 1000 expected


def test_problems_when_not_asked_for_long_come_up():
    history = ProblemHistory()
    history.update(1, evaluated_samples("old", RIGHT, WRONG), [1.0, -1.0])
    history.update(99, evaluated_samples("new", RIGHT, WRONG), [1.0, -1.0])
    rng = np.random.default_rng(0)
    drawn = [history.draw(["old", "new"], 1, 100, rng)[0] for _ in range(1000)]
    assert drawn.count("old") > 970  # weights 99 and 1


def test_draw_when_seeded_takes_distinct_problems_and_the_same_ones():
    history, ids = ProblemHistory(), [f"p{i}" for i in range(9)]
    first = history.draw(ids, 5, 1, np.random.default_rng(3))
    assert len(set(first)) == 5 and first == history.draw(ids, 5, 1, np.random.default_rng(3))
    assert sorted(history.draw(ids, 20, 1, np.random.default_rng(3))) == ids


def test_problem_when_it_keeps_being_void_leaves_the_rotation_once():
    history = ProblemHistory()
    assert history.update(1, evaluated_samples("a", BROKEN, BROKEN, UNPARSABLE), [0.0] * 3) == []
    assert history.update(2, evaluated_samples("a", BROKEN, WRONG), [0.0] * 2) == ["a"] and history.retired("a")
    assert history.update(3, evaluated_samples("a", BROKEN, BROKEN), [0.0] * 2) == []


def test_problem_when_a_candidate_is_evaluated_in_between_stays():
    history = ProblemHistory()
    for step, verdicts in enumerate([(BROKEN, BROKEN), (WRONG, RIGHT, BROKEN), (BROKEN, BROKEN), (UNPARSABLE,)], 1):
        history.update(step, evaluated_samples("a", *verdicts), [0.0] * len(verdicts))
    assert not history.retired("a")


def test_history_when_its_state_is_set_is_the_same():
    history, copy = ProblemHistory(), ProblemHistory()
    history.update(4, evaluated_samples("a", BROKEN), [0.0])
    copy.set_state(history.get_state())
    assert copy.record("a") == history.record("a") and copy.record("a").void_in_a_row == 1
