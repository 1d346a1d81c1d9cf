"""The result of evaluating one candidate: the only thing that leaves this package."""

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
    """What one pair of processes, reference and candidate, showed. Pairs that differ by more than their own calls do
    differ by their processes, or by the machine at that time.

    `half_width` is half the width of the 95% interval of the speedup's logarithm; times are medians per call.
    `core_us`: median time of a fixed loop on the core that launched, 0.0 where no core was measured. Not `counted`: the
    pair was left out, since other work was on the device or its core was slow. `device_runtime_ms` and
    `device_reference_ms`: the device's median time of one call; see `Verdict.device_speedup`.
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

    A candidate that only a rule rejected has a `speedup` if it was measured all the same.

    Attributes:
        status: "accepted" or "rejected".
        reasons: names of `cudal1_ray.evaluation.reasons`, empty when accepted.
        detail: what led to a rejection, or to a speedup of exactly 1.0, in one line; else empty.
        speedup: t(reference) / t(candidate), with its 95% confidence interval from `speedup_low` to `speedup_high`;
            all three are 0.0 when the candidate was not timed.
        credited_speedup: the speedup that rewards use; 0.0 unless the candidate was accepted.
        runtime_ms, reference_ms: medians per call, of the candidate and of the reference.
        timed_runs: the candidate's timed calls.
        device, hardware: the device as configured, and its manufacturer's name for it; empty where the candidate
            reached no evaluator.
        evaluation_s: seconds from the start of the evaluation to the verdict.
        candidate_hash: the first 16 hexadecimal digits of the SHA-256 of the candidate's text.
        bucket_speedups: mean speedups of consecutive parts of the measurement, for rewards that want them to agree.
        degenerate: the problem's output is constant or independent of its own inputs, so measurements on it mean
            nothing; summaries leave such verdicts out of their means.
        processes: what each pair of processes showed, in the order measured; for a confirmed speedup, those of the
            measurement that counts.
        device_speedup: the device's own speedup, with every call launched before the device begins it, as when the host
            is ahead. Unlike the other figures it does not depend on the host's pace. It is reported and never credited,
            and 0.0 where it was not measured: on the CPU, and for code that may run several streams at once.
        sandbox: the level of the walls around the candidate, empty where none of its code ran.
        confirmed_on: where a suspiciously high speedup was measured again, "same_device" or "another_device"; empty
            where there was no need.
        remeasured: the speedup of each of those measurements, in order.
        flags: names of `cudal1_ray.evaluation.reasons` for what was seen and the rules in force allow, for accepted and
            rejected candidates; only `same_operations` changes what is credited.
        own_kernel: one plain call on the problem's own inputs launched a kernel that the candidate brings with it
            (Triton, an inline extension, CUDA source compiled at run time), not only operators of torch.
        own_kernel_share: the share of that call's device time (on a CPU: of its wall time) in such kernels, from 0.0 to
            1.0; 0.0 with `own_kernel` set where times were not available. Where no call was observed, `own_kernel` is
            false, this share 0.0 and the flags empty.
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
        """Return whether the candidate is right, and nothing that it does is refused."""
        return self.status == ACCEPTED

    @property
    def kind(self) -> str:
        """Return "" when accepted, else "failure" (it does not work, or is wrong), "policy" (only a rule in force
        refuses it) or "hack" (it would be credited for work that it does not do). See `reasons.kind_of`.
        """
        return "" if self.accepted else kind_of(self.reasons)

    @property
    def same_operations(self) -> bool:
        """Return whether the candidate runs the reference's own operators, in their order, and nothing else. It is then
        credited with exactly 1.0, with an interval of 1.0 to 1.0, since it holds no improvement to measure.
        """
        return "same_operations" in self.flags

    @classmethod
    def rejected(
        cls, problem_id: str, reasons: tuple[str, ...] | list[str] | str, detail: str = "", **fields: Any
    ) -> Verdict:
        """Return a rejection; `reasons` may be one name. No speedup is credited, whatever `fields` holds."""
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
        """Return the verdict that `to_dict` wrote. Unknown keys are ignored and missing ones have their defaults, so
        logs of newer and older versions stay readable.

        Raises:
            msgspec.ValidationError (a ValueError): for a value of another type, and without `problem_id` or `status`.
        """
        return msgspec.convert(data, cls)


def one_line(text: str, limit: int = 400) -> str:
    """Return `text` on one printable line of at most `limit` characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
