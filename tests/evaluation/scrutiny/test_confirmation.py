"""When a speedup is measured again, and which of several measurements counts."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from problems_for_tests import problem, renamed
from rich.console import Console

from cudal1_ray.commands.verdict_tables import verdict_table
from cudal1_ray.evaluation import TimingConfig
from cudal1_ray.evaluation.measuring import CandidateMeasurement
from cudal1_ray.evaluation.scrutiny.confirmation import (
    BestSpeedups,
    half_width,
    is_doubted,
    lower_of_two_that_agree,
    needs_confirmation,
)
from cudal1_ray.evaluation.verdict import Verdict, candidate_hash
from cudal1_ray.rewards import is_void


@pytest.mark.parametrize(
    ("speedup", "best", "needed"),
    [
        (3.0, 3.0, False),
        (3.01, 3.0, True),
        (2.0, 1.0, False),
        (2.01, 1.0, True),
        (2.9, 0.0, False),  # no earlier speedup to compare with
        (3.1, 0.0, True),
        (0.9, 0.4, True),
        (0.5, 10.0, False),
    ],
)
def test_measurement_when_a_speedup_is_high_is_needed_again(speedup, best, needed):
    assert is_doubted(speedup, best, TimingConfig()) is needed


def test_confirmation_when_its_limits_are_set_or_left_out_follows_them():
    assert not needs_confirmation(9.0, 5.0, above=10.0, over_best=2.0)
    assert needs_confirmation(9.0, 5.0, above=10.0, over_best=1.5)
    assert not needs_confirmation(900.0, 1.0, above=0.0, over_best=0.0)


@pytest.mark.parametrize(
    ("first", "second", "agree"),
    [
        (1.0, 1.0, True),
        (1.0, 1.1, True),
        (10.0, 11.0, True),
        (1.0, 1.11, False),
        (3.0, 3.29, True),
        (3.0, 3.31, False),
        (3.0, 0.0, False),
        (0.0, 0.0, False),
    ],
)
def test_speedups_when_within_a_tenth_of_the_smaller_agree(first, second, agree):
    for pair in ((first, second), (second, first)):
        lower = lower_of_two_that_agree([(speedup, 0.01) for speedup in pair], TimingConfig())
        assert (lower is not None) is agree
        assert lower is None or pair[lower] == min(pair)


def test_speedups_when_there_are_three_yield_the_lower_of_two_that_agree():
    assert lower_of_two_that_agree([(9.0, 0.01), (3.1, 0.01), (3.0, 0.01)], TimingConfig()) == 2
    assert lower_of_two_that_agree([(3.0, 0.01), (9.0, 0.01), (8.9, 0.01)], TimingConfig()) == 2
    assert lower_of_two_that_agree([(3.0, 0.01), (5.0, 0.01), (9.0, 0.01)], TimingConfig()) is None
    assert lower_of_two_that_agree([(3.0, 0.1), (3.9, 0.1)], TimingConfig()) == 0
    assert lower_of_two_that_agree([(3.0, 0.01)], TimingConfig()) is None


def test_candidate_when_no_two_measurements_agree_is_void(evaluator, monkeypatch):
    speedups = iter((9.0, 5.0, 3.5))

    def measured(self, before=()):
        return SimpleNamespace(interval=SimpleNamespace(ratio=next(speedups), half_width=0.01))

    monkeypatch.setattr(CandidateMeasurement, "_measure_once", measured)
    monkeypatch.setattr(evaluator.config.timing, "remeasure_difference", TimingConfig().remeasure_difference)
    verdict = evaluator.evaluate(problem("chain"), renamed("chain"))
    assert verdict.reasons == ("unstable_timing",) and is_void(verdict) and verdict.credited_speedup == 0.0
    assert "9.00x, 5.00x, 3.50x; evaluate it again while less else runs" in verdict.detail
    console = Console(width=400, file=io.StringIO())
    console.print(verdict_table(verdict))
    table = console.file.getvalue()
    assert "void: it says nothing about the candidate" in table and "wrong" not in table and verdict.detail in table


def test_half_width_when_a_verdict_has_an_interval_is_that_of_its_logarithm():
    verdict = Verdict("p", "accepted", speedup=2.0, speedup_low=2.0 / 1.1, speedup_high=2.2)
    assert half_width(verdict) == pytest.approx(0.0953, abs=1e-3)
    assert half_width(Verdict.rejected("p", "crash")) == 0.0


def test_best_speedup_when_verdicts_come_is_that_of_the_problems_text_and_never_falls():
    chain, small = problem("chain"), problem("small")
    row = {"problem_hash": candidate_hash(chain.source), "credited_speedup": 1.5}
    best = BestSpeedups([row, {**row, "credited_speedup": 0}, {"problem_hash": "another"}])
    assert (best.of(chain), best.of(small)) == (1.5, 0.0)
    for entry, speedup in ((chain, 1.2), (replace(chain, problem_id="a-copy"), 2.5)):
        best.saw(entry, Verdict("p", "accepted", speedup=speedup, credited_speedup=speedup))
    best.saw(small, Verdict.rejected("p", "wrong_output"))
    assert (best.of(chain), best.of(small)) == (2.5, 0.0)
