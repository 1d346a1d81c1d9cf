"""The reward of one verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Protocol

from cudal1_ray.rewards.config import RewardsConfig
from cudal1_ray.rewards.robust import score_of_buckets


class Judged(Protocol):
    """What a reward needs of a verdict."""

    @property
    def status(self) -> str:
        """ "accepted" or "rejected"."""

    @property
    def credited_speedup(self) -> float:
        """t(reference) / t(candidate) of an accepted candidate, else 0.0."""

    @property
    def bucket_speedups(self) -> Sequence[float]:
        """Mean speedups of consecutive parts of the measurement; empty when there were too few runs for parts."""


def verdict_reward(verdict: Judged, config: RewardsConfig) -> float | None:
    """The reward before smoothing; 0.0 for every rejected candidate, and positive for every accepted one. None: the
    evaluation is void, and nothing is to be learnt from it.

    With `config.robust`, s is the median of the verdict's bucket means; where these vary by more than
    `config.max_bucket_variance`, or there were too few runs for buckets, an accepted candidate's evaluation is void.

    Of the credited speedup s, rounded toward 1 and then capped as configured:
        speedup      r = s            (CUDA-L1, r = t_ref / t_candidate)
        log_speedup  r = ln(1 + s)    (0 at s = 0, so a slow accepted candidate still beats a rejected one,
                                       which ln(s) would turn round below s = 1)
        success      r = 1            (CUDA-L1, stage 2)
    Raises UserError when the configuration cannot work, ValueError for an accepted verdict without a speedup.
    """
    config.validate()
    if verdict.status != "accepted":
        return 0.0
    if config.kind == "success":
        return 1.0
    speedup = verdict.credited_speedup
    if not (math.isfinite(speedup) and speedup > 0.0):
        raise ValueError(f"an accepted verdict has the credited speedup {speedup}: it must be finite and above 0")
    if config.robust:
        if len(verdict.bucket_speedups) < 2:
            return None
        score = score_of_buckets(verdict.bucket_speedups, max_variance=config.max_bucket_variance)
        if score.speedup is None:
            return None
        speedup = score.speedup
    if config.round_decimals is not None:
        speedup = round_toward_one(speedup, config.round_decimals)
    if config.cap is not None:
        speedup = min(speedup, config.cap)
    return math.log1p(speedup) if config.kind == "log_speedup" else speedup


def round_toward_one(speedup: float, decimals: int = 2) -> float:
    """The speedup rounded to so many decimals, down when above 1, up when below: 1.118 -> 1.11, 0.992 -> 1.0.

    So the rounded value never lies on the other side of 1, and a change below one unit of the last decimal
    around 1 counts as none. The rule is applied to the decimal number of 12 significant digits nearest to the
    speedup, far more than any measurement has: 1.13 stays 1.13, and 3.3 / 3.0 gives 1.1, although in binary
    both are a little smaller. Rounding twice changes nothing.
    Source: CUDA-L1, reward rounding. Raises ValueError unless the speedup is finite and not negative.
    """
    if not (math.isfinite(speedup) and speedup >= 0.0):
        raise ValueError(f"speedup is {speedup}: it must be finite and not negative")
    exact = Decimal(f"{speedup:.12g}")
    mode = ROUND_FLOOR if exact > 1 else ROUND_CEILING
    return float(exact.scaleb(decimals).to_integral_value(mode).scaleb(-decimals))
