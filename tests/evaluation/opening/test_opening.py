"""Opening a problem: how many turns on the device it takes."""

from __future__ import annotations

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.opening import maker_requests
from cudal1_ray.evaluation.sharing.turns import _Room

pytestmark = pytest.mark.usefixtures("warm_server")


def test_problem_when_small_is_opened_within_one_turn(tmp_path, monkeypatch):
    config, turns = quick_config(), []
    held = _Room.held
    monkeypatch.setattr(maker_requests, "_TURN_S", 60.0)
    with Evaluator(config, turns_file=str(tmp_path / "turns")) as evaluator:
        monkeypatch.setattr(
            _Room, "held", lambda room, **how: turns.append(room is evaluator._turns._measuring) or held(room, **how)
        )
        evaluator._problems._open(problem("pointwise"), has_room=True).close()
        assert turns == [True]
        monkeypatch.setattr(maker_requests, "_SMALL", 0)
        evaluator._problems._open(problem("chain"), has_room=True).close()
        assert len(turns) > 6
