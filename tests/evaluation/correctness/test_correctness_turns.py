"""Which turns on a shared device the trials of a candidate take."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import msgspec
from problems_for_tests import problem

from cudal1_ray.evaluation.correctness.trials import Correctness, comparison_turn, first_turn
from cudal1_ray.evaluation.host.timed_contestant import TimedContestant
from cudal1_ray.evaluation.screening.hints import tunes_in_calls
from cudal1_ray.evaluation.sharing.turns import Turns


def test_others_when_code_compiles_or_outputs_are_large_takes_a_turn_for_each_trial(evaluator):
    session = evaluator._problems.session(problem("pointwise"), has_room=True)
    own = session.own[0]
    batch, larger, lowered = (
        replace(own, kind=kind, other_batch=kind != "lowered") for kind in ("batch", "larger", "lowered")
    )

    def groups(*trials, compiles: bool) -> list[list[str]]:
        contestant = SimpleNamespace(session=replace(session, trials=list(trials)), compiles_in_calls=compiles)
        correctness, kinds = Correctness(contestant, random.Random(2), None), []
        correctness._ask = lambda group: kinds.append([trial.kind for trial in group])
        correctness.others()
        return kinds

    every = groups(own, lowered, batch, larger, compiles=False)
    assert len(every) == 1 and sorted(every[0]) == ["batch", "larger", "lowered", *["own"] * (len(every[0]) - 3)]
    assert every[0].index("larger") == every[0].index("batch") + 1
    assert all(len(group) == 1 for group in groups(own, lowered, batch, larger, compiles=True))
    large = replace(own, kind="raised", expected=[replace(own.expected[0], shape=(1 << 24,))])
    assert sorted(groups(own, lowered, large, compiles=False)) == [["lowered"], ["raised"]]


def test_libraries_when_a_small_problem_loads_them_block_no_other_turn(evaluator, tmp_path):
    on_cpu, turns = evaluator._problems.session(problem("pointwise"), has_room=True), Turns(str(tmp_path / "turns"))
    small = replace(on_cpu, config=replace(on_cpu.config, device="cuda"))
    spec = msgspec.structs.replace(on_cpu.own[0].specs[0], shape=(1 << 24,), nbytes=1 << 26)
    large = replace(small, trials=[replace(on_cpu.own[0], specs=[spec])], reference_ms=0.0)

    def waits(session, **options) -> bool:
        with first_turn(session, turns, **options):
            return turns._measuring._holder is not None

    assert waits(on_cpu)  # the first call on a CPU loads no libraries
    assert not waits(small) and waits(small, answered_before=True)
    assert waits(large) and waits(replace(large, reference_ms=500.0))
    assert not waits(replace(large, reference_ms=5.0))  # its tensors are large, but its call is short
    turns.close()


def test_candidate_when_it_tunes_in_its_first_call_gets_an_exclusive_turn_once_correct(evaluator, tmp_path):
    session, turn_limits = evaluator._problems.session(problem("pointwise"), has_room=True), []

    class RecordingTurns(Turns):
        def alone(self, longest_s=math.inf):
            turn_limits.append(longest_s)
            return super().alone(longest_s)

    code = session.source.replace("Model", "ModelNew") + "\nimport torch\n"
    tunes = code + "torch.backends.cudnn.benchmark = True\n"
    for text, briefly, expected in ((tunes, True, 1), (tunes, False, 0), (code, True, 0)):
        turns, chance = RecordingTurns(str(tmp_path / "turns")), random.Random(1)
        contestant = TimedContestant(evaluator._server, session, text, "candidate", evaluator._cores.numbers)
        Correctness(contestant, chance, turns).first(briefly=briefly)
        contestant.close()
        turns.close()
        assert len(turn_limits) == expected and all(longest_s < 10 for longest_s in turn_limits)
        turn_limits.clear()
    assert not tunes_in_calls(tunes + "import triton")  # it compiles in its first call, which takes much longer


def test_comparison_when_on_the_cpu_blocks_no_other_turn(evaluator, tmp_path):
    session, turns = evaluator._problems.session(problem("pointwise"), has_room=True), Turns(str(tmp_path / "turns"))
    (expected,) = session.own[0].expected
    for shape, waits in ((expected.shape, False), ((1 << 21,), False), (((1 << 21) + 1,), True)):
        with comparison_turn(replace(session.own[0], expected=[replace(expected, shape=shape)]), turns):
            assert (turns._measuring._holder is not None) is waits
    turns.close()
