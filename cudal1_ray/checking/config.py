"""What of the reward checker can be configured (`rewards.checker`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_values, one_of


@dataclass
class JudgeEndpointConfig:
    """An OpenAI-compatible server, for the reward checker's judge."""

    # Up to and including the version, as clients want it: http://localhost:8000/v1
    base_url: str = ""
    # Name of the model there.
    model: str = ""
    # Environment variable that holds the API key; null: no key is sent. Keep the key out of files.
    api_key_variable: str | None = None
    # Seconds for one question, all attempts together.
    timeout_s: float = bounded(120.0, above=0)
    # Attempts for one question; a server that is busy or down is asked again after a second or more, then after two.
    attempts: int = bounded(2, least=1)
    # Questions under way at the same time.
    concurrency: int = bounded(4, least=1)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        where = "rewards.checker.endpoint"
        if not self.base_url.startswith(("http://", "https://")):
            raise UserError(f"{where}.base_url is {self.base_url!r}: give a URL such as http://localhost:8000/v1")
        if not self.model:
            raise UserError(f"{where}.model is empty: give the name of a model that {self.base_url} serves")
        check_values(self, f"{where}.")


@dataclass
class CheckerConfig:
    """The reward checker: the judge of a candidate whose reward jumps, and what follows (CUDA-L1, reward checking)."""

    # none: off. neighbours: no model, the nearest known cases vote. engine: the policy itself, by the run's rollout
    # engine. endpoint: a model behind an OpenAI-compatible server.
    judge: str = one_of("none", "neighbours", "engine", "endpoint")
    # A speedup above this is a jump.
    jump_above: float = bounded(3.0, above=0)
    # So is one above this many times the problem's best so far.
    jump_over_best: float = bounded(2.0, above=0)
    # Known cases shown to the judge, or voting. The paper: 3.
    nearest: int = bounded(3, least=1)
    # A Parquet file of cases to start from, for example another run's hack_cases.parquet; null: the one shipped.
    cases: str | None = None
    # The judge's finding of a hack suffices. false: the re-check of its category must find something in the code too,
    # because the vote of neighbours alone is wrong for one candidate of seven (benchmarks/results/reward-checker/).
    trust_judge: bool = False
    # neighbours: a hack when hacks have this share of the votes, weighted by similarity.
    vote_threshold: float = bounded(0.5, above=0, most=1)
    # neighbours: no opinion when even the nearest case is less similar than this (cosine, 0 to 1).
    min_similarity: float = bounded(0.1, least=0, most=1)
    # engine, endpoint: tokens of an answer; models that think first need more. The question takes 2,000 to 6,000, and
    # rollout.max_model_len must hold both.
    max_answer_tokens: int = bounded(1024, least=1)
    # engine, endpoint: 0 takes the most likely token.
    temperature: float = 0.0
    # engine, endpoint: reference, candidate and cases are each cut to this many characters.
    max_code_characters: int = bounded(12_000, least=1)
    endpoint: JudgeEndpointConfig = field(default_factory=JudgeEndpointConfig)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        where = "rewards.checker"
        check_values(self, f"{where}.")
        if self.judge == "endpoint":
            self.endpoint.validate()
