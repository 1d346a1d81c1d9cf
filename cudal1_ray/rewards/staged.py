"""The staged reward: partial credit for candidates that fail, none for work that is not done, then speed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cudal1_ray.evaluation.reasons import HACKS

if TYPE_CHECKING:
    from cudal1_ray.evaluation import Verdict
    from cudal1_ray.rewards.config import RewardsConfig

# Rewards of the rungs below a right candidate with a kernel of its own. Their order is what matters: a group in which
# one completion gets further than the others has a variance. Of the 80 groups of 8 in the first ten steps of a run of
# Qwen2.5-Coder-1.5B on level 1 (20% accepted), 96% differ in this reward and 61% in ln(1 + speedup).
PARSES = 0.05
BUILDS = 0.1
RUNS = 0.2
RIGHT_SHAPE = 0.3
# Reward of a right candidate whose own kernels do the work, before its speed.
RIGHT = 0.5
# Share of the reference's time that own kernels must take over to count as doing the work; below it the credit grows
# linearly. Of the 305 accepted kernels of the corpus 85% take over more; a kernel launched beside the library's work
# takes over nothing, and has 0.1% of the device's time itself. (problems/corpus/kernelbench_kernels.parquet and
# benchmarks/results/own-kernels, one H100)
FULL_WORK = 0.2

# Credit where a right candidate launched own kernels whose time could not be had: between none and all.
UNKNOWN_WORK_CREDIT = 0.5

# Refusals of candidates that may be right, for having no kernel of their own.
_WITHOUT_KERNEL = frozenset({"no_op_rewrite", "same_operations", "no_own_kernel"})
_RAN_TO_ITS_END = frozenset({"wrong_structure", "shape_broadcast", "output_device", "output_dtype", "input_mutation"})
_RIGHT_SHAPE = frozenset(
    {
        "wrong_output",
        "nan_comparison",
        "tolerance_exploit",
        "precision_downgrade",
        "partial_compute",
        "init_exploit",
        "shape_overfit",
    }
)
_BUILT = frozenset(
    {
        "runtime_error",
        "crash",
        "timeout",
        "memory_limit",
        "resource_exhaustion",
        "leftover_process",
        "sticky_cuda_error",
    }
)


def staged_reward(verdict: Verdict, speedup: float, config: RewardsConfig) -> float:
    """Return the reward of the rung that a candidate reached.

    | the candidate                                                     | reward                          |
    |-------------------------------------------------------------------|---------------------------------|
    | is not Python, or cheats (`reasons.HACKS`)                        | 0                               |
    | parses, and does not build or is refused by a rule                | 0.05                            |
    | builds, and fails when it runs                                    | 0.1                             |
    | runs, with outputs of another structure, shape, dtype or device   | 0.2                             |
    | has outputs of the right shape, with other values                 | 0.2                             |
    | the same, and an own kernel ran                                   | 0.3                             |
    | is right without an own kernel, or by the reference's operations  | 0.2                             |
    | is right without an own kernel, faster beyond its interval        | 0.2 + ln(1 + low) - ln 2        |
    | is right, and own kernels take over 0.2 of the work or more       | 0.5 + ln(1 + s)                 |
    | is right, and own kernels take over the share w < 0.2 of it       | linear in w between these two   |

    s is the credited speedup, `low` the lower end of its 95% interval, or s where that is lower; w is
    `work_taken_over`. Where w could not be measured, half of the credit is given. Several reasons count as the lowest
    of them. Without the seventh row a policy learns to write the reference again in other words (`x + 0`): right pays
    at once, and nothing it can write pays more. For the same reason the right shape pays more only to a candidate that
    has an own kernel. ln(1 + s) is 0 at s = 0, so that a slow kernel still pays more than a wrong one, which ln(s)
    would turn round.
    With `config.own_kernel_required`, the eighth row is worth as much as the seventh.
    Source: the ladder is this project's; Kevin (arXiv 2507.11948) pays 0.3 for right plus the speedup.
    """
    if not verdict.accepted:
        return min((_rung(reason, verdict.own_kernel) for reason in verdict.reasons), default=0.0)
    without = RUNS
    faster = verdict.speedup_low > 1.0 and not config.own_kernel_required and not verdict.same_operations
    if faster:
        without += math.log1p(min(verdict.speedup_low, speedup)) - math.log(2.0)
    if not verdict.own_kernel or verdict.same_operations:
        return without
    measured = verdict.own_kernel_share > 0.0
    credit = min(1.0, work_taken_over(verdict) / FULL_WORK) if measured else UNKNOWN_WORK_CREDIT
    return without + credit * (RIGHT + math.log1p(speedup) - without)


def work_taken_over(verdict: Verdict) -> float:
    """Return the share of the reference's time that library kernels no longer take: 1 - (1 - h) / low.

    h is the share of the candidate's device time in own kernels, so (1 - h) / s is what its other kernels still take,
    in units of the reference's time. A copy kernel behind the reference's own work has a large h and takes over
    nothing; a fused tail behind a matrix product has an h of 1% and takes over all that the product is not.
    """
    if verdict.speedup_low <= 0.0:
        return 0.0
    return min(1.0, max(0.0, 1.0 - (1.0 - verdict.own_kernel_share) / verdict.speedup_low))


def _rung(reason: str, own_kernel: bool) -> float:
    """Return the reward of a rejection for one reason; a rule's refusal that is not listed here counts as parsed."""
    if reason in _RAN_TO_ITS_END or reason in _WITHOUT_KERNEL:
        return RUNS
    if reason in _RIGHT_SHAPE:
        return RIGHT_SHAPE if own_kernel else RUNS
    if reason in _BUILT:
        return BUILDS
    if reason == "unparsable" or reason in HACKS:
        return 0.0
    return PARSES
