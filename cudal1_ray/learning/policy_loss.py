"""The policy-gradient loss of one micro-batch, put together from `losses` as `AlgorithmConfig` sets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cudal1_ray.learning.algorithm import get_algorithm
from cudal1_ray.learning.config import AlgorithmConfig
from cudal1_ray.learning.losses import (
    aggregate,
    clipped_surrogate,
    kl_k3,
    reinforce_loss,
    sequence_means,
    truncated_importance_weights,
)


@dataclass(frozen=True)
class TokenBatch:
    """The completion tokens of one micro-batch, laid end to end (see `losses`).

    Attributes:
        logprobs: [N], of the policy being trained, with gradient.
        old_logprobs: [N], of the policy as it was at the start of the batch.
        sampling_logprobs: [N], as the rollout engine reported them.
        reference_logprobs: [N], of the reference policy; None when there is no KL term.
        entropies: [N], with gradient where there is an entropy bonus; None when not measured.
        advantages, weights: [S].
        segments: [N].
    """

    logprobs: Tensor
    old_logprobs: Tensor
    sampling_logprobs: Tensor
    reference_logprobs: Tensor | None
    entropies: Tensor | None
    advantages: Tensor
    weights: Tensor
    segments: Tensor

    @property
    def sequences(self) -> int:
        return self.advantages.shape[0]


def token_clip(batch: TokenBatch, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Return the loss of GRPO and its kin: ratio, clip and truncated importance weight per token."""
    loss, clipped = clipped_surrogate(
        batch.logprobs, batch.old_logprobs, batch.advantages[batch.segments], config.clip_low, config.clip_high
    )
    weights = truncated_importance_weights(batch.old_logprobs, batch.sampling_logprobs, config.tis_cap)
    return loss * weights, clipped


def sequence_clip(batch: TokenBatch, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Return GSPO's loss (arXiv 2507.18071, eq. 5): ratio, clip and truncated importance weight per sequence.

    Averaged by "sequences" this is the paper's objective.
    """
    segments, count = batch.segments, batch.sequences
    log_ratio = sequence_means(batch.logprobs - batch.old_logprobs, segments, count)  # eq. 7, of each sequence
    loss, clipped = clipped_surrogate(
        log_ratio, torch.zeros_like(log_ratio), batch.advantages, config.clip_low, config.clip_high
    )
    drift = sequence_means(batch.old_logprobs - batch.sampling_logprobs, segments, count)
    weights = truncated_importance_weights(drift, torch.zeros_like(drift), config.tis_cap)
    return (loss * weights)[segments], clipped[segments]


def reinforce(batch: TokenBatch, config: AlgorithmConfig) -> tuple[Tensor, Tensor]:
    """Return REINFORCE's loss, without ratio and clip; the truncated importance weight corrects for the engine."""
    weights = truncated_importance_weights(batch.old_logprobs, batch.sampling_logprobs, config.tis_cap)
    loss = reinforce_loss(batch.logprobs, batch.advantages[batch.segments])
    return loss * weights, torch.zeros_like(loss, dtype=torch.bool)


SURROGATES: dict[str, Callable[[TokenBatch, AlgorithmConfig], tuple[Tensor, Tensor]]] = {
    "token_clip": token_clip,
    "sequence_clip": sequence_clip,
    "reinforce": reinforce,
}


def policy_loss(batch: TokenBatch, config: AlgorithmConfig, denominator: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Return this micro-batch's share of the batch's loss, and sums over its tokens for the metrics.

    Args:
        denominator: the whole batch's, from `losses.loss_denominator`.

    Returns:
        loss: scalar with gradient.
        sums: scalars without gradient; keys `kl`, `entropy`, `clipped`, `ratio`, `drift` are sums over tokens with a
            non-zero weight, `tokens` is their number, `drift_max` is a maximum.
    """
    losses, clipped = SURROGATES[get_algorithm(config.name).surrogate](batch, config)
    token_weights = batch.weights[batch.segments]
    counted = (token_weights > 0).to(torch.float32)
    sums = {"tokens": counted.sum()}
    if batch.reference_logprobs is not None:
        kl = kl_k3(batch.logprobs, batch.reference_logprobs)
        losses = losses + config.kl_coef * kl
        sums["kl"] = (kl.detach() * counted).sum()
    if batch.entropies is not None:
        if config.entropy_coef > 0:
            losses = losses - config.entropy_coef * batch.entropies
        sums["entropy"] = (batch.entropies.detach() * counted).sum()
    loss = aggregate(losses, batch.weights, batch.segments, batch.sequences, config.loss_normalisation, denominator)
    with torch.no_grad():
        drift = (batch.old_logprobs - batch.sampling_logprobs).abs() * counted
        sums["drift"], sums["drift_max"] = drift.sum(), drift.max()
        sums["clipped"] = (clipped * counted).sum()
        sums["ratio"] = ((batch.logprobs - batch.old_logprobs).exp() * counted).sum()
    return loss, sums
