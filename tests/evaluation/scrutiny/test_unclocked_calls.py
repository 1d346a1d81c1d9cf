"""A candidate's saving must show in calls that only the referee times, and must not come from later calls' inputs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from evaluator_settings import quick_config
from problems_for_tests import problem

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation import measuring as measuring_module
from cudal1_ray.evaluation.host.handles import Misbehaviour
from cudal1_ray.evaluation.host.timed_contestant import TimedContestant
from cudal1_ray.evaluation.measuring import measure
from cudal1_ray.evaluation.opening import references
from cudal1_ray.evaluation.scrutiny import doubts
from cudal1_ray.evaluation.scrutiny.doubts import ForeknowledgeGain, UnclockedSaving, foreknowledge_s, unseen_gain_s
from cudal1_ray.evaluation.timing.clocks import Batch, Span
from cudal1_ray.evaluation.timing.estimate import TimingDoubt
from cudal1_ray.evaluation.timing.pairs import Pairs
from cudal1_ray.evaluation.timing.stopwatch import Stopwatch

pytestmark = pytest.mark.usefixtures("warm_server")

SLEEPS = """
import time
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.inner = Model(*arguments)

    def forward(self, *inputs):
        time.sleep({seconds})
        return {result}
"""


def test_saving_when_estimated_is_confirmed_refuted_or_left_open():
    chance = random.Random(0)

    def estimate(saving, noise, pairs=100):
        references = [1e-3 + chance.gauss(0, noise) for _ in range(pairs)]
        return UnclockedSaving.of([(base_s, base_s - saving + chance.gauss(0, noise)) for base_s in references])

    assert estimate(100e-6, 20e-6).confirms(100e-6)
    assert estimate(0.0, 20e-6).refutes(100e-6) and not estimate(0.0, 20e-6).confirms(100e-6)
    assert not estimate(60e-6, 20e-6).refutes(100e-6)  # more than half of the saving shows: caches may explain the rest
    open_case = estimate(0.0, 200e-6, pairs=10)
    assert not open_case.refutes(20e-6) and not open_case.settled(20e-6)
    assert estimate(100e-6, 20e-6).settled(100e-6)
    assert estimate(0.0, 10e-6, pairs=300).refutes(12e-6)  # little of a launch can be hidden, either


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(quick_config()) as evaluator:
        yield evaluator


def _pairs(evaluator, name, seconds, result="self.inner(*inputs)"):
    problem_object = problem(name)
    code = problem_object.source + SLEEPS.format(seconds=seconds, result=result)
    session = evaluator._problems.session(problem_object, has_room=True)
    candidate = TimedContestant(evaluator._server, session, code, "candidate", [])
    return Pairs(session, evaluator._references.take(session), candidate, random.Random(1))


def test_time_when_no_inner_clock_covered_it_shows_in_unclocked_calls(evaluator, monkeypatch):
    pairs = _pairs(evaluator, "chain", 3e-3)
    calls = []
    for _ in range(20):  # a busy machine needs more of them
        calls += [pairs.unclocked_calls()[0] for _ in range(32)]
        if (estimate := UnclockedSaving.of(calls)).saving < -3 * estimate.error:
            break
    assert estimate.saving < -3 * estimate.error
    monkeypatch.setattr(pairs.session.config.timing, "budget_s", 20.0)
    with pytest.raises(Misbehaviour, match="show without a clock of its own") as caught:
        unseen_gain_s(pairs, 1e-3, small=False)
    assert caught.value.reason == "async_stream"
    assert unseen_gain_s(pairs, 1e-3, small=True) == 1e-3  # a small claim is taken away, not refused


def test_outputs_when_calls_are_unclocked_are_compared(evaluator):
    pairs = _pairs(evaluator, "chain", 0, result="self.inner(*inputs) * 1.5")
    with pytest.raises(Misbehaviour, match="wrong when timed"):
        pairs.unclocked_calls()
        pairs.compare_waiting()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("others", [0, 2])
def test_candidate_when_one_process_alone_shows_a_reason_is_not_rejected(evaluator, monkeypatch, times, others):
    """It is not rejected for several reasons (`others`), either, if only one process showed each."""
    measured, kinds = [], ["baseline_sabotage", "phase_detection"][:others] + ["async_stream"] * times

    def doubting(pairs, *arguments, **options):
        measured.append([watch.contestant.handle.supervisor for watch in pairs._watches])
        if len(measured) <= len(kinds):
            raise TimingDoubt(kinds[len(measured) - 1], "a gain that does not show")
        return measure(pairs, *arguments, **options)

    monkeypatch.setattr(measuring_module, "measure", doubting)
    chain = problem("chain")
    verdict = evaluator.evaluate(chain, chain.source + SLEEPS.format(seconds=0, result="self.inner(*inputs) + 0.0"))
    assert verdict.accepted == (times == 1), verdict
    assert len({process for pair in measured for process in pair}) == 2 * len(measured)  # all are new processes
    assert times == 1 or verdict.reasons == ("async_stream",)


def test_outputs_when_they_share_memory_are_refused_before_timing(ungated, monkeypatch):
    monkeypatch.setattr(measuring_module, "measure", lambda *arguments: pytest.fail("it was timed"))
    code = (Path(__file__).parents[2] / "adversarial/cpu/adversarial/output_aliasing_buffer.py").read_text()
    verdict = ungated.evaluate(problem("chain"), code)
    assert verdict.reasons == ("output_aliasing",), verdict


def test_time_alone_when_batches_differ_is_that_of_the_slowest_undisturbed_one(evaluator, monkeypatch):
    """The batches are run; what clocks show of them is scripted, in seconds of a call and beside it."""
    clocks = [(2e-3, 1e-5), (3e-3, 1e-5), (1e-3, 1e-5), (9e-3, 2e-3)]  # another process was at work in the last
    batches, run = [], Stopwatch.run

    def run_by_script(watch, *arguments):
        batch, fetched = run(watch, *arguments)
        call_s, beside_s = clocks[len(batches)]
        window = Span(batch.calls * (call_s + beside_s), 0.0, 0.0)
        batches.append(replace(batch, times=(call_s,) * batch.calls, window=window))
        return batches[-1], fetched

    session = evaluator._problems.session(problem("chain"), has_room=True)
    monkeypatch.setattr(Stopwatch, "run", run_by_script)
    monkeypatch.setattr(references, "time", SimpleNamespace(monotonic=lambda: float(len(batches))))
    monkeypatch.setattr(references, "_ALONE_S", float(len(clocks)))
    monkeypatch.setattr(session, "solo_ms", 0.0)
    evaluator._references.time_alone(session)
    assert len(batches) == len(clocks) and session.solo_ms == pytest.approx(3.0)


def test_charge_when_shown_in_one_process_is_not_asked_for_in_the_next(evaluator, monkeypatch):
    queries, charges = [], [0.0, 0.0, 1.0]
    monkeypatch.setattr(
        doubts, "foreknowledge_s", lambda *arguments: queries.append(arguments) or charges[len(queries) - 1]
    )
    pairs = _pairs(evaluator, "chain", 0, result="inputs[0]")  # not compared here: it is many times as fast
    pairs._compare, pairs._questions, pairs._next_question = lambda *arguments: None, [], -1
    centre = measure(pairs).interval.centre
    assert centre > 0.5 and len(queries) == 1
    measure(pairs, centre + 10.0)  # the claim exceeds what a busy machine can add
    assert len(queries) == 1
    measure(pairs, 0.1 * centre)  # the gain is new
    assert len(queries) == 2
    charged = measure(pairs)  # a second is charged for every call
    assert charged.interval.ratio < 0.1 and charged.runtime_ms > 1e3 and charged.shown == 0.0
    assert len(queries) == 3


class FakePairs:
    """Batches whose calls take longer than the reference's by given seconds, in each of three ways."""

    def __init__(self, together, late, ready):
        self.session, self._late, self._ready = SimpleNamespace(config=quick_config()), late, ready
        self.sides = [_calls(1.0)] * 20, [_calls(1.0 + together)] * 20

    def another(self):
        pass

    def late_inputs(self, number, ready):
        return [_calls(2.0)] * number, [_calls(2.0 + (self._ready if ready else self._late))] * number


