"""Inputs made by recipe, turns on a shared device, and intervals over several processes."""

from __future__ import annotations

import fcntl
import math
import multiprocessing
import os
import random
import signal
import statistics
import time
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import torch
from evaluator_settings import quick_config
from problems_for_tests import problem
from turn_holder import hold

from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.exchange.channel import SharedRegion
from cudal1_ray.evaluation.exchange.tensors import DTYPES, WINDOW, Region, Row, TensorSpec
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice
from cudal1_ray.evaluation.inside.input_kinds import varied
from cudal1_ray.evaluation.referee import opening
from cudal1_ray.evaluation.referee.inputs import Inputs
from cudal1_ray.evaluation.referee.judge import Correctness, first_turn, judging_turn
from cudal1_ray.evaluation.referee.timed_contestant import TimedContestant, tunes_in_calls
from cudal1_ray.evaluation.timing.statistics import Interval, bucket_means, combine_intervals, spread, trimmed_mean
from cudal1_ray.evaluation.turns import Turns, _Room


@pytest.fixture
def pool():
    region = SharedRegion(1 << 22, others_read_only=False)
    yield region
    region.close()


def place(pool: SharedRegion, *tensors: torch.Tensor) -> tuple[TensorSpec, ...]:
    writer = Region(pool.fd, pool.size, writable=True)
    row = Row(writer)
    specs = tuple(row.put(tensor) for tensor in tensors)
    writer.close()
    return specs


