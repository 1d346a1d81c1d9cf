"""What goes into a rollout engine and what comes out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cudal1_ray.errors import UserError


@dataclass(frozen=True)
class SamplingParameters:
    """How completions are drawn.

    With `temperature=0` the most likely token is taken and `seed` has no effect. A `seed` makes every completion a
    function of (weights, prompt, seed, request id, index); without one the engine's own random state is used.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, valid, requirement in (
            ("n", self.n >= 1, "at least 1"),
            ("temperature", self.temperature >= 0.0, "0 (greedy) or more"),
            ("top_p", 0.0 < self.top_p <= 1.0, "in (0, 1]"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
        ):
            if not valid:
                raise UserError(f"sampling.{field}={getattr(self, field)}: must be {requirement}")


@dataclass(frozen=True)
class AdapterShape:
    """Low-rank adapters on the linear layers of a policy's blocks (LoRA): y = x W^T + alpha / rank * (x A^T) B^T."""

    rank: int
    alpha: float

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True)
class GenerationRequest:
    """A tokenised prompt of which `SamplingParameters.n` completions are wanted."""

    request_id: str
    prompt_token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Completion:
    """One finished completion.

    Attributes:
        index: which of the `n` completions of its request.
        token_ids: everything sampled, the end-of-sequence token and the tokens of a stop string included.
        logprobs: natural log-probability of each token under the distribution it was drawn from (after temperature
            and top-p; for greedy decoding that of the plain softmax). Same length as `token_ids`.
        text: decoded, without special tokens, cut before the stop string that ended it.
        policy_version: the oldest that produced any of its tokens.
        finish_reason: "stop" (end of sequence or stop string) or "length".
        segments: (tokens, policy version) in order, of a completion that went on over a weight update; empty when all
            tokens are of `policy_version`.
    """

    request_id: str
    index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    policy_version: int
    finish_reason: str
    segments: tuple[tuple[int, int], ...] = ()


def version_segments(cuts: Sequence[tuple[int, int]], tokens: int) -> tuple[tuple[int, int], ...]:
    """Return which policy version wrote which part of a completion.

    Args:
        cuts: (tokens there were, policy version from then on) in order, the first with 0 tokens.
        tokens: number of tokens of the finished completion.

    Returns:
        (tokens, policy version) of each stretch that has any; at least one.
    """
    ends = [*(count for count, _ in cuts[1:]), tokens]
    stretches = [(end - start, version) for (start, version), end in zip(cuts, ends, strict=True)]
    return tuple((length, version) for length, version in stretches if length > 0) or ((0, cuts[-1][1]),)


def derive_seed(seed: int, request_id: str, index: int) -> int:
    """Return a completion's seed of 63 bits, the same for the same three values on any engine and machine."""
    digest = hashlib.sha256(f"{seed}\x1f{request_id}\x1f{index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
