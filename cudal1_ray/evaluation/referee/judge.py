"""The trusted judge of one candidate: asks it the trials, compares, and measures it against the reference."""

from __future__ import annotations

import random
import re
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..compiling.compiler import Extensions
from ..config import EvaluationConfig
from ..contestants.handles import ContestantHandle, ForkServer, Misbehaviour, names_in
from ..contestants.kept import KeptProcess
from ..exchange.channel import SharedRegion
from ..exchange.tensors import TensorSpec, view_of_bytes
from ..exchange.variant import Variant
from ..sandbox.process_watch import Instant
from ..turns import Turns
from .comparison import Difference, compare, expect
from .session import ProblemSession, Trial, load_message

BATCH_TRIAL_REASON = "shape_overfit"
_LONGEST_TURN_S = 3.0  # for which others wait until a candidate has answered
_MOST_TENSORS = 2048  # the harness gives up at half of it
_NO_ANSWER = (KeyError, TypeError, ValueError, RuntimeError, OverflowError)  # what reading a forged one may end in
# Whoever names one of these to be waited for has nothing from it.
_COMPILES = re.compile(r"compile|triton|cpp_extension|jit|inline|nvrtc|cupy|numba|cute|tilelang", re.IGNORECASE)
_COMPILES_IN_CALLS = re.compile(r"\bcompile\b|triton|nvrtc|cupy|numba|cute|tilelang", re.IGNORECASE)


def compiles_in_calls(code: str) -> bool:
    """May its first call take half a minute? Whoever claims that, and does not, is measured less surely."""
    return _COMPILES_IN_CALLS.search(code) is not None


