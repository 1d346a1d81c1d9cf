"""Log-probabilities in chunks: the same values and gradients as all at once, and never all logits in memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cudal1_ray.learning.logprob_head import LogprobHead

TOKENS, HIDDEN, WORDS = 37, 16, 90


def run(
    chunk: int,
    entropies: str,
    temperature: float,
    bias: bool,
    frozen: bool = False,
    autocast: bool = False,
    compiled: bool = False,
):
    """Return outputs and gradients of a head, the same random one every time."""
    torch.manual_seed(0)
    linear = nn.Linear(HIDDEN, WORDS, bias=bias).requires_grad_(not frozen)
    hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    targets = torch.randint(0, WORDS, (TOKENS,))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logprobs, entropy = LogprobHead(linear, chunk, compiled)(hidden, targets, temperature, entropies)
    loss = (logprobs * torch.linspace(-1, 2, TOKENS)).sum()
    if entropies == "gradient":
        loss = loss + (entropy * torch.linspace(1, -0.5, TOKENS)).sum()
    loss.backward()
    return logprobs, entropy, hidden.grad, linear.weight.grad, linear.bias.grad if bias else None


@pytest.mark.parametrize("entropies", ["none", "value", "gradient"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("bias", [False, True])
def test_logprobs_when_computed_in_chunks_are_those_of_all_at_once(entropies, temperature, bias):
    expected = run(4096, entropies, temperature, bias)
    for chunk in (1, 10, 37):
        for ours, theirs in zip(run(chunk, entropies, temperature, bias), expected, strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_matrix_when_frozen_gets_no_gradient():
    expected, ours = (run(chunk, "none", 1.0, False, frozen=True) for chunk in (4096, 8))
    torch.testing.assert_close(ours[2], expected[2], rtol=1e-5, atol=1e-5)
    assert ours[3] is None


def test_softmax_when_inputs_are_bfloat16_is_fp32():
    expected, ours = (run(chunk, "value", 1.0, False, autocast=True) for chunk in (4096, 8))
    assert ours[0].dtype == ours[1].dtype == torch.float32
    torch.testing.assert_close(ours[0], expected[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(ours[3], expected[3], rtol=0.02, atol=0.05)


@pytest.mark.long
@pytest.mark.parametrize("entropies", ["none", "gradient"])
def test_chunks_when_compiled_compute_the_same(entropies):
    expected = run(10, entropies, 0.7, False, autocast=True)
    for ours, theirs in zip(run(10, entropies, 0.7, False, autocast=True, compiled=True), expected, strict=True):
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("entropies", ["none", "value", "gradient"])
def test_memory_when_waiting_for_the_backward_pass_holds_nothing_as_wide_as_the_vocabulary(entropies):
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run(8, entropies, 0.9, bias=True)
    assert kept and max(kept) <= max(WORDS * HIDDEN, 40 * HIDDEN)
