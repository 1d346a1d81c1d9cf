"""One problem as the referee holds it: trials with their expected outputs, the pool of inputs, the timed reference."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from .channel import SharedRegion
from .comparison import Expected, expect, independent_of_input
from .config import EvaluationConfig
from .contestants import ContestantHandle, Misbehaviour
from .inputs import Variant
from .tensors import TensorSpec, aligned, view_of_bytes
from .turns import Turns

_SPARSE = 64 << 30  # regions are sparse: only what is written takes memory


class ProblemFault(Exception):
    """The problem itself cannot be evaluated here; ``reason`` is reference_error or degenerate_input."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass
class Trial:
    """One set of inputs (``values``: the bytes of each tensor) with what must come out."""

    kind: str
    specs: list[TensorSpec]
    values: list[bytes]
    structure: Any
    expected: list[Expected]
    devices: list[str]
    mutated: bool
    model_seed: int

    @property
    def input_bytes(self) -> int:
        return sum(aligned(spec.nbytes) for spec in self.specs)

    @property
    def output_bytes(self) -> int:
        return sum(aligned(e.nbytes) for e in self.expected)


@dataclass
class ProblemSession:
    """Everything about a problem that is reused from candidate to candidate. Contestants never see any of it."""

    problem_id: str
    source: str
    config: EvaluationConfig
    opened: dict[str, Any]
    trials: list[Trial]
    variation: str  # how timed inputs are made new: rotated, rotated_floats, jitter, bank
    pool: SharedRegion
    homes: list[int]  # where in the pool each of the problem's own trials lies for good; empty for a bank
    model_seed: int
    reference: Any = None  # TimedContestant, kept while the fork server lives
    reference_ms: float = 0.0
    reference_aliases: bool = False
    solo_ms: float = 0.0
    overhead_s: float = 0.0
    degenerate: bool = False  # on the problem's own inputs the output is always the same

    @property
    def slot_bytes(self) -> int:
        """Room for the inputs of any trial."""
        return max(256, *(trial.input_bytes for trial in self.trials))

    @property
    def slots(self) -> int:
        """Where in the pool inputs begin that are written anew again and again."""
        return aligned(self.opened["bytes"]) + len(self.homes) * self.slot_bytes

    @property
    def own(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.kind == "own"]

    @property
    def out_bytes(self) -> int:
        """Room that a right answer of any trial needs, and the inputs after it."""
        return max(trial.input_bytes + 2 * trial.output_bytes for trial in self.trials) + 4096

    def place(self, trial: Trial, offset: int) -> Variant:
        """Writes a trial's inputs, as they are, to the pool at ``offset``."""
        variant = _at(trial, offset)
        for spec, data in zip(variant.specs, trial.values, strict=True):
            self.pool.memory[spec.offset : spec.offset + spec.nbytes] = data
        return variant

    def ask(self, trial: Trial) -> Variant:
        """A trial's own inputs, for a question that is not timed."""
        if self.homes and trial.kind == "own":
            return self.lasting(trial)
        return self.place(trial, self.slots)

    def lasting(self, trial: Trial, cuts: tuple[int, ...] = (), factor: float = 1.0) -> Variant:
        """A variant of one of the problem's own trials, which lie in the pool for good."""
        home = self.homes[next(i for i, one in enumerate(self.own) if one is trial)]
        return _at(trial, home, cuts, factor, lasting=True)

    def drop_reference(self) -> None:
        if self.reference is not None:
            self.reference.close()
            self.reference = None

    def close(self) -> None:
        self.drop_reference()
        self.pool.close()


def _at(
    trial: Trial, offset: int, cuts: tuple[int, ...] = (), factor: float = 1.0, *, lasting: bool = False
) -> Variant:
    """A trial's inputs as they lie one after another from ``offset`` on."""
    specs = []
    for spec in trial.specs:
        specs.append(TensorSpec(spec.dtype, spec.shape, spec.strides, offset, spec.nbytes))
        offset = aligned(offset + spec.nbytes)
    return Variant(tuple(specs), cuts or (0,) * len(specs), factor, lasting)


def open_problem(
    maker: ContestantHandle, problem: Any, config: EvaluationConfig, chance: random.Random, turns: Turns
) -> ProblemSession:
    """Executes a problem in a maker process. ProblemFault when it cannot be used, ServerDied when the server died."""
    out = SharedRegion(_SPARSE, others_read_only=False)
    try:
        return _open(maker, out, problem, config, chance, turns)
    except Misbehaviour as error:
        raise ProblemFault("reference_error", f"{error.reason}: {error.detail}") from None
    finally:
        out.close()


