"""The trusted judge of one candidate: asks it the trials, compares, and measures it against the reference."""

from __future__ import annotations

import random
from typing import Any

import torch

from .channel import SharedRegion
from .comparison import Difference, compare, expect
from .config import EvaluationConfig
from .contestants import ContestantHandle, ForkServer, Misbehaviour
from .process_watch import Instant
from .session import ProblemSession, Trial, load_message
from .tensors import TensorSpec, view_of_bytes

BATCH_TRIAL_REASON = "shape_overfit"


class TimedContestant:
    """A contestant that has loaded its model: calls in batches, every batch seen by the referee's own clocks."""

    def __init__(
        self, server: ForkServer, session: ProblemSession, code: str, role: str, cores: list[int],
        libraries: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.session, self.role = session, role
        self.config: EvaluationConfig = session.config
        self.out = SharedRegion(session.out_bytes, others_read_only=False)
        self.generation = server.generation
        self.unmatched: list[str] = []
        self.called = False
        self.call_limit_s = self.config.limits.call_timeout_s
        try:
            self.handle: ContestantHandle = server.spawn(role=role, cores=cores)
            self.handle.regions_mib = (self.out.size + session.pool.size) / 2**20
        except BaseException:
            self.out.close()
            raise
        try:
            self.ask(
                {"op": "attach", "pool": session.pool.size, "out": self.out.size}, 30.0, "setting up",
                (session.pool.fd, self.out.fd),
            )  # fmt: skip
            message = load_message(session, code, role)
            libraries = libraries or {}
            message["extensions"] = list(libraries)
            answer = self.ask(
                message,
                self.config.limits.load_timeout_s,
                "import and construction",
                tuple(libraries.values()),
            )
            self.unmatched = [str(name)[:100] for name in answer.get("unmatched", ())][:8]
        except BaseException:
            self.close()
            raise

    def ask(self, message: dict[str, Any], timeout_s: float, doing: str, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        return self.handle.ask(message, timeout_s, doing=doing, fds=fds)

    def prepare(
        self, specs: list[list[Any]], n: int, stride: int, seeds: list[int] | None, *, reuse: bool = False
    ) -> None:
        """``reuse``: the last calls' inputs are let go first, so that new values come to lie at their addresses."""
        message = {"op": "prepare", "specs": specs, "n": n, "stride": stride, "seeds": seeds, "reuse": reuse}
        self.ask(message, 60.0, "preparing inputs")

    def go(self, calls: int) -> float:
        """Runs the prepared calls; milliseconds by the inner clock."""
        limit = self.call_limit_s * max(1, calls)
        if not self.called:
            limit = max(limit, self.config.limits.first_call_timeout_s)
            self.called = True
        answer = self.ask({"op": "go"}, limit, "forward")
        inner = answer.get("inner_ns")
        if type(inner) is not int or not 0 <= inner < 1 << 62:
            raise Misbehaviour("result_forgery", "a time that the harness never gives")
        return inner * 1e-6

    def fetch(self, call: int) -> Fetched:
        answer = self.ask({"op": "fetch", "call": call}, 60.0, "handing over outputs")
        try:
            outputs = self._read(answer["tensors"])
            return Fetched(
                answer["structure"], outputs, [spec.device for spec, _ in outputs],
                [data for _, data in self._read(answer["inputs"])], bool(answer["aliased"]),
                bool(answer["odd"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise Misbehaviour("result_forgery", f"an answer that the harness never gives ({error})") from None

    def _read(self, items: list[Any]) -> list[tuple[TensorSpec, bytearray]]:
        """Copied out of the shared region first: what is compared can no longer be changed."""
        found = []
        for item in items:
            spec = TensorSpec.from_list(item)
            if spec.nbytes not in (0, spec.expected_nbytes()) or spec.offset + spec.nbytes > self.out.size:
                raise ValueError("tensor outside the region")
            found.append((spec, bytearray(self.out.memory[spec.offset : spec.offset + spec.nbytes])))
        return found

    def instant(self) -> Instant:
        try:
            return self.handle.watch.instant()
        except ProcessLookupError:
            raise self.handle._death() from None

    def reset(self) -> None:
        self.ask({"op": "reset"}, 60.0, "resetting")

    def close(self) -> None:
        self.handle.close()
        self.out.close()


class Fetched:
    """What one call gave, in the referee's own memory."""

    def __init__(
        self, structure: Any, outputs: list[tuple[TensorSpec, bytearray]], devices: list[str],
        inputs: list[bytearray], aliased: bool, odd: bool,
    ) -> None:  # fmt: skip
        self.structure, self.outputs, self.devices = structure, outputs, devices
        self.inputs, self.aliased, self.odd = inputs, aliased, odd

    def tensors(self) -> list[torch.Tensor]:
        return [view_of_bytes(data, spec) for spec, data in self.outputs]


def ask_trial(contestant: TimedContestant, trial: Trial) -> Fetched:
    """One call on a trial's inputs."""
    session = contestant.session
    specs = session.place(trial, session.static_bytes)
    seeds = [trial.model_seed] if session.opened["stochastic"] else None
    contestant.prepare(specs, 1, 0, seeds, reuse=True)
    contestant.go(1)
    return contestant.fetch(0)


def judge_call(fetched: Fetched, trial: Trial, expected: list[Any] | None = None) -> Difference | None:
    """None when structure, devices, shapes, dtypes and values are right and the inputs were left alone."""
    expected = trial.expected if expected is None else expected
    if not _same_structure(fetched.structure, trial.structure):
        return Difference("wrong_structure", f"outputs {fetched.structure!r:.80} instead of {trial.structure!r:.80}")
    for number, (got, wanted) in enumerate(zip(fetched.devices, trial.devices, strict=True)):
        if got != wanted:
            return Difference("output_device", f"output {number} lies on {got} instead of {wanted}")
    for number, ((spec, data), want) in enumerate(zip(fetched.outputs, expected, strict=True)):
        if spec.shape != tuple(want.truth.shape):
            return Difference("shape_broadcast", f"shape {list(spec.shape)} instead of {list(want.truth.shape)}")
        if spec.nbytes != spec.expected_nbytes():
            return Difference("output_dtype", f"dtype {spec.dtype} instead of {want.dtype}")
        wrong = compare(view_of_bytes(data, spec), want)
        if wrong is not None:
            return Difference(wrong.reason, f"output {number}: {wrong.detail}")
    return None


def inputs_changed(fetched: Fetched, memory: Any, specs: list[list[Any]], shift: int) -> bool:
    """Are the inputs, as they came back, other than what lies in the pool? Odd layouts come back dense."""
    for data, item in zip(fetched.inputs, specs, strict=False):
        spec = TensorSpec.from_list(item)
        start = spec.offset + shift
        if spec.strides:
            given = view_of_bytes(bytearray(memory[start : start + spec.nbytes]), spec)
            original = given.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        else:
            original = memory[start : start + spec.nbytes]
        if data != original:
            return True
    return False


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


def check_correctness(contestant: TimedContestant, chance: random.Random) -> None:
    """Every trial, in an order that cannot be foreseen. Misbehaviour names the first thing that is wrong."""
    session = contestant.session
    trials = session.own[: max(2, session.config.check.trials)]
    trials += [trial for trial in session.trials if trial.kind != "own"]
    first, *rest = trials
    chance.shuffle(rest)
    earlier: list[Fetched] = []
    for trial in [first, *rest]:
        if trial.kind == "batch":  # a new shape may be compiled for, and the old one again after it
            contestant.called = False
        try:
            fetched = ask_trial(contestant, trial)
            if trial.kind == "batch":
                contestant.called = False
        except Misbehaviour as error:
            if trial.kind == "batch" and error.reason == "runtime_error":
                raise Misbehaviour(BATCH_TRIAL_REASON, f"another batch size: {error.detail}") from None
            raise
        wrong = judge_call(fetched, trial)
        if wrong is not None:
            raise Misbehaviour(*_named(wrong, trial, fetched, earlier, contestant))
        specs = [spec.to_list() for spec in trial.specs]
        if not trial.mutated and _trial_inputs_changed(fetched, trial, specs):
            raise Misbehaviour("input_mutation", f"the inputs were overwritten ({trial.kind} inputs)")
        earlier.append(fetched)


def _trial_inputs_changed(fetched: Fetched, trial: Trial, specs: list[list[Any]]) -> bool:
    for data, spec, value in zip(fetched.inputs, trial.specs, trial.values, strict=False):
        if spec.strides:
            dense = view_of_bytes(bytearray(value), spec).contiguous().view(-1).view(torch.uint8)
            value = dense.numpy().tobytes()
        if data != value:
            return True
    return False


def _named(
    wrong: Difference, trial: Trial, fetched: Fetched, earlier: list[Fetched], contestant: TimedContestant
) -> tuple[str, str]:
    """The most telling name for a wrong output."""
    detail = f"{wrong.detail} ({trial.kind} inputs)"
    if contestant.unmatched:
        detail += f"; weights without a place in ModelNew: {', '.join(contestant.unmatched[:4])}"
    if trial.kind == "batch":
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
        fresh = expect(native, native if native.dtype.is_floating_point or native.is_complex() else None, config.check)
        scale = fresh.spread / known.spread if known.spread else 1.0
        expected.append(
            type(fresh)(
                fresh.dtype, fresh.truth, fresh.native, fresh.spread,
                max(fresh.rms_allowed, 1.5 * known.rms_allowed * scale),
                max(fresh.max_allowed, 1.5 * known.max_allowed), known.mismatches_allowed, fresh.infinite,
            )
        )  # fmt: skip
    return expected
