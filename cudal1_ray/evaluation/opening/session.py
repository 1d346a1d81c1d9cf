"""One problem as the referee holds it: trials with their expected outputs, the pool of inputs, the timed reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from cudal1_ray.evaluation.config import EvaluationConfig, LimitConfig
from cudal1_ray.evaluation.correctness.comparison import Expected
from cudal1_ray.evaluation.exchange.channel import SharedRegion
from cudal1_ray.evaluation.exchange.messages import DeviceSettings, Opened, Traits
from cudal1_ray.evaluation.exchange.tensors import DTYPES, WINDOW, TensorSpec, aligned
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.host.handles import Misbehaviour

HANDED_CALLS, HANDED_WINDOWS = 8, 2  # calls in a row that only the referee times, and windows of each large output
# Most windows of a tensor that are compared in one call, unless a trial has more.
_MOST_PICKS = 16
# Elements: more than a tensor has.
_ALL = 1 << 48
# Kind of a trial that only requires finite outputs.
MAGNIFIED = "magnified"
# Variation in which each process draws its inputs on the device, from the seed that comes with a call.
DRAWN = "drawn"
# Ways to make new inputs of two sets: rotating both, only floats, or neither (matrices that must stay definite).
MIXED = ("mixed", "mixed_floats", "mixed_in_place")


class ProblemFault(Exception):
    """The problem itself cannot be evaluated here; `reason` is reference_error or degenerate_input."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail

    @classmethod
    def of_reference(cls, failure: Misbehaviour, limits: LimitConfig, whose: str = "") -> ProblemFault:
        """Return the fault of a problem whose own code fails; the detail names the limits that may be too low."""
        return cls("reference_error", f"{whose}{failure.reason}{limits.behind(failure.reason)}: {failure.detail}")


@dataclass
class Trial:
    """One set of inputs with its expected outputs. `values`: the bytes of each tensor; if each process draws it from
    `seed`, those of its windows at `input_picks`.
    """

    kind: str
    specs: list[TensorSpec]
    values: list[bytearray | memoryview]
    structure: Any
    expected: list[Expected]
    devices: list[str]
    mutated: bool
    model_seed: int
    in_order: bool = False  # all outputs lie in the order of their shapes
    other_batch: bool = False
    picks: list[float] | None = None  # windows of large outputs that were kept
    seed: int = 0
    input_picks: list[float] | None = None

    @property
    def input_bytes(self) -> int:
        return sum(aligned(spec.nbytes) for spec in self.specs)

    @property
    def output_bytes(self) -> int:
        return sum(aligned(e.nbytes) for e in self.expected)


