"""What of the rewards can be configured."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.checking.config import CheckerConfig
from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_values, one_of

SCOPES = ("run", "problem")


@dataclass
class RewardsConfig:
    """How a verdict becomes a reward. Source, unless stated otherwise: CUDA-L1, arXiv 2507.14111.

    Figures marked (2nd) come from summaries of the paper, not from its own text.
    """

    # speedup: t_ref / t_candidate (stage 3); log_speedup: ln(1 + speedup); success: 1 or 0 (stage 2); staged: partial
    # credit, then the speed of own kernels (rewards/staged.py); or one added with `register_reward`.
    kind: str = "staged"
    # Decimals to which speedups are rounded toward 1, so that noise near 1 earns nothing; null to leave them.
    round_decimals: int | None = bounded(2, least=0, most=9)
    # Highest speedup that is credited; null for no limit (the paper has none).
    cap: float | None = bounded(None, above=0)
    # staged: a right candidate without an own kernel is worth no more than one that runs, however fast it is.
    own_kernel_required: bool = False
    # Completions cut at prompting.max_completion_tokens: keep (rewarded like others), mask (not trained on;
    # DAPO, arXiv 2503.14476, overlong filtering), penalise (0.5 below an answer without code).
    truncated: str = one_of("keep", "mask", "penalise")
    # Least standard error of log(speedup). Completions of a group whose rewards differ by no more than this, or than
    # the verdicts' intervals, explains are ties. 0.01: 83 of 95 pairs of measurements of one candidate within 2% on
    # an H200 (README); a quick measurement on a CPU has 0.064 (benchmarks/results/recorded-candidates).
    least_noise: float = 0.01
    # Replace r by clip((r - mu) / sigma, -k, k), mu and sigma being running statistics of r (2nd). Off: it erases
    # differences of speed while few candidates succeed (rewards/smoothing.py has the figures).
    smoothing: bool = False
    # k of the smoothing (2nd).
    smoothing_clip: float = bounded(1.5, above=0)
    # Whose statistics: run (all rewards together) or problem (each problem's own).
    smoothing_scope: str = one_of(*SCOPES)
    # Take the median of the measurement's bucket means (evaluation.timing.buckets) for the speedup, and give nothing
    # when they vary too much, as the paper does. Off: the evaluator's own estimate, which it measures until it is sure.
    robust: bool = False
    # robust: an evaluation is void when its bucket means vary by more than this, in speedup squared (2nd): at a speedup
    # of 10 a scatter of 0.7% is too much.
    max_bucket_variance: float = bounded(0.005, above=0)
    # Checks a candidate whose reward jumps; off unless a judge is named.
    checker: CheckerConfig = field(default_factory=CheckerConfig)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "rewards.")
        from cudal1_ray.rewards.reward import reward_names  # imports this module

        if self.kind not in reward_names():
            raise UserError(f"rewards.kind is {self.kind!r}: use one of {', '.join(reward_names())}")
        self.checker.validate()
