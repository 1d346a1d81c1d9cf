"""From hidden states to log-probabilities of given tokens, without ever holding the logits of all of them.

Logits are the widest tensor there is: 4096 tokens by a vocabulary of 152 thousand are 2.5 GB in fp32, and a softmax
with its gradient wants four of that. So they are made for some tokens at a time, and once more in the backward pass,
which keeps no more than two numbers per token of the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cudal1_ray.learning.losses import token_entropies, token_logprobs

# Tokens that get logits are rounded up to a multiple of it, for the reason given in `batching.LENGTH_STEP`.
TOKEN_STEP = 128


class LogprobHead(nn.Module):
    """Output matrix, softmax and choice of the target in one module, in chunks.

    It holds the output matrix itself, so that under ZeRO-3 the matrix is gathered once per pass, not once per chunk.

    Args:
        linear: the output matrix, [V, hidden] and perhaps a bias.
        chunk_tokens: most tokens for which logits are made at a time.
        compiled: what follows each chunk's logits is compiled into passes over them in their own precision; else they
            are written down in fp32 up to four times.
    """

    def __init__(self, linear: nn.Linear, chunk_tokens: int, compiled: bool = False):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._chunk = chunk_tokens
        self._steps = tuple(torch.compile(f, dynamic=True) if compiled else f for f in (_score, _slope))

    def forward(
        self, hidden: Tensor, targets: Tensor, temperature: float, entropies: str
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probabilities of `targets`, and entropies, of softmax(logits / temperature).

        Args:
            hidden: [N, hidden]. targets: [N] int64.
            entropies: "none" | "value" | "gradient".

        Returns:
            logprobs: [N] fp32. entropies: [N] fp32, or None.
        """
        tokens = len(targets)
        spare = -tokens % min(TOKEN_STEP, self._chunk)
        hidden, targets = nn.functional.pad(hidden, (0, 0, 0, spare)), nn.functional.pad(targets, (0, spare))
        if len(hidden) <= self._chunk:
            logprobs, entropy = self._at_once(hidden, targets, temperature, entropies)
        else:
            logprobs, entropy = self._in_chunks(hidden, targets, temperature, entropies)
        return logprobs[:tokens], None if entropy is None else entropy[:tokens]

    def _at_once(
        self, hidden: Tensor, targets: Tensor, temperature: float, entropies: str
    ) -> tuple[Tensor, Tensor | None]:
        logits = nn.functional.linear(hidden, self.weight, self.bias)
        logprobs = token_logprobs(logits, targets, temperature)
        if entropies == "none":
            return logprobs, None
        with torch.set_grad_enabled(entropies == "gradient" and torch.is_grad_enabled()):
            return logprobs, token_entropies(logits, temperature)

    def _in_chunks(
        self, hidden: Tensor, targets: Tensor, temperature: float, entropies: str
    ) -> tuple[Tensor, Tensor | None]:
        device = hidden.device.type
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else self.weight.dtype
        with torch.autocast(device, enabled=False):
            logprobs, entropy = _ChunkedLogprobs.apply(
                hidden, self.weight, self.bias, targets, temperature, entropies, self._chunk, dtype, self._steps
            )
        return logprobs, None if entropies == "none" else entropy


class _ChunkedLogprobs(torch.autograd.Function):
    """log p and entropy of N tokens; gradients of hidden states, output matrix and bias by hand.

    With z = logits / temperature, p = softmax(z), H the entropy: d log p_t / d z = 1_t - p, d H / d z = -p (log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        entropies: str,
        chunk: int,
        dtype: torch.dtype,
        steps: tuple[Callable[..., Any], Callable[..., Any]],
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, computed in pieces of `chunk` rows.

        Args:
            dtype: type of the matrix products; the softmax is in fp32.
            steps: `_score` and `_slope`.
        """
        with_entropy, matrix = entropies != "none", weight.to(dtype)
        logprobs = hidden.new_empty(len(hidden), dtype=torch.float32)
        entropy = hidden.new_empty(len(hidden) if with_entropy else 0, dtype=torch.float32)
        for span in _spans(len(hidden), chunk):
            values = steps[0](_logits(hidden[span], matrix, bias), targets[span], temperature, with_entropy)
            logprobs[span] = values[0]
            if with_entropy:
                entropy[span] = values[1]
        ctx.save_for_backward(hidden, weight, bias, targets, entropy)
        ctx.settings = temperature, chunk, dtype, steps[1]
        ctx.entropy_trains = entropies == "gradient"
        if not ctx.entropy_trains:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, by_logprob: Tensor, by_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy = ctx.saved_tensors
        temperature, chunk, dtype, slope = ctx.settings
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        matrix = weight.to(dtype)
        d_hidden = torch.empty_like(hidden) if wants_hidden else None
        # Summed over chunks in fp32, whatever the products are made in.
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if wants_bias else None
        for span in _spans(len(hidden), chunk):
            d_logits = slope(
                _logits(hidden[span], matrix, bias),
                targets[span],
                temperature,
                by_logprob[span] / temperature,
                entropy[span] if ctx.entropy_trains else None,
                by_entropy[span] / temperature if ctx.entropy_trains else None,
            )
            if d_hidden is not None:
                d_hidden[span] = d_logits @ matrix
            if d_weight is not None:
                d_weight += d_logits.T @ hidden[span].to(dtype)
            if d_bias is not None:
                d_bias += d_logits.sum(0, dtype=torch.float32)
        d_weight = None if d_weight is None else d_weight.to(weight.dtype)
        d_bias = None if d_bias is None else d_bias.to(bias.dtype)
        return d_hidden, d_weight, d_bias, None, None, None, None, None, None


def _spans(tokens: int, chunk: int) -> list[slice]:
    return [slice(first, min(first + chunk, tokens)) for first in range(0, tokens, chunk)]


def _logits(hidden: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """Return the logits [n, V] of hidden states [n, hidden], in the precision of the matrix."""
    logits = hidden.to(matrix.dtype) @ matrix.T
    if bias is not None:
        logits += bias
    return logits


def _score(logits: Tensor, targets: Tensor, temperature: float, entropies: bool) -> tuple[Tensor, Tensor | None]:
    """Return the log-probability [n] of each target [n] under logits [n, V], and the entropy [n] if wanted; fp32."""
    logprobs = _all_logprobs(logits, temperature)
    chosen = logprobs.gather(1, targets[:, None])[:, 0]
    return chosen, -logprobs.exp().mul_(logprobs).sum(-1) if entropies else None


def _slope(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    by_logprob: Tensor,
    entropy: Tensor | None,
    by_entropy: Tensor | None,
) -> Tensor:
    """Return the gradient by the logits [n, V], in their precision; the arguments but the first are [n] or numbers."""
    logprobs = _all_logprobs(logits, temperature)
    slope = by_logprob[:, None]
    if entropy is not None and by_entropy is not None:
        slope = slope + by_entropy[:, None] * (logprobs + entropy[:, None])
    if torch.compiler.is_compiling():  # in the same pass; a scatter would want all in fp32 once more
        hit = torch.arange(logits.shape[1], device=logits.device)[None] == targets[:, None]
        return (torch.where(hit, by_logprob[:, None], 0.0) - slope * logprobs.exp()).to(logits.dtype)
    return logprobs.exp_().mul_(-slope).scatter_add_(1, targets[:, None], by_logprob[:, None]).to(logits.dtype)


def _all_logprobs(logits: Tensor, temperature: float) -> Tensor:
    if temperature != 1.0:
        return torch.log_softmax(logits.float() / temperature, -1)
    return torch.log_softmax(logits, -1, dtype=torch.float32)
