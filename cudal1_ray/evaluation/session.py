"""One problem as the referee holds it: trials with their expected outputs, the pool of inputs, the timed reference."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from .channel import SharedRegion
from .comparison import Expected, expect, independent_of_input
from .config import EvaluationConfig
from .contestants import ContestantHandle, ForkServer, Misbehaviour
from .tensors import TensorSpec, aligned, view_of_bytes

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
        return sum(aligned(e.native.numel() * e.native.element_size()) for e in self.expected)


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
    model_seed: int
    reference: Any = None  # TimedContestant, kept while the fork server lives
    reference_ms: float = 0.0
    reference_aliases: bool = False
    solo_ms: float = 0.0
    overhead_s: float = 0.0

    @property
    def static_bytes(self) -> int:
        """Where the inputs begin: weights and constructor arguments lie before."""
        return aligned(self.opened["bytes"])

    @property
    def own(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.kind == "own"]

    @property
    def out_bytes(self) -> int:
        """Room that a right answer of any trial needs, and the inputs after it."""
        return max(trial.input_bytes + 2 * trial.output_bytes for trial in self.trials) + 4096

    def place(self, trial: Trial, offset: int) -> list[list[Any]]:
        """Writes a trial's inputs to the pool at ``offset``; their descriptions for a contestant."""
        described = []
        for spec, data in zip(trial.specs, trial.values, strict=True):
            self.pool.memory[offset : offset + spec.nbytes] = data
            described.append(TensorSpec(spec.dtype, spec.shape, spec.strides, offset, spec.nbytes).to_list())
            offset = aligned(offset + spec.nbytes)
        return described

    def write_new_inputs(self, offset: int, chance: random.Random) -> None:
        """A timed call's inputs at ``offset``: values that no call before had."""
        trial = chance.choice(self.own)
        for spec, data in zip(trial.specs, trial.values, strict=True):
            self._write_new(spec, data, offset, chance)
            offset = aligned(offset + spec.nbytes)

    def _write_new(self, spec: TensorSpec, data: bytes, offset: int, chance: random.Random) -> None:
        memory, n = self.pool.memory, spec.nbytes
        floating = "float" in spec.dtype
        item = n // max(1, _elements(spec))
        if n <= item or spec.strides or self.variation == "bank":
            memory[offset : offset + n] = data
        elif self.variation == "rotated" or (self.variation == "rotated_floats" and floating):
            cut = chance.randrange(1, n // item) * item
            view = memoryview(data)
            memory[offset : offset + n - cut] = view[cut:]
            memory[offset + n - cut : offset + n] = view[:cut]
        elif self.variation == "jitter" and floating:
            values = view_of_bytes(bytearray(data), spec) * (0.5 + chance.random())
            memory[offset : offset + n] = values.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        else:
            memory[offset : offset + n] = data

    def close(self) -> None:
        if self.reference is not None:
            self.reference.close()
            self.reference = None
        self.pool.close()


def _elements(spec: TensorSpec) -> int:
    count = 1
    for size in spec.shape:
        count *= size
    return count


def open_problem(server: ForkServer, problem: Any, config: EvaluationConfig, chance: random.Random) -> ProblemSession:
    """Executes a problem in a maker process. ProblemFault when it cannot be used, ServerDied when the server died."""
    out = SharedRegion(_SPARSE, others_read_only=False)
    maker = server.spawn(role="maker", cores=[])
    try:
        return _open(maker, out, problem, config, chance)
    except Misbehaviour as error:
        raise ProblemFault("reference_error", f"{error.reason}: {error.detail}") from None
    finally:
        maker.close()
        out.close()


def _open(
    maker: ContestantHandle, out: SharedRegion, problem: Any, config: EvaluationConfig, chance: random.Random
) -> ProblemSession:
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
            "threads": config.threads,
        },
        limits.load_timeout_s, doing="the reference's construction",
    )  # fmt: skip
    static = bytes(out.memory[: opened["bytes"]])
    if opened["stateful"]:
        raise ProblemFault("reference_error", "the reference keeps state between calls: its output is no function")
    wait = max(limits.first_call_timeout_s, limits.call_timeout_s)

    def trial(kind: str) -> Trial | None:
        model_seed = chance.getrandbits(31)
        message = {"op": "trial", "kind": kind, "seed": chance.getrandbits(40), "model_seed": model_seed}
        answer = maker.ask(message, wait, doing="the reference's forward")
        if "skip" in answer:
            return None
        return _trial(kind, answer, out, config, model_seed, stochastic=opened["stochastic"])

    kinds = ["own"] * max(2, check.trials) + list(check.distributions) + ["batch"] * check.shape_trials
    trials: list[Trial] = []
    for kind in kinds:
        made = trial(kind)
        if made is not None and (kind == "own" or _usable(made, trials[0])):
            trials.append(made)
    variation = "jitter"
    if not opened["fixed_inputs"]:
        variation = "bank"
        for way in ("rotated", "rotated_floats"):
            made = trial(way)
            if made is not None and _usable(made, trials[0]):
                variation = way
                break
    if variation == "bank":  # values come from the problem itself, many different sets of them
        size = max(1, trials[0].input_bytes + trials[0].output_bytes)
        count = max(2, min(32, (config.timing.batch_memory_mib << 20) // size))
        trials += [made for _ in range(count - 2) if (made := trial("own")) is not None]
    room = aligned(opened["bytes"]) + max(t.input_bytes for t in trials)
    pool = SharedRegion(room + (config.timing.batch_memory_mib << 20) + (1 << 20), others_read_only=True)
    pool.memory[: len(static)] = static
    session = ProblemSession(
        problem.problem_id, problem.source, config, opened, trials, variation, pool, seed & 0x7FFFFFFF
    )
    truths = [[e.truth for e in t.expected] for t in trials if t.kind != "batch"]
    if check.degenerate == "reject" and not opened["stochastic"] and independent_of_input(truths):
        pool.close()
        raise ProblemFault("degenerate_input", "the reference's output does not depend on its input")
    return session


def _usable(trial: Trial, own: Trial) -> bool:
    """A variation is a fair question only where the reference gives a finite answer, as it does on its own inputs."""
    if any(e.infinite is not None for e in trial.expected) and not any(e.infinite is not None for e in own.expected):
        return False
    if trial.kind == "batch" and trial.output_bytes == own.output_bytes:
        return all(e.native.dim() == 0 for e in trial.expected)
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
    expected = [expect(n, e, config.check) for n, e in zip(native, exact, strict=True)]
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
