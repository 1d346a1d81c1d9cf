"""What of the rewards can be configured."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_numbers

TRUNCATED = ("keep", "mask", "penalise")
SCOPES = ("run", "problem")
JUDGES = ("none", "neighbours", "engine", "endpoint")


@dataclass
class EndpointConfig:
    """An OpenAI-compatible server, for the reward checker's judge."""

    # Up to and including the version, as clients want it: http://localhost:8000/v1
    base_url: str = ""
    # Name of the model there.
    model: str = ""
    # Environment variable that holds the API key; null: no key is sent. The key itself belongs into no file.
    api_key_variable: str | None = None
    # Seconds for one question, all attempts together.
    timeout_s: float = bounded(120.0, above=0)
    # Attempts for one question; a server that is busy or down is asked again after a second, then after two.
    attempts: int = bounded(2, least=1)
    # Questions under way at the same time.
    concurrency: int = bounded(4, least=1)

    def validate(self) -> None:
        """Raises UserError naming the first field whose value cannot work."""
        where = "rewards.checker.endpoint"
        if not self.base_url.startswith(("http://", "https://")):
            raise UserError(f"{where}.base_url is {self.base_url!r}: give a URL such as http://localhost:8000/v1")
        if not self.model:
            raise UserError(f"{where}.model is empty: give the name of a model that {self.base_url} serves")
        check_numbers(self, f"{where}.")


@dataclass
class CheckerConfig:
    """The reward checker: the judge of a candidate whose reward jumps, and what follows (CUDA-L1, reward checking)."""

    # none: off. neighbours: no model, the nearest known cases vote. engine: the policy itself, by the run's rollout
    # engine. endpoint: a model behind an OpenAI-compatible server.
    judge: str = "none"
    # A speedup above this is a jump.
    jump_above: float = bounded(3.0, above=0)
    # So is one above this many times the problem's best so far.
    jump_over_best: float = bounded(2.0, above=0)
    # Known cases shown to the judge, or voting. The paper: 3.
    nearest: int = bounded(3, least=1)
    # A Parquet file of cases to start from, for example another run's hack_cases.parquet; null: the one shipped.
    cases: str | None = None
    # Take the judge's word for a hack. Without, its category's own re-check must find something in the code too.
    trust_judge: bool = False
    # neighbours: a hack when hacks have this share of the votes, weighted by similarity.
    vote_threshold: float = bounded(0.5, above=0, most=1)
    # neighbours: no opinion when even the nearest case is less similar than this (cosine, 0 to 1).
    min_similarity: float = bounded(0.1, least=0, most=1)
    # engine, endpoint: tokens of an answer; models that think first need more.
    max_answer_tokens: int = bounded(1024, least=1)
    # engine, endpoint: 0 takes the most likely token.
    temperature: float = 0.0
    # engine, endpoint: reference, candidate and cases are each cut to this many characters.
    max_code_characters: int = bounded(12_000, least=1)
    endpoint: EndpointConfig = field(default_factory=EndpointConfig)

    def validate(self) -> None:
        """Raises UserError naming the first field whose value cannot work."""
        where = "rewards.checker"
        if self.judge not in JUDGES:
            raise UserError(f"{where}.judge is {self.judge!r}: use one of {', '.join(JUDGES)}")
        check_numbers(self, f"{where}.")
        if self.judge == "endpoint":
            self.endpoint.validate()


@dataclass
class RewardsConfig:
    """How a verdict becomes a reward. Source, unless said otherwise: CUDA-L1, arXiv 2507.14111.

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
    # Completions cut at prompting.max_completion_tokens: keep (judged and rewarded like others), mask (not trained on;
    # DAPO, arXiv 2503.14476, overlong filtering), penalise (0.5 below an answer without code).
    truncated: str = "keep"
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
    smoothing_scope: str = "run"
    # Take the median of the measurement's bucket means (evaluation.timing.buckets) for the speedup, and give nothing
    # when they vary too much, as the paper does. Off: the evaluator's own estimate, which it measures until it is sure.
    robust: bool = False
    # robust: an evaluation is void when its bucket means vary by more than this, in speedup squared (2nd).
    max_bucket_variance: float = bounded(0.005, above=0)
    # Checks a candidate whose reward jumps; off unless a judge is named.
    checker: CheckerConfig = field(default_factory=CheckerConfig)

    def validate(self) -> None:
        """Raises UserError naming the first field whose value cannot work."""
        from cudal1_ray.rewards.reward import reward_names  # imports this module

        if self.kind not in reward_names():
            raise UserError(f"rewards.kind is {self.kind!r}: use one of {', '.join(reward_names())}")
        if self.truncated not in TRUNCATED:
            raise UserError(f"rewards.truncated is {self.truncated!r}: use one of {', '.join(TRUNCATED)}")
        if self.smoothing_scope not in SCOPES:
            raise UserError(f"rewards.smoothing_scope is {self.smoothing_scope!r}: use run or problem")
        check_numbers(self, "rewards.")
        self.checker.validate()