@pytest.mark.parametrize("cut", [0, 1, 7, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_a_contestant_makes_what_the_referee_meant(pool, cut, dtype):
    values = (torch.arange(24) % 5).to(dtype).reshape(4, 6)
    specs = place(pool, values)
    variant = Variant(specs, (cut,), lasting=True)
    reader = Region(pool.fd, pool.size, writable=False)
    (tensor,) = CpuDevice(1).inputs(reader, msgspec.json.decode(msgspec.json.encode(variant), type=Variant))
    assert torch.equal(tensor, values.reshape(-1).roll(-cut).reshape(4, 6)) and tensor.dtype == dtype
    assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == variant.values(pool.memory, 0, None)
    reader.close()


def test_a_factor_changes_floats_only(pool):
    floats, integers = torch.randn(50), torch.arange(50)
    variant = Variant(place(pool, floats, integers), (0, 0), factor=1.25)
    reader = Region(pool.fd, pool.size, writable=False)
    inputs = CpuDevice(1).inputs(reader, variant)
    assert torch.equal(inputs[0], floats * 1.25) and torch.equal(inputs[1], integers)
    assert inputs[0].view(torch.uint8).numpy().tobytes() == variant.values(pool.memory, 0, [0.5])
    reader.close()


@pytest.mark.parametrize("kind", ["one_row", "one_row_scaled", "one_row_sparse"])
def test_one_row_differs_and_is_neither_the_first_nor_the_last(kind):
    values = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) + 1
    mask, tokens, rows = torch.ones(5, 64, dtype=torch.bool), torch.arange(5), set()
    for seed in range(20):
        changed, hidden, same = varied([values, mask, tokens], kind, seed, list)
        (row,) = {int(row) for row in ((changed != values) | ~hidden).nonzero()[:, 0]}
        rows.add(row)
        assert torch.equal(same, tokens) and 0 < int(hidden[row].sum()) < 64
        there = changed[row] != 0
        scale, shift = {"one_row": (2.5, 0.75), "one_row_scaled": (2.5, 0.0), "one_row_sparse": (1.0, 0.0)}[kind]
        assert 0 < int(there.sum()) < 64 and torch.allclose(changed[row][there], scale * values[row][there] - shift)
    assert rows == {1, 2, 3}
    assert varied([tokens], kind, 0, list) is None
    assert varied([values[:2]], kind, 0, list) is None


def test_lengths_that_all_reach_to_the_end_become_shorter_and_other_whole_numbers_stay():
    lengths, tokens, ones = torch.full((64,), 512), torch.arange(64), torch.ones(64, dtype=torch.long)
    shorter, *same = varied([lengths, tokens, ones], "sparse", 0, list)
    assert len(shorter.unique()) > 30 and 1 <= int(shorter.min()) and int(shorter.max()) <= 512
    assert shorter.dtype == lengths.dtype and torch.equal(same[0], tokens) and torch.equal(same[1], ones)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_two_sets_are_turned_and_mixed(pool, dtype):
    sets = [(torch.randn(4, 9).to(dtype), torch.arange(36), torch.randn(9, 4).to(dtype).t()) for _ in range(2)]
    flat = [tensor if tensor.is_contiguous() else tensor.t() for s in sets for tensor in s]  # as it lies in memory
    specs = list(place(pool, *flat))
    for number in (2, 5):  # the third keeps its own layout
        old = specs[number]
        specs[number] = TensorSpec(old.dtype, (4, 9), (1, 4), old.offset, old.nbytes)
    variant = Variant(tuple(specs[:3]), (5, 7, 0), 1.0, True, tuple(specs[3:]), (11, 1, 0), 0.75)
    reader = Region(pool.fd, pool.size, writable=False)
    mixed = CpuDevice(1).inputs(reader, msgspec.json.decode(msgspec.json.encode(variant), type=Variant))
    first, second = (s[0].reshape(-1).roll(-cut).reshape(4, 9) for s, cut in zip(sets, (5, 11), strict=True))
    assert torch.allclose(mixed[0], torch.lerp(first, second, 0.75))
    whole = torch.arange(36)  # a quarter of the first set's, then the second's
    assert torch.equal(mixed[1], torch.cat([whole.roll(-7)[:9], whole.roll(-1)[9:]]))
    assert torch.allclose(mixed[2], torch.lerp(sets[0][2], sets[1][2], 0.75))
    for number, tensor in enumerate(mixed):
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert not variant.changed(pool.memory, number, None, data)
    wide = mixed[0].double()
    digits, other = (wide * (1 + torch.finfo(dtype).eps)).to(dtype), (wide + 0.5).to(dtype)
    for tensor, is_other in ((digits, False), (other, True)):  # another device may round otherwise
        assert variant.changed(pool.memory, 0, None, tensor.view(torch.uint8).numpy().tobytes()) is is_other
    assert variant.changed(pool.memory, 1, None, (mixed[1] + 1).view(torch.uint8).numpy().tobytes())
    assert variant.changed(pool.memory, 0, None, b"")
    reader.close()


@pytest.mark.parametrize("name", ["pointwise", "fixed_inputs", "tuple"])
def test_inputs_that_are_written_out_come_of_the_same_sets_and_tell_nothing(evaluator, name):
    session = evaluator._problems.session(problem(name), has_room=True)
    inputs, memory = Inputs(session, random.Random(3)), session.pool.memory
    variants, _ = inputs.renew(min(4, inputs.most_written))
    assert len(variants) > 1 and all(variant.lasting for variant in variants)
    written = [session.written_out(given_variant, number) for number, given_variant in enumerate(variants)]
    for variant, plain in zip(variants, written, strict=True):
        assert not (plain.others or plain.lasting or any(plain.cuts)) and plain.factor == 1.0
        for n, spec in enumerate(variant.specs):
            data = plain.values(memory, n, None)
            if not (variant.computed(n) and variant.factor == 1.0 and variant.cuts[n]):
                assert data == variant.values(memory, n, None)
                continue
            seam = round((1 - variant.share) * spec.elements()) * DTYPES[spec.dtype].itemsize
            first, second = (
                Variant((side,), (cut,)).values(memory, 0, None)
                for side, cut in ((spec, variant.cuts[n]), (variant.others[n], variant.other_cuts[n]))
            )
            assert data == first[:seam] + second[seam:]


def test_windows_of_a_large_input_are_those_that_come_back(pool):
    values = torch.randn(8 * WINDOW + 777)
    picks, device = [random.Random(3).random() for _ in range(5)], CpuDevice(1)
    variant = Variant(place(pool, values), (len(values) - 12345,))
    reader = Region(pool.fd, pool.size, writable=False)
    (tensor,) = device.inputs(reader, variant)
    back = device.dense(tensor, picks)
    assert back.shape == (5 * WINDOW,)
    assert back.view(torch.uint8).numpy().tobytes() == variant.values(pool.memory, 0, picks)
    tensor[int(picks[2] * (len(values) - WINDOW)) + 5] += 1
    assert device.dense(tensor, picks).view(torch.uint8).numpy().tobytes() != variant.values(pool.memory, 0, picks)
    reader.close()


LOCKED = pytest.mark.timeout(120)  # a lock that is never let go fails by its own limit, not by the suite's


@LOCKED
@pytest.mark.parametrize(("held", "next_turn", "waits"), [
    ("prepare", "prepare", False), ("prepare", "measure", True), ("measure", "prepare", True),
    ("measure", "measure", True), ("candidate", "candidate", False), ("candidate", "alone", True),
    ("alone", "candidate", True),
])  # fmt: skip
def test_one_measures_alone_and_others_beside_each_other(tmp_path, held, next_turn, waits):
    context = multiprocessing.get_context("spawn")
    path, events = str(tmp_path / "turns"), [context.Event() for _ in range(6)]
    first = context.Process(target=hold, args=(path, held, events[0], events[1], events[4]))
    second = context.Process(target=hold, args=(path, next_turn, events[2], events[3], events[5]))
    first.start()
    assert events[0].wait(30)
    second.start()
    assert events[5].wait(30)
    if waits:
        assert not events[2].wait(1.0)
        events[1].set()
    assert events[2].wait(30)
    events[1].set(), events[3].set()
    first.join(30), second.join(30)
    assert (first.exitcode, second.exitcode) == (0, 0)


@LOCKED
def test_waiting_exclusive_turn_is_not_overtaken(tmp_path):
    context, path = multiprocessing.get_context("spawn"), str(tmp_path / "turns")
    events = [[context.Event() for _ in range(3)] for _ in range(3)]  # of each: it is in, may leave, wants in
    holder, waiter, late = (
        context.Process(target=hold, args=(path, way, *of_one))
        for way, of_one in zip(("prepare", "measure", "prepare"), events, strict=True)
    )
    holder.start()
    assert events[0][0].wait(60)
    for process, (entered, _, trying) in ((waiter, events[1]), (late, events[2])):
        process.start()
        assert trying.wait(60) and not entered.wait(1.0)
    events[0][1].set()
    assert events[1][0].wait(60) and not events[2][0].wait(1.0)
    events[1][1].set()
    assert events[2][0].wait(60)
    events[2][1].set()
    for process in (holder, waiter, late):
        process.join(60)
        assert process.exitcode == 0


@LOCKED
def test_shared_turn_beyond_its_limit_does_not_block_others(tmp_path):
    slow, other = (Turns(str(tmp_path / "turns")) for _ in range(2))
    with slow.beside_others(longest_s=0.1):
        with other.alone():  # comes to it although the slow one has not ended
            pass
    with slow.alone():
        pass
    slow.close(), other.close()


@LOCKED
def test_a_turn_is_kept_for_the_questions_that_follow(tmp_path):
    mine, other = (Turns(str(tmp_path / "turns")) for _ in range(2))
    room = mine._measuring

    def ask() -> bool:
        with mine.beside_others():
            assert room._holder is not None
        return room._holder is not None

    assert not ask()
    with mine.keeping(60.0):
        assert room._holder is None  # before the first
        assert ask() and ask()
    assert room._holder is None and not ask()
    with mine.keeping(0.0):
        assert not ask() and not ask()  # each has taken longer than that
        with other.alone():
            pass
    with pytest.raises(ValueError), mine.keeping(60.0), mine.beside_others():
        raise ValueError
    with mine.alone():  # which would wait for whatever was still held
        pass
    mine.close(), other.close()


def test_device_is_not_used_while_it_rests(tmp_path, monkeypatch):
    mine, steps = Turns(str(tmp_path / "turns")), []

    def is_free() -> bool:
        with open(tmp_path / "turns") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", lambda rest_s: steps.append((rest_s, is_free())))
        with mine.alone(rest_s=0.5):
            steps.append("measures")
    assert steps == [(0.5, False), "measures"] and is_free()
    mine.close()


def test_a_small_problem_is_opened_within_one_turn(tmp_path, monkeypatch):
    config, turns = quick_config(), []
    held = _Room.held
    monkeypatch.setattr(opening, "_TURN_S", 60.0)
    with Evaluator(config, turns_file=str(tmp_path / "turns")) as evaluator:
        monkeypatch.setattr(
            _Room, "held", lambda room, **how: turns.append(room is evaluator._turns._measuring) or held(room, **how)
        )
        evaluator._problems._open(problem("pointwise"), has_room=True).close()
        assert turns == [True]
        monkeypatch.setattr(opening, "_SMALL", 0)
        evaluator._problems._open(problem("chain"), has_room=True).close()
        assert len(turns) > 6


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


@LOCKED
def test_a_killed_holder_gives_its_turn_up(tmp_path):
    context = multiprocessing.get_context("spawn")
    path, (entered, never, trying) = str(tmp_path / "turns"), (context.Event() for _ in range(3))
    holder = context.Process(target=hold, args=(path, "measure", entered, never, trying))
    holder.start()
    assert entered.wait(30)
    os.kill(holder.pid, signal.SIGKILL)
    holder.join(30)
    turns = Turns(path)
    with turns.alone(), turns.beside_others():  # one that measures already does not wait for itself
        pass
    turns.close()


def test_loading_a_small_problem_s_libraries_blocks_no_other_turn(evaluator, tmp_path):
    on_cpu, turns = evaluator._problems.session(problem("pointwise"), has_room=True), Turns(str(tmp_path / "turns"))
    small = replace(on_cpu, config=replace(on_cpu.config, device="cuda"))
    spec = msgspec.structs.replace(on_cpu.own[0].specs[0], shape=(1 << 24,), nbytes=1 << 26)
    large = replace(small, trials=[replace(on_cpu.own[0], specs=[spec])], reference_ms=0.0)

    def waits(session, **options) -> bool:
        with first_turn(session, turns, **options):
            return turns._measuring._holder is not None

    assert waits(on_cpu)  # where it takes no time worth a word
    assert not waits(small) and waits(small, answered_before=True)
    assert waits(large) and waits(replace(large, reference_ms=500.0))
    assert not waits(replace(large, reference_ms=5.0))  # its tensors are large, and it is soon done with them
    turns.close()


def test_candidate_that_tunes_in_its_first_call_gets_an_exclusive_turn_once_correct(evaluator, tmp_path):
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
    assert not tunes_in_calls(tunes + "import triton")  # that compiles meanwhile, for much longer


@LOCKED
def test_exclusive_turn_beyond_its_limit_does_not_block_others(tmp_path):
    slow, other = (Turns(str(tmp_path / "turns")) for _ in range(2))
    with slow.alone(longest_s=0.1), other.alone():
        pass
    slow.close(), other.close()


def test_comparison_on_the_cpu_blocks_no_other_turn(evaluator, tmp_path):
    session, turns = evaluator._problems.session(problem("pointwise"), has_room=True), Turns(str(tmp_path / "turns"))
    (expected,) = session.own[0].expected
    for shape, waits in ((expected.shape, False), ((1 << 21,), False), (((1 << 21) + 1,), True)):
        with judging_turn(replace(session.own[0], expected=[replace(expected, shape=shape)]), turns):
            assert (turns._measuring._holder is not None) is waits
    turns.close()


def test_several_processes_widen_the_interval_by_their_spread():
    parts = [Interval(0.00, 0.01, 10), Interval(0.06, 0.01, 10), Interval(0.03, 0.01, 10)]
    whole = combine_intervals(parts)
    deviation = statistics.stdev([0.00, 0.06, 0.03])
    assert whole.centre == pytest.approx(0.03) and whole.n == 30
    assert whole.half_width == pytest.approx(4.302653 * deviation / math.sqrt(3))
    agreed = combine_intervals([Interval(0.02, 0.03, 9), Interval(0.02, 0.04, 9)])
    assert agreed.half_width == pytest.approx(0.05 / 2) and agreed.centre == pytest.approx(0.02)
    assert combine_intervals(parts[:1]) == parts[0]
    one_is_off = combine_intervals([Interval(0.00, 0.01, 10), Interval(0.01, 0.01, 10), Interval(0.40, 0.01, 10)])
    assert one_is_off.centre == pytest.approx(0.01) and one_is_off.half_width > 0.3
    six = combine_intervals([Interval(centre, 0.01, 10) for centre in (0.03, -0.90, 0.00, 0.01, 0.02, 0.40)])
    assert six.centre == pytest.approx(0.015)  # without a quarter at either end


def test_robust_figures():
    assert trimmed_mean([1.0, 2.0, 3.0, 4.0, 100.0], 0.2) == pytest.approx(3.0)
    assert trimmed_mean([], 0.2) == 0.0 and trimmed_mean([5.0], 0.4) == 5.0
    assert spread([1.0, 1.0, 1.0, 50.0]) == 0.0
    assert bucket_means([1.0, 3.0, 5.0, 7.0, 9.0], 2) == (3.0, 8.0)
    assert bucket_means([1.0], 2) == ()
