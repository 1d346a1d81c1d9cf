"""What an evaluation says about one candidate: the only thing that leaves this package."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from cudal1_ray.evaluation.reasons import kind_of

ACCEPTED = "accepted"
REJECTED = "rejected"


def candidate_hash(code: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of the candidate's text."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class ProcessPair:
    """What one pair of processes, of the reference and of the candidate, showed: where pairs differ by more than their
    own calls do, it is the process, or the machine at that time, that does.

    `speedup` with half the width of its logarithm's 95% interval, medians per call, and `core_us`: what a fixed
    loop took on the core that launched, at the median, 0.0 where no core was looked at. Not `counted`: the pair
    was left out, since others were at work on the device or its core was slow. `device_runtime_ms` and
    `device_reference_ms`: what one call takes the device, at the median; see `Verdict.device_speedup`.
    """

    speedup: float
    half_width: float
    runtime_ms: float
    reference_ms: float
    core_us: float = 0.0
    counted: bool = True
    device_runtime_ms: float = 0.0
    device_reference_ms: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The result of evaluating one candidate for one problem.

    A rejected candidate has a `speedup` where a rule alone stood in the way and it was measured all the same.

    Attributes:
        reasons: names of `cudal1_ray.evaluation.reasons`, empty when accepted.
        speedup: t(reference) / t(candidate), with its 95% confidence interval from `speedup_low` to `speedup_high`;
            all three are 0.0 when the candidate was not timed.
        credited_speedup: of an accepted candidate, 0.0 otherwise: rewards use this one.
        runtime_ms, reference_ms: medians per call.
        timed_runs: the candidate's timed calls.
        device, hardware: the device as configured, and its name as its maker has it; empty where the candidate reached
            no evaluator.
        bucket_speedups: mean speedups of consecutive parts of the measurement, for rewards that want them to agree.
        degenerate: the problem's output is constant or independent of its own inputs, so nothing that is measured on it
            means anything; summaries leave such verdicts out of their means.
        processes: what each pair of processes showed, in the order measured; of a speedup that had to be confirmed,
            those of the measurement that counts.
        device_speedup: what the device alone shows, where every call is launched before its turn comes, as calls are
            that follow one another while the host is ahead. It does not depend on the host's pace, as the other figures
            do. It is reported and never credited, and 0.0 where it was not measured: on the CPU, and of code that may
            run several streams at once.
        sandbox: the level of the walls around the candidate, empty where nothing of it ran.
        confirmed_on: where a speedup too high to be believed at once was measured again, "same_device" or
            "another_device"; empty where there was no need.
        remeasured: what each of its measurements showed then, in their order.
        flags: names of `cudal1_ray.evaluation.reasons` for what was seen and is allowed by the rules in force, of
            accepted and of rejected candidates; only `same_operations` changes what is credited.
        own_kernel: one plain call on the problem's own inputs launched a kernel that the candidate brings with it
            (Triton, an inline extension, CUDA source compiled at run time), not only operators of torch.
        own_kernel_share: the share of that call's device time (on a CPU: of its wall time) in such kernels, from 0.0 to
            1.0; 0.0 with `own_kernel` set where times could not be had. The two and the flags are false, 0.0 and
            empty where no call was observed.
    """

    problem_id: str
    status: str
    reasons: tuple[str, ...] = ()
    detail: str = ""
    speedup: float = 0.0
    speedup_low: float = 0.0
    speedup_high: float = 0.0
    credited_speedup: float = 0.0
    runtime_ms: float = 0.0
    reference_ms: float = 0.0
    timed_runs: int = 0
    device: str = ""
    evaluation_s: float = 0.0
    candidate_hash: str = ""
    bucket_speedups: tuple[float, ...] = ()
    degenerate: bool = False
    processes: tuple[ProcessPair, ...] = ()
    device_speedup: float = 0.0
    hardware: str = ""
    sandbox: str = ""
    confirmed_on: str = ""
    remeasured: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()
    own_kernel: bool = False
    own_kernel_share: float = 0.0

    @property
    def accepted(self) -> bool:
        return self.status == ACCEPTED

    @property
    def kind(self) -> str:
        """Return "" when accepted; else "failure" (it does not work, or is wrong), "policy" (a rule in force refuses
        it, another setting would not) or "hack" (it would be credited for what it does not do). See
        `reasons.kind_of`.
        """
        return "" if self.accepted else kind_of(self.reasons)

    @property
    def same_operations(self) -> bool:
        """Return whether it runs the reference's own operators, in their order, and nothing else. It is credited with
        exactly 1.0 then, with an interval of 1.0 to 1.0: there is no improvement in it that could be measured.
        """
        return "same_operations" in self.flags

    @classmethod
    def rejected(
        cls, problem_id: str, reasons: tuple[str, ...] | list[str] | str, detail: str = "", **fields: Any
    ) -> Verdict:
        """Return a rejection; `reasons` may be one name. No speedup is ever credited, whatever `fields` says."""
        names = (reasons,) if isinstance(reasons, str) else tuple(reasons)
        fields.pop("credited_speedup", None)
        return cls(problem_id, REJECTED, names, one_line(detail), credited_speedup=0.0, **fields)

    @classmethod
    def unparsable(cls, problem_id: str, detail: str) -> Verdict:
        """Return the rejection of a completion that holds no candidate; `detail` names what is missing."""
        return cls.rejected(problem_id, "unparsable", detail)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types only, ready for JSON; `kind` is added for readers of the file."""
        fields = {**dataclasses.asdict(self), "kind": self.kind}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """Return the verdict that `to_dict` wrote; unknown keys are ignored and missing ones have their defaults, so
        logs of newer and of older versions stay readable.
        """
        return msgspec.convert(data, cls)


def one_line(text: str, limit: int = 400) -> str:
    """Return `text` on one printable line of at most `limit` characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
