"""Drawing tokens from logits with one random number per token."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def uniforms(
    rows: int, generators: Mapping[int, torch.Generator], fallback: torch.Generator | None = None
) -> torch.Tensor:
    """Return one number in [0, 1) per row, float64 [rows]: from the row's own generator where it has one."""
    if len(generators) < rows:
        numbers = torch.rand(rows, dtype=torch.float64, generator=fallback)
    else:
        numbers = torch.empty(rows, dtype=torch.float64)
    for row, generator in generators.items():
        numbers[row].uniform_(generator=generator)
    return numbers


def draw(probabilities: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Sample by inverting the cumulative distribution.

    It takes one random number per row instead of one per vocabulary entry: seeding every completion on its own costs
    next to nothing, where the usual exponential race fills a [rows, vocabulary] matrix of noise per step.

    Args:
        probabilities: [rows, vocabulary], non-negative; rows need not sum to exactly 1.
        numbers: [rows], float64 in [0, 1).

    Returns:
        Token ids, int64 [rows], never one of probability 0.
    """
    cumulative = probabilities.double().cumsum(dim=-1)
    targets = numbers.to(cumulative.device).unsqueeze(-1) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, targets, right=True).squeeze(-1)
    return tokens.clamp_(max=probabilities.shape[-1] - 1)


def mask_top_p(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return logits [rows, vocabulary] with all outside the smallest set of mass `top_p` at minus infinity."""
    if top_p >= 1.0:
        return logits
    ordered, order = logits.sort(dim=-1)
    outside = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1.0 - top_p
    outside[:, -1] = False  # the most likely token always stays
    return logits.masked_fill(outside.scatter(-1, order, outside), float("-inf"))