def _calls(seconds):
    none = Span(0.0, 0.0, 0.0)
    return Batch(1, (seconds,), none, Span(seconds, seconds, 0.0), None, None)


def test_foreknowledge_when_it_gains_is_reported_while_pairs_can_decide():
    together = [[1.0] * 8, [0.5] * 8]  # seconds of a call, of reference and candidate

    def estimate(*late, allowed=0.0):
        return ForeknowledgeGain.of(together, [[1.0] * len(late), list(late)], allowed)

    knows = estimate(*[0.9] * 8)
    assert knows.sure and knows.settled and knows.extra == pytest.approx(0.4)
    honest = estimate(*[0.5, 0.55] * 4)
    assert not honest.sure and honest.settled
    wavers = estimate(*[0.35, 0.95] * 3)
    assert not wavers.sure and not wavers.settled and wavers.likely == 0.0
    seems = estimate(*[0.45, 0.95] * 3)
    assert not seems.sure and seems.likely == pytest.approx(seems.extra)
    assert knows.likely == knows.extra and honest.likely == 0.0
    little = estimate(*[0.66, 0.69, 0.72] * 3)  # more than caches explain, by less than chance does
    assert not little.sure and little.settled and little.likely == pytest.approx(0.19)
    assert estimate(*[0.35, 0.95] * 3, allowed=1.0).settled  # no estimate can exceed the allowed time


def test_foreknowledge_when_it_gains_is_rejected_and_a_loss_is_charged():
    def charge(**ways):
        pairs = FakePairs(**ways)
        return foreknowledge_s(pairs, lambda: pairs.sides)

    assert charge(together=-0.5, late=-0.5, ready=0.0) == 0.0
    assert charge(together=-0.5, late=0.2, ready=0.2) == pytest.approx(0.7)
    with pytest.raises(TimingDoubt, match="without later calls' inputs") as caught:
        charge(together=-0.5, late=0.2, ready=-0.5)
    assert caught.value.reason == "phase_detection"


def test_calls_when_their_inputs_come_late_are_timed_in_a_warm_batch(evaluator):
    """A batch's first calls launch far more slowly than later ones, and few late inputs fit into one batch."""
    pairs = _pairs(evaluator, "chain", 0)
    variants, _ = pairs._inputs.renew(5, written_out=2)
    assert [variant.lasting for variant in variants] == [True] * 3 + [False] * 2
    none = Span(0.0, 0.0, 0.0)
    batch = Batch(5, (4.0, 3.0, 1.0, 1.0, 1.0), none, none, None, None)
    assert batch.last(2).inner == 2.0 and batch.last(2).calls == 2 and batch.last(5) is batch
    late, _ = pairs.late_inputs(1)
    assert late[0].calls == min(pairs.calls, pairs._inputs.most_written)  # on the CPU one clock times all calls