@dataclass
class ProblemSession:
    """Everything about a problem that is reused from candidate to candidate. Contestants see none of it."""

    problem_id: str
    source: str
    config: EvaluationConfig
    opened: Opened
    traits: Traits
    trials: list[Trial]
    variation: str  # how timed inputs are made new: DRAWN, one of MIXED, jitter, bank
    pool: SharedRegion
    homes: list[int]  # offsets in the pool at which the problem's own trials stay; empty for a bank and DRAWN
    model_seed: int
    room: int = 1  # sets of inputs that fit behind `slots` at a time
    reference: Any = None  # TimedContestant, kept while the fork server lives
    load_s: float = 0.0  # the latest import and construction of the reference
    reference_ms: float = 0.0
    observed: Any = None  # Observation of the reference's call, None before it was observed
    reference_seen: bool = False  # whether it is known where the reference's outputs lie
    reference_aliases: bool = False  # whether they share memory with each other
    reference_borrows: bool = False  # whether they lie in its inputs' memory
    reference_off: list[tuple[float, float]] = field(default_factory=list)  # a coarse baseline's errors, by output
    solo_ms: float = 0.0
    overhead_s: float = 0.0
    degenerate: bool = False  # on the problem's own inputs the output is always the same
    alone: bool = False  # too large for other candidates beside it

    @property
    def in_order(self) -> bool:
        """Return whether the reference's outputs lie in the order of their shapes: then a candidate's have to."""
        return all(trial.in_order for trial in self.own)

    @property
    def spoils(self) -> bool:
        """Return whether unneeded outputs may be overwritten, since all of the reference's are new and its own."""
        return self.reference_seen and not self.reference_aliases and not self.reference_borrows

    def saw_reference(self, aliased: bool, borrowed: bool) -> None:
        """Record where outputs of the reference lay; one occurrence excuses a candidate."""
        self.reference_seen = True
        self.reference_aliases |= aliased
        self.reference_borrows |= borrowed

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that the session takes, in all places together."""
        return self.pool.size + sum(expected.truth.nbytes for trial in self.trials for expected in trial.expected)

    @property
    def shared_mib(self) -> float:
        """Return the MiB that the session shares with a contestant, all of which the referee's count includes."""
        return (self.out_bytes + self.pool.size) / 2**20

    @property
    def slot_bytes(self) -> int:
        """Return the bytes for the inputs of one call with the problem's own sizes."""
        return max(256, *(trial.input_bytes for trial in self.own))

    @property
    def slots(self) -> int:
        """Return the offset in the pool of the inputs that are rewritten for each call."""
        return aligned(self.opened.nbytes) + len(self.homes) * self.slot_bytes

    @property
    def own(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.kind == "own"]

    @property
    def out_bytes(self) -> int:
        """Return the bytes for a right answer of any trial and its inputs, or for the answers of calls in a row."""
        largest = max(_handed_out(trial) for trial in self.trials)
        return max(largest, HANDED_CALLS * self.handed_bytes) + 4096

    @property
    def handed_bytes(self) -> int:
        """Return the bytes for one of `HANDED_CALLS` answers, with `HANDED_WINDOWS` of large outputs."""
        most = HANDED_WINDOWS * WINDOW
        return sum(aligned(min(expected.nbytes, most * expected.dtype.itemsize)) for expected in self.own[0].expected)

    def place(self, trial: Trial, offset: int) -> Variant:
        """Write a trial's inputs, as they are, to the pool at `offset`, and return where they lie."""
        variant = _at(trial.specs, offset)
        for spec, data in zip(variant.specs, trial.values, strict=True):
            self.pool.memory[spec.offset : spec.offset + spec.nbytes] = data
        return variant

    def to_write_out(self, variant: Variant, number: int) -> Variant:
        """Return the place of the `number`-th set of inputs that `write_out` writes; `variant` itself where it stays as
        it is: tensors with strides, and inputs that processes draw.
        """
        if not variant.lasting or variant.drawn is not None or any(spec.strides for spec in variant.specs):
            return variant
        return _at(variant.specs, self.slots + number * self.slot_bytes)

    def write_out(self, variant: Variant, place: Variant, *, blank: bool = False) -> None:
        """Write the values of `variant` to `place`, or (`blank`) only zeros."""
        for number, spec in enumerate(place.specs if place is not variant else ()):
            if blank:
                self.pool.memory[spec.offset : spec.offset + spec.nbytes] = bytes(spec.nbytes)
            else:
                variant.write(self.pool.memory, number, spec.offset)

    def ask(self, trial: Trial) -> Variant:
        """Return a trial's own inputs, for a call that is not timed."""
        if trial.input_picks is not None:
            return self.drawn(trial.seed)
        return self.lasting(trial) if self.homes and trial.kind == "own" else self.place(trial, self.slots)

    def lasting(self, trial: Trial, cuts: tuple[int, ...] = (), factor: float = 1.0) -> Variant:
        """Return a variant of one of the problem's own trials, which stay in the pool."""
        home = self.homes[next(number for number, own in enumerate(self.own) if own is trial)]
        variant = _at(trial.specs, home)
        return replace(variant, cuts=cuts or variant.cuts, factor=factor, lasting=True)

    def drawn(self, seed: int) -> Variant:
        """Return inputs of the problem's own sizes that each process draws for itself."""
        specs = tuple(self.own[0].specs)
        return Variant(specs, (0,) * len(specs), lasting=True, drawn=seed)

    def drop_reference(self) -> None:
        if self.reference is not None:
            self.reference.close()
            self.reference = None

    def close(self) -> None:
        self.drop_reference()
        self.pool.close()


def _handed_out(trial: Trial) -> int:
    """Return the bytes for a trial's inputs and twice its outputs, or for the windows of large ones."""
    most = WINDOW * max(len(trial.picks), _MOST_PICKS) if trial.picks else _ALL
    outputs = sum(aligned(min(expected.nbytes, most * expected.dtype.itemsize)) for expected in trial.expected)
    inputs = sum(aligned(min(spec.nbytes, WINDOW * _MOST_PICKS * DTYPES[spec.dtype].itemsize)) for spec in trial.specs)
    return inputs + 2 * outputs


def _at(specs: Iterable[TensorSpec], offset: int) -> Variant:
    """Return inputs as they lie one after another from `offset` on."""
    placed = []
    for spec in specs:
        placed.append(replace(spec, offset=offset, device="cpu"))
        offset = aligned(offset + spec.nbytes)
    return Variant(tuple(placed), (0,) * len(placed))


def device_settings(config: EvaluationConfig) -> DeviceSettings:
    """Return how a process opens the configured device; a GPU is the only one that it sees."""
    return DeviceSettings(
        config.device.partition(":")[0], config.threads, config.timing.l2_flush_mib, config.limits.gpu_memory_share
    )


def resets_tf32(config: EvaluationConfig) -> bool:
    """Return whether TF32 is switched off before calls; never against a baseline that uses it itself."""
    return config.rules.tf32 == "reset" and config.against != "tuned_eager"