class TimedContestant:
    """A contestant that has loaded its model: calls in batches, every batch seen by the referee's own clocks."""

    def __init__(
        self, server: ForkServer, session: ProblemSession, code: str, role: str, cores: list[int],
        extensions: Extensions | None = None, process: KeptProcess | None = None,
    ) -> None:  # fmt: skip
        """``process``: one that was there before, and goes on after this contestant is closed."""
        self.session, self.role, self.process, self._closed = session, role, process, False
        self.config: EvaluationConfig = session.config
        self.out = SharedRegion(session.out_bytes, others_read_only=False)
        self.generation = server.generation
        self.unmatched: list[str] = []
        self.called, self.compiles_in_calls = False, compiles_in_calls(code)
        limits = self.config.limits
        self.call_limit_s, self._first_call_limit_s = limits.call_timeout_s, limits.first_call_timeout_s
        if role == "candidate" and not _COMPILES.search(code):
            self._first_call_limit_s = min(self._first_call_limit_s, limits.plain_first_call_timeout_s)
        try:
            self.handle: ContestantHandle = process.take() if process else server.spawn(role=role, cores=cores)
            self.handle.regions_mib = session.shared_mib
        except BaseException:
            self.out.close()
            raise
        try:
            self.ask(
                {"op": "attach", "pool": session.pool.size, "out": self.out.size}, 30.0, "setting up",
                (session.pool.fd, self.out.fd),
            )  # fmt: skip
            message = load_message(session, code, role)
            libraries = extensions.libraries if extensions else {}
            message["extensions"] = list(libraries)
            message["failed_extensions"] = extensions.failed if extensions else {}
            answer = self.ask(
                message,
                self.config.limits.load_timeout_s,
                "import and construction",
                tuple(libraries.values()),
            )
            self.unmatched = names_in(answer, "unmatched")
        except BaseException:
            self.close()
            raise

    def ask(self, message: dict[str, Any], timeout_s: float, doing: str, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        return self.handle.ask(message, timeout_s, doing=doing, fds=fds)

    def prepare(
        self, variants: list[Variant], seeds: list[int] | None, *,
        reuse: bool = False, late: bool = False, unclocked: bool = False, spacers: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        """``reuse``: the last calls' inputs are let go first, so that new values come to lie at their addresses.
        ``late``: each input is made only when its call's turn comes. ``unclocked``: for calls without an inner clock.
        ``spacers``: bytes that are taken before the inputs and after them.
        """
        message = {"op": "prepare", "seeds": seeds, "reuse": reuse, "late": late, "unclocked": unclocked}
        message["spacers"] = list(spacers)
        message["calls"] = [variant.to_list() for variant in variants]
        self.ask(message, 60.0, "preparing inputs")

    def scatter(self, mib: int, *, reserve_mib: int = 0) -> None:
        """Lets go of inputs and outputs, and makes what is allocated next lie ``mib`` further on, in a piece of memory
        of ``reserve_mib`` that is got for it; 0 = in the piece there is.
        """
        self.ask({"op": "scatter", "mib": mib, "reserve_mib": reserve_mib}, 60.0, "moving its memory")

    def go(self, calls: int, *, unclocked: bool = False) -> list[float]:
        """Runs the prepared calls; seconds of each, or of all together, by the inner clock (none if ``unclocked``)."""
        limit = self.call_limit_s * max(1, calls)
        if not self.called:
            limit = max(limit, self._first_call_limit_s)
            self.called = True
        answer = self.ask({"op": "go", "unclocked": unclocked}, limit, "forward")
        inner = answer.get("inner_ns")
        clocked = 0 if unclocked else 1 if self.config.device == "cpu" else calls
        if type(inner) is not list or len(inner) != clocked or not all(map(_is_time, inner)):
            raise Misbehaviour("result_forgery", "a time that the harness never gives")
        return [time * 1e-9 for time in inner]

    def hand_over(self, picks: list[float]) -> None:
        """Waits until the outputs of all calls, or windows of them, are out of the contestant's hands."""
        self.ask({"op": "hand_over", "picks": picks}, 60.0, "handing over outputs")

    def fetch(self, call: int, picks: list[float] | None) -> Fetched:
        """Outputs of one call. ``picks``: of large tensors only windows at these places, from 0 to 1."""
        answer = self.ask({"op": "fetch", "call": call, "picks": picks}, 60.0, "handing over outputs")
        try:
            shapes = [tuple(int(size) for size in shape) for shape in answer["shapes"]]
            outputs = self._read(answer["tensors"])
            if len(shapes) != len(outputs):
                raise ValueError("a shape for each output")
            return Fetched(
                answer["structure"], outputs, shapes, [spec.device for spec, _ in outputs], bool(answer["odd"])
            )  # fmt: skip
        except _NO_ANSWER as error:
            raise Misbehaviour("result_forgery", f"an answer that the harness never gives ({error})") from None

    def fetch_inputs(self, call: int, picks: list[float], into: Fetched) -> None:
        """What became of one call's inputs, of large ones at ``picks``, and where its output lies. After the outputs of
        all that is looked at.
        """
        answer = self.ask({"op": "fetch_inputs", "call": call, "picks": picks}, 60.0, "handing over inputs")
        try:
            into.inputs, into.input_picks = [data for _, data in self._read(answer["tensors"])], picks
            into.aliased = bool(answer["aliased"])
        except _NO_ANSWER as error:
            raise Misbehaviour("result_forgery", f"an answer that the harness never gives ({error})") from None

    def _read(self, items: list[Any]) -> list[tuple[TensorSpec, bytearray]]:
        """Copied out of the shared region first: what is compared can no longer be changed."""
        specs = [TensorSpec.from_list(item) for item in items[:_MOST_TENSORS]]
        if sum(spec.nbytes for spec in specs) > self.out.size:  # each might name the whole region
            raise ValueError("more than fits")
        found = []
        for spec in specs:
            if spec.nbytes not in (0, spec.expected_nbytes()) or spec.offset + spec.nbytes > self.out.size:
                raise ValueError("tensor outside the region")
            with memoryview(self.out.memory) as memory:
                found.append((spec, bytearray(memory[spec.offset : spec.offset + spec.nbytes])))
        return found

    def instant(self) -> Instant:
        try:
            return self.handle.watch.instant()
        except ProcessLookupError:
            raise self.handle._death() from None

    def reset(self) -> None:
        self.ask({"op": "reset"}, 60.0, "resetting")

    def close(self) -> None:
        """Calling it twice is fine."""
        if self._closed:
            return
        self._closed = True
        if self.process is None:
            self.handle.close()
        else:
            self.process.clear()
        self.out.close()


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


class Fetched:
    """What one call gave, in the referee's own memory; of large inputs the windows at ``input_picks``."""

    def __init__(
        self, structure: Any, outputs: list[tuple[TensorSpec, bytearray]], shapes: list[tuple[int, ...]],
        devices: list[str], odd: bool,
    ) -> None:  # fmt: skip
        self.structure, self.outputs, self.shapes, self.devices = structure, outputs, shapes, devices
        self.odd, self.aliased = odd, False
        self.inputs: list[bytearray] = []
        self.input_picks: list[float] = []

    @property
    def nbytes(self) -> int:
        return sum(len(data) for data in (*self.inputs, *(data for _, data in self.outputs)))

    def tensors(self) -> list[torch.Tensor]:
        return [view_of_bytes(data, spec) for spec, data in self.outputs]


def ask_trial(contestant: TimedContestant, trial: Trial, variant: Variant, chance: random.Random) -> Fetched:
    """One call on a trial's inputs; its outputs as far as they are known, and a look at what became of its inputs."""
    seeds = [trial.model_seed] if contestant.session.opened["stochastic"] else None
    contestant.prepare([variant], seeds, reuse=True)
    contestant.go(1)
    fetched = contestant.fetch(0, trial.picks)
    contestant.fetch_inputs(0, random_picks(chance), fetched)
    return fetched


def random_picks(chance: random.Random) -> list[float]:
    """Where in a large tensor to look, from 0 to 1."""
    return [*(chance.random() for _ in range(6)), 0.0, 1.0]  # the corners always


def judge_call(fetched: Fetched, trial: Trial, device: str, expected: list[Any] | None = None) -> Difference | None:
    """None when structure, devices, shapes, dtypes and values are right."""
    expected = trial.expected if expected is None else expected
    if len(fetched.outputs) != len(trial.expected) or not _same_structure(fetched.structure, trial.structure):
        return Difference("wrong_structure", f"outputs {fetched.structure!r:.80} instead of {trial.structure!r:.80}")
    for number, (got, wanted) in enumerate(zip(fetched.devices, trial.devices, strict=True)):
        if got != wanted:
            return Difference("output_device", f"output {number} lies on {got} instead of {wanted}")
    for number, ((spec, data), shape, known, want) in enumerate(
        zip(fetched.outputs, fetched.shapes, trial.expected, expected, strict=True)
    ):
        if shape != known.shape:
            return Difference("shape_broadcast", f"shape {list(shape)} instead of {list(known.shape)}")
        if spec.nbytes != spec.expected_nbytes():
            return Difference("output_dtype", f"dtype {spec.dtype} instead of {want.dtype}")
        wrong = compare(view_of_bytes(data, spec), want, device)
        if wrong is not None:
            return Difference(wrong.reason, f"output {number}: {wrong.detail}")
    return None


def inputs_changed(fetched: Fetched, memory: Any, variant: Variant) -> bool:
    """Are the inputs, as they came back, other than what was given?"""
    if len(fetched.inputs) != len(variant.specs):
        return True
    found = enumerate(fetched.inputs)
    return any(variant.changed(memory, number, fetched.input_picks, data) for number, data in found)


def _same_structure(got: Any, wanted: Any) -> bool:
    """Equal nesting; plain numbers may differ in their last digits."""
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(_same_structure, got, wanted))
    if isinstance(wanted, dict) and "=" in wanted:
        if not isinstance(got, dict) or "=" not in got:
            return False
        try:
            a, b = float(str(got["="])), float(str(wanted["="]))
            return a == b or abs(a - b) <= 1e-5 * max(abs(a), abs(b)) or (a != a and b != b)
        except ValueError:
            return got["="] == wanted["="]
    if isinstance(wanted, dict):
        return (
            isinstance(got, dict)
            and got.keys() == wanted.keys()
            and all(_same_structure(got[key], value) for key, value in wanted.items())
        )
    return got == wanted


def check_correctness(
    contestant: TimedContestant, chance: random.Random, turns: Turns, *, briefly: bool = False
) -> None:
    """Every trial, in an order that cannot be foreseen. Misbehaviour names the first thing that is wrong.

    ``briefly``: one trial, of code that passed all of them in another process.
    """
    session = contestant.session
    trials = session.own[: max(2, session.config.check.trials)]
    trials += [trial for trial in session.trials if trial.kind != "own"]
    first, *rest = trials[:1] if briefly else trials
    chance.shuffle(rest)
    if rest and rest[-1].smaller_batch:  # what compiles anew for the old size must do so before it is locked
        rest.append(first)
    earlier: list[Fetched] = []
    for group in _turns_of(first, rest):
        # A call that compiles takes long and hardly touches the device: nobody waits for it.
        compiles = group[0].may_compile and contestant.compiles_in_calls
        with nullcontext() if compiles else turns.beside_others(_LONGEST_TURN_S):
            answers = [_answer(contestant, asked, chance) for asked in group]
        for asked, (fetched, changed) in zip(group, answers, strict=True):
            trial = asked.trial
            wrong = judge_call(fetched, trial, session.config.device)
            if wrong is not None:
                raise Misbehaviour(*_named(wrong, trial, fetched, earlier, contestant))
            if changed and not trial.mutated:
                raise Misbehaviour("input_mutation", f"the inputs were overwritten ({trial.kind} inputs)")
            earlier.append(fetched)


@dataclass(frozen=True)
class _Asked:
    """A trial in its place among others: a new shape may be compiled for, and the old one again after it."""

    trial: Trial
    may_compile: bool


def _turns_of(first: Trial, rest: list[Trial]) -> list[list[_Asked]]:
    """All trials in their order; those that are asked within one turn on the device together."""
    groups = [[_Asked(first, True)]]
    for before, trial in zip([first, *rest], rest, strict=False):
        asked = _Asked(trial, trial.smaller_batch or before.smaller_batch)
        if asked.may_compile or groups[-1][-1].may_compile:
            groups.append([asked])
        else:
            groups[-1].append(asked)
    return groups


def _answer(contestant: TimedContestant, asked: _Asked, chance: random.Random) -> tuple[Fetched, bool]:
    """What came of it, and whether the inputs were overwritten: the next trial's may come to lie where they did."""
    trial, session = asked.trial, contestant.session
    if asked.may_compile:
        contestant.called = False
    variant = session.ask(trial)
    try:
        fetched = ask_trial(contestant, trial, variant, chance)
        return fetched, inputs_changed(fetched, session.pool.memory, variant)
    except Misbehaviour as error:
        if trial.smaller_batch and error.reason == "runtime_error":
            raise Misbehaviour(BATCH_TRIAL_REASON, f"another batch size: {error.detail}") from None
        raise


def settle(candidate: TimedContestant, level: str) -> None:
    """Between checking and timing: global state as it was, no processes, and none from here on (``level``: of its
    sandbox). Misbehaviour for whoever stands in the way.
    """
    changed = names_in(candidate.ask({"op": "inspect"}, 30.0, "looking at global state"), "changed")
    if changed:
        reason = "checker_patch" if "modes" in changed else "global_state_tamper"
        raise Misbehaviour(reason, f"the candidate changed global state: {', '.join(changed)}")
    deadline = time.monotonic() + 5.0  # compilers on a busy machine take their time to end
    while candidate.handle.watch.family():
        if time.monotonic() > deadline:
            raise Misbehaviour("leftover_process", "a process of the candidate's outlives its call")
        time.sleep(0.02)
    before = candidate.handle.watch.seccomp_filters()
    candidate.ask({"op": "lock"}, 30.0, "locking")
    if level != "process" and before >= 0:
        if candidate.handle.watch.seccomp_filters() != before + 1:
            raise Misbehaviour("result_forgery", "the harness was kept from locking the process")


def _named(
    wrong: Difference, trial: Trial, fetched: Fetched, earlier: list[Fetched], contestant: TimedContestant
) -> tuple[str, str]:
    """The most telling name for a wrong output."""
    detail = f"{wrong.detail} ({trial.kind} inputs)"
    if contestant.unmatched:
        detail += f"; weights without a place in ModelNew: {', '.join(contestant.unmatched[:4])}"
    if trial.smaller_batch:
        return BATCH_TRIAL_REASON, f"another batch size: {detail}"
    if wrong.reason in ("wrong_output", "partial_compute", "tolerance_exploit"):
        for one in earlier:
            if fetched.outputs and [d for _, d in one.outputs] == [d for _, d in fetched.outputs]:
                return "result_cache", f"the same output as for earlier inputs: {detail}"
    return wrong.reason, detail


def expected_from_reference(fetched: Fetched, trial: Trial, config: EvaluationConfig) -> list[Any]:
    """What a timed call should give, from the reference's own answer and the errors known from the trials."""
    expected = []
    for native, known in zip(fetched.tensors(), trial.expected, strict=True):
        exact = native if native.dtype.is_floating_point or native.is_complex() else None
        fresh = expect(native, exact, config.check, config.device)
        scale = fresh.spread / known.spread if known.spread else 1.0
        expected.append(
            type(fresh)(
                fresh.dtype, fresh.shape, fresh.truth, fresh.spread,
                max(fresh.rms_allowed, 1.5 * known.rms_allowed * scale),
                max(fresh.max_allowed, 1.5 * known.max_allowed), known.mismatches_allowed, fresh.infinite,
            )
        )  # fmt: skip
    return expected
