"""What of the rewards can be configured."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1_ray.errors import UserError

KINDS = ("speedup", "log_speedup", "success")
SCOPES = ("run", "problem")


@dataclass
class RewardsConfig:
    """How a verdict becomes a reward. Source, unless said otherwise: CUDA-L1, arXiv 2507.14111.

    Figures marked (2nd) come from summaries of the paper, not from its own text.
    """

    # speedup: t_ref / t_candidate (stage 3); log_speedup: its logarithm; success: 1 or 0 (stage 2).
    kind: str = "speedup"
    # Decimals to which speedups are rounded toward 1, so that noise near 1 earns nothing; null to leave them.
    round_decimals: int | None = 2
    # Highest speedup that is credited; null for no limit (the paper has none).
    cap: float | None = None
    # Replace r by clip((r - mu) / sigma, -k, k), mu and sigma being running statistics of r (2nd).
    smoothing: bool = True
    # k of the smoothing (2nd).
    smoothing_clip: float = 1.5
    # Whose statistics: run (all rewards together) or problem (each problem's own).
    smoothing_scope: str = "run"
    # Buckets into which the single-run scores of one evaluation are put (2nd).
    buckets: int = 7
    # An evaluation is discarded when its bucket means vary by more than this (2nd).
    max_bucket_variance: float = 0.005
    # A speedup above this is measured a second time (2nd).
    second_measurement_above: float = 3.0
    # So is one above this many times the problem's best so far (2nd).
    second_measurement_over_best: float = 2.0
    # The two measurements may differ by this fraction of the smaller (2nd).
    second_measurement_tolerance: float = 0.10

    def validate(self) -> None:
        """Raises UserError naming the first field whose value cannot work."""
        if self.kind not in KINDS:
            raise UserError(f"rewards.kind is {self.kind!r}: use one of {', '.join(KINDS)}")
        if self.smoothing_scope not in SCOPES:
            raise UserError(f"rewards.smoothing_scope is {self.smoothing_scope!r}: use run or problem")
        if self.round_decimals is not None and not 0 <= self.round_decimals <= 9:
            raise UserError(f"rewards.round_decimals is {self.round_decimals}: use null, or 0 to 9")
        if self.cap is not None and not self.cap > 0.0:
            raise UserError(f"rewards.cap is {self.cap}: use null, or a speedup above 0")
        if not self.smoothing_clip > 0.0:
            raise UserError(f"rewards.smoothing_clip is {self.smoothing_clip}: it must be above 0")
        if self.buckets < 2:
            raise UserError(f"rewards.buckets is {self.buckets}: it must be 2 or more")
