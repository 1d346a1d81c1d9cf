"""Losses of supervised and of policy-gradient training, as pure functions of tensors.

Shapes: the completion tokens of a batch are laid end to end, so a per-token value is `[N]` and no mask is needed.
`segments` `[N]` (int64) is the index of a token's sequence among the `S`; a per-sequence value is `[S]`.
All losses are to be minimised. Logarithms are natural.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_logprobs(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the log-probability of each target under softmax(logits / temperature).

    Args:
        logits: [N, V], any floating dtype; computed with in fp32.
        targets: [N] int64.

    Returns:
        [N] fp32.
    """
    logits = logits.float() if temperature == 1.0 else logits.float() / temperature
    return -torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def token_entropies(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the entropy, in nats, of softmax(logits / temperature): [N, V] -> [N] fp32."""
    logprobs = torch.log_softmax(logits.float() if temperature == 1.0 else logits.float() / temperature, dim=-1)
    return -(logprobs.exp() * logprobs).sum(-1)


def sequence_means(values: Tensor, segments: Tensor, sequences: int) -> Tensor:
    """Return the mean over the tokens of each sequence: [N] -> [S]; 0 for a sequence without tokens."""
    sums = values.new_zeros(sequences).index_add(0, segments, values)
    counts = values.new_zeros(sequences).index_add(0, segments, torch.ones_like(values))
    return sums / counts.clamp(min=1)


def sft_loss(logprobs: Tensor) -> Tensor:
    """Return the negative log-likelihood per token: [N] -> [N]."""
    return -logprobs


def reinforce_loss(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """Return -A log p, REINFORCE (Williams 1992; CUDA-L1's stage 2, arXiv 2507.14111, section 2.2). [N], [N] -> [N]."""
    return -advantages * logprobs


def clipped_surrogate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Return PPO's clipped surrogate per token: -min(w A, clip(w, 1 - clip_low, 1 + clip_high) A).

    w = exp(logprobs - old_logprobs). Source: GRPO, arXiv 2402.03300, eq. 3; unequal bounds: DAPO, 2503.14476, eq. 10.

    Args:
        logprobs, old_logprobs, advantages: [N]; of the policy now, of the policy at the start of the batch.

    Returns:
        loss [N]; clipped [N] bool: where the clip is active, so that the token has no gradient.
    """
    ratio = (logprobs - old_logprobs).exp()
    free = ratio * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return -torch.minimum(free, bounded), (bounded < free).detach()


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Return exp(d) - d - 1, d = ref - policy: Schulman's k3 estimate of KL(policy || reference) at samples. [N].

    It is unbiased and never negative (joschu.net/blog/kl-approx.html; GRPO: arXiv 2402.03300, eq. 4).
    """
    difference = reference_logprobs - logprobs
    return torch.expm1(difference) - difference


def truncated_importance_weights(learner_logprobs: Tensor, sampling_logprobs: Tensor, cap: float) -> Tensor:
    """Return min(p_learner / p_engine, cap), which corrects for the engine's own sampling distribution. [N].

    Truncated importance sampling (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training"; truncation: Ionides 2008). `cap` 0 gives weights of 1. Never carries a gradient.
    """
    if cap <= 0:
        return torch.ones_like(learner_logprobs)
    return (learner_logprobs - sampling_logprobs).detach().exp().clamp(max=cap)


def aggregate(
    losses: Tensor, weights: Tensor, segments: Tensor, sequences: int, normalisation: str, denominator: float
) -> Tensor:
    """Return this micro-batch's share of the batch's loss; shares add up, however the batch was cut or spread.

    Args:
        losses: [N] per token.
        weights: [S] per sequence.
        segments: [N].
        normalisation: "tokens" (DAPO, arXiv 2503.14476, eq. 8) | "sequences" (GRPO, arXiv 2402.03300, eq. 3)
            | "constant" (Dr. GRPO, arXiv 2503.20783, section 3.2).
        denominator: the *whole* batch's, from `loss_denominator`.

    Returns:
        scalar.
    """
    if normalisation == "sequences":
        return (sequence_means(losses, segments, sequences) * weights).sum() / denominator
    return (losses * weights[segments]).sum() / denominator


def loss_denominator(lengths: list[int], weights: list[float], normalisation: str, constant_tokens: int = 1) -> float:
    """Return what the summed loss of a whole batch is divided by: weighted tokens, sequences, or sequences x constant.

    Args:
        lengths: tokens of each completion of the whole batch, over all ranks and micro-batches.
        weights: weight of each sequence.
    """
    if normalisation == "tokens":
        total = sum(length * weight for length, weight in zip(lengths, weights, strict=True))
    else:
        total = sum(weights) * (constant_tokens if normalisation == "constant" else 1)
    return float(total) or 1.0
