"""What the referee concludes from an observed call: whether it is the reference's own work, and own kernels' share."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from cudal1_ray.evaluation.exchange.messages import COARSER, Observe, Observed, Profile
from cudal1_ray.evaluation.host.handles import Misbehaviour, NoAnswer
from cudal1_ray.evaluation.host.timed_contestant import TimedContestant
from cudal1_ray.evaluation.rules import Compilers, OwnKernel, RulesConfig, SameOperations, Tf32

# Most names of own kernels in an observation.
_MOST_NAMES = 8
# Seconds for one call under a dispatch mode and one without, beyond their own time.
_LONGEST_S = 60.0
# Bytes of a call's inputs above which a GPU holds them only once.
_ONE_SET = 1 << 30
# A source without any of these words contains no kernel that a profile could show.
_BRINGS_KERNELS = re.compile(
    r"triton|cpp_extension|load_inline|_compile_kernel|nvrtc|cupy|numba|cutlass|cute|tilelang|ctypes|dlopen|cuda\.core"
)
# Kernels of torch, of Inductor and of NVIDIA's libraries, and copies. (From profiles of torch 2.11.)
_NOT_OWN = re.compile(
    r"\bat::|\bc10::|\bcub::|\bthrust::|cutlass|cublas|cudnn|cufft|cusparse|cusolver|magma|nccl|nvjet|xmma|"
    r"gemm|gemv|splitK|implicit_convolve|winograd|dgrad|wgrad|nhwc|nchw|flash_fwd|fmha|vectorized_|elementwise_kernel|"
    r"^triton_(poi|red|per|tem|mm|for|unk|split)_|^(Memcpy|Memset)|^\[?memcpy|^\[?memset",
    re.IGNORECASE,
)


class SameOperationsSeen(Exception):
    """The candidate runs the reference's own operators, and is credited with 1.0 without a measurement."""


@dataclass(frozen=True)
class Observation:
    """One plain call of a model on the problem's own inputs. `operations`: a hash of the operators that ran, empty
    where they could not be followed. `own`: names of kernels that the code contains; `own_share`: their share of the
    call's time. `compiled`: a whole-graph compiler did some of the work.
    """

    operations: str = ""
    own: tuple[str, ...] = ()
    own_share: float = 0.0
    compiled: bool = False
    coarser: tuple[str, ...] = ()  # switches that it set to something less exact, names of `messages.COARSER`
    timed: bool = True  # all own kernels that were seen were timed

    def is_same(self, reference: Observation) -> bool:
        """Return whether it runs the operators of `reference` and nothing else; False if either was not followed."""
        plain = not (self.own or self.compiled) or (self.own, self.compiled) == (reference.own, reference.compiled)
        return plain and bool(self.operations) and self.operations == reference.operations

    @property
    def flags(self) -> tuple[str, ...]:
        findings = (("whole_graph_compiler", self.compiled), ("global_state_tamper", bool(self.coarser)))
        return tuple(name for name, flagged in findings if flagged)


def observe(contestant: TimedContestant) -> Observation:
    """Watch two plain calls on the problem's own inputs; raise Misbehaviour for a failure, or for a forged answer."""
    calls = 1 if contestant.session.own[0].input_bytes > _ONE_SET else 2  # large inputs serve both calls
    _prepare(contestant, calls)
    answer: Observed = contestant.ask(Observe(), _LONGEST_S + 2 * contestant.call_limit_s, "forward")
    if not answer.own_s <= answer.call_s:
        raise NoAnswer("more time in its own kernels than in all")
    own = tuple(name[:100] for name in answer.own[:_MOST_NAMES])
    share = answer.own_s / answer.call_s if answer.call_s > 0 and answer.timed else 0.0
    coarser = tuple(name for name in answer.changed if name in COARSER)
    return Observation(answer.operations, own, share, answer.compiled, coarser, answer.timed)


def profile(contestant: TimedContestant, observation: Observation, code: str) -> Observation:
    """Return `observation` with the share of a GPU's time that the code's own kernels take; timing is useless after it.

    Unchanged where `observe` has timed them, where the source has none, and where no profile is available. CUPTI takes
    3.7 s to start (one H100), so only graphs, and kernels that reach the device in ways that `observe` does not watch,
    are profiled.
    """
    if contestant.config.device == "cpu" or (observation.own and observation.timed):
        return observation
    if not (observation.own or _BRINGS_KERNELS.search(code)):
        return observation
    _prepare(contestant, 1)
    try:
        times = dict(contestant.ask(Profile(), _LONGEST_S + contestant.call_limit_s, "forward"))
    except Misbehaviour:
        return observation
    total = sum(times.values())
    if not 0 < total < math.inf:
        return observation
    own = {name: us for name, us in times.items() if is_own_kernel(name, code, contestant.session.source)}
    return replace(observation, own=tuple(sorted({*observation.own, *own})), own_share=sum(own.values()) / total)


def _prepare(contestant: TimedContestant, calls: int) -> None:
    session = contestant.session
    variant = session.ask(session.own[0])
    contestant.prepare([variant] * calls, [1] * calls if session.traits.stochastic else None, reuse=True)


def is_own_kernel(name: str, code: str, reference: str) -> bool:
    """Return whether a kernel is the code's own: defined there, or not in torch, its libraries or the reference."""
    plain = name.replace("(anonymous namespace)::", "")
    words = re.split(r"[<(]", plain)[0].split("::")[-1].split()
    base = re.escape(words[-1]) if words else ""
    if not base:
        return False
    defines = re.compile(rf"(\bdef|__global__[^;{{}}=]*?)\s+{base}\s*\(")
    if defines.search(code):
        return not defines.search(reference)
    return not _NOT_OWN.search(name) and not re.search(rf"\b{base}\b", reference)


def refuse_by_rules(
    observation: Observation, reference: Observation, rules: RulesConfig, against: str, *, last: bool
) -> None:
    """Raise Misbehaviour for what a rule refuses in an observed call, and SameOperationsSeen for a call that needs no
    measurement. `last`: nothing more will be known of own kernels.
    """
    if rules.compilers is Compilers.refuse and observation.compiled:
        raise Misbehaviour("whole_graph_compiler", "torch.compile or torch.jit does some of the work")
    if rules.tf32 is Tf32.as_reference and (more := set(observation.coarser) - set(reference.coarser)):
        raise Misbehaviour("global_state_tamper", f"the candidate changed global state: {', '.join(sorted(more))}")
    if rules.own_kernel is OwnKernel.required and last and not observation.own:
        raise Misbehaviour("no_own_kernel", "only operators of torch run: no Triton kernel, no extension of its own")
    if observation.is_same(reference) and rules.same_operations is not SameOperations.measure:
        detail = "it runs the reference's own operators, in their order, and nothing else"
        if rules.same_operations is SameOperations.reject:
            raise Misbehaviour("same_operations", detail)
        if against == "eager":  # the reference under any other baseline runs something else
            raise SameOperationsSeen(detail)


def fields_of(observation: Observation | None, reference: Observation | None) -> dict[str, Any]:
    """Return the fields of a verdict that an observation fills."""
    if observation is None:
        return {}
    same = reference is not None and observation.is_same(reference)
    flags = (*observation.flags, *(("same_operations",) if same else ()))
    return {"flags": flags, "own_kernel": bool(observation.own), "own_kernel_share": round(observation.own_share, 4)}