def _open(
    maker: ContestantHandle, out: SharedRegion, problem: Any, config: EvaluationConfig, chance: random.Random,
    turns: Turns,
) -> ProblemSession:  # fmt: skip
    limits, check = config.limits, config.check
    dummy = SharedRegion(1, others_read_only=True)
    maker.ask(
        {"op": "attach", "pool": dummy.size, "out": out.size},
        30.0,
        doing="setting up",
        fds=(dummy.fd, out.fd),
    )
    dummy.close()
    seed = chance.getrandbits(40)
    opened = maker.ask(
        {
            "op": "open", "source": problem.source, "seed": seed, "noise": check.weight_noise, "device":
            config.device,
            "threads": config.threads, "flush_mib": config.timing.l2_flush_mib,
            "gpu_memory_share": limits.gpu_memory_share,
        },
        limits.load_timeout_s, doing="the reference's construction",
    )  # fmt: skip
    static = bytes(out.memory[: opened["bytes"]])
    if opened["stateful"]:
        raise ProblemFault("reference_error", "the reference keeps state between calls: its output is no function")
    wait = max(limits.first_call_timeout_s, limits.call_timeout_s)

    def ask(kind: str, model_seed: int, *, probe: bool) -> dict[str, Any]:
        message = {
            "op": "trial", "kind": kind, "seed": chance.getrandbits(40), "model_seed": model_seed, "probe": probe,
        }  # fmt: skip
        with turns.beside_others():
            return maker.ask(message, wait, doing="the reference's forward")

    def trial(kind: str) -> Trial | None:
        model_seed = chance.getrandbits(31)
        answer = ask(kind, model_seed, probe=False)
        if "skip" in answer:
            return None
        return _trial(kind, answer, out, config, model_seed, stochastic=opened["stochastic"])

    kinds = ["own"] * max(2, check.trials) + list(check.distributions) + ["batch"] * check.shape_trials
    trials: list[Trial] = []
    for number, kind in enumerate(kinds):
        if number >= 2 and kind == "own" and trials[0].input_bytes + trials[0].output_bytes > check.large_mib << 20:
            continue
        made = trial(kind)
        if made is not None and (kind == "own" or _usable(made, trials[0])):
            trials.append(made)
    variation = "jitter"
    own_is_finite = all(e.infinite is None for e in trials[0].expected)
    if not opened["fixed_inputs"]:
        variation = "bank"
        for way in ("rotated", "rotated_floats"):
            found = ask(way, 0, probe=True)
            if found.get("finite", False) or ("finite" in found and not own_is_finite):
                variation = way
                break
    if variation == "bank":  # values come from the problem itself, many different sets of them
        size = max(1, trials[0].input_bytes + trials[0].output_bytes)
        count = max(2, min(32, (config.timing.batch_memory_mib << 20) // size))
        trials += [made for _ in range(count - 2) if (made := trial("own")) is not None]
    maker.ask({"op": "forget"}, 60.0, doing="clearing up")
    own = [t for t in trials if t.kind == "own"]
    slot = max(256, *(t.input_bytes for t in trials))
    start = aligned(opened["bytes"])
    homes = [] if variation == "bank" else [start + i * slot for i in range(len(own))]
    batch = config.timing.batch_memory_mib << 20 if variation == "bank" else 0
    pool = SharedRegion(start + (len(homes) + 1) * slot + batch + (1 << 20), others_read_only=True)
    pool.memory[: len(static)] = static
    session = ProblemSession(
        problem.problem_id, problem.source, config, opened, trials, variation, pool, homes, seed & 0x7FFFFFFF
    )
    for trial_of_its_own, home in zip(own, homes, strict=False):
        session.place(trial_of_its_own, home)
    # A problem that always gives the same inputs is asked about others, or any function of them would look constant.
    asked = [t for t in trials if t.kind != "batch"] if opened["fixed_inputs"] else own
    truths = [[e.truth for e in t.expected] for t in asked]
    session.degenerate = not opened["stochastic"] and independent_of_input(truths)
    if session.degenerate and check.degenerate == "reject":
        pool.close()
        raise ProblemFault("degenerate_input", "the reference's output does not depend on its input")
    return session


def _usable(trial: Trial, own: Trial) -> bool:
    """A variation is a fair question only where the reference gives a finite answer, as it does on its own inputs."""
    if any(e.infinite is not None for e in trial.expected) and not any(e.infinite is not None for e in own.expected):
        return False
    if trial.kind == "batch" and trial.output_bytes == own.output_bytes:
        return all(not e.shape for e in trial.expected)
    return True


def _trial(
    kind: str,
    answer: dict[str, Any],
    out: SharedRegion,
    config: EvaluationConfig,
    model_seed: int,
    *,
    stochastic: bool,
) -> Trial:
    specs = [TensorSpec.from_list(item) for item in answer["inputs"]]
    values = [bytes(out.memory[spec.offset : spec.offset + spec.nbytes]) for spec in specs]

    def read(items: list[Any]) -> list[torch.Tensor]:
        tensors = []
        for item in items:
            spec = TensorSpec.from_list(item)
            tensors.append(view_of_bytes(bytearray(out.memory[spec.offset : spec.offset + spec.nbytes]), spec))
        return tensors

    native = read(answer["native"])
    # Random layers draw other numbers in double precision, so there the native reference is the truth.
    exact = read(answer["exact"]) if answer["exact"] and not stochastic else [None] * len(native)
    expected = [expect(n, e, config.check, config.device) for n, e in zip(native, exact, strict=True)]
    devices = [item[5] for item in answer["native"]]
    return Trial(kind, specs, values, answer["structure"], expected, devices, bool(answer["mutated"]), model_seed)


def load_message(session: ProblemSession, code: str, role: str) -> dict[str, Any]:
    """What a contestant needs to build its model; the same for the reference and for a candidate."""
    config, opened = session.config, session.opened
    return {
        "op": "load", "role": role, "code": code, "device": config.device, "threads": config.threads,
        "flush_mib": config.timing.l2_flush_mib, "gpu_memory_share": config.limits.gpu_memory_share,
        "init": opened["init"], "init_tensors": opened["init_tensors"],
        "state": opened["state"], "arguments": opened["arguments"], "flat": opened["flat"],
        "model_seed": session.model_seed, "against": config.against if role == "reference" else "eager",
    }  # fmt: skip
