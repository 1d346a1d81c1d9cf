"""Every loss against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from cudal1_ray.learning.config import AlgorithmConfig
from cudal1_ray.learning.losses import (
    aggregate,
    clipped_surrogate,
    kl_k3,
    loss_denominator,
    reinforce_loss,
    sequence_means,
    sft_loss,
    token_entropies,
    token_logprobs,
    truncated_importance_weights,
)
from cudal1_ray.learning.policy_loss import TokenBatch, policy_loss


def close(values: torch.Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(values, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_token_logprobs_when_computed_are_a_softmax_at_the_temperature():
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, math.log(3.0)]])
    close(token_logprobs(logits, torch.tensor([0, 1])), [math.log(1 / 4), math.log(3 / 4)])
    close(token_logprobs(logits, torch.tensor([0, 1]), temperature=0.5), [math.log(1 / 10), math.log(9 / 10)])


def test_entropies_when_computed_are_of_the_softmax_at_the_temperature():
    close(token_entropies(torch.zeros(1, 8)), [math.log(8)])
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    close(token_entropies(2 * torch.tensor([[0.0, math.log(3.0)]]), temperature=2.0), [quarter])


def test_losses_when_of_sft_and_reinforce_are_these():
    logprobs = torch.tensor([-0.5, -2.0])
    close(sft_loss(logprobs), [0.5, 2.0])
    close(reinforce_loss(logprobs, torch.tensor([1.0, -3.0])), [0.5, -6.0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -2 * 1.3, True),  # above the upper bound 1.3, and wanted: clipped
        (1.5, -2.0, 3.0, False),  # above it and unwanted: the full loss brings it back
        (0.5, -2.0, 2 * 0.8, True),
        (0.5, 2.0, -1.0, False),
        (1.25, 1.0, -1.25, False),  # between 1.2 and 1.3: DAPO's higher bound leaves it free
    ],
)
def test_clipped_surrogate_when_the_ratio_leaves_the_range_is_clipped(ratio, advantage, loss, clipped):
    old = torch.tensor([-1.0])
    logprobs = (old + math.log(ratio)).requires_grad_()
    losses, is_clipped = clipped_surrogate(logprobs, old, torch.tensor([advantage]), 0.2, 0.3)
    close(losses.detach(), [loss])
    assert is_clipped.tolist() == [clipped]
    losses.sum().backward()
    close(logprobs.grad, [0.0 if clipped else -ratio * advantage])


def test_sequence_means_when_computed_by_hand_are_these():
    segments = torch.tensor([0, 0, 2])
    close(sequence_means(torch.tensor([1.0, 3.0, 5.0]), segments, 3), [2.0, 0.0, 5.0])


def test_k3_when_computed_is_never_negative_and_has_the_gradient_of_the_kl():
    close(kl_k3(torch.tensor([-1.0]), torch.tensor([-1.0])), [0.0])
    close(kl_k3(torch.tensor([-1.0]), torch.tensor([-1.0 + math.log(2)])), [2 - math.log(2) - 1])
    assert (kl_k3(torch.randn(100), torch.randn(100)) >= 0).all()


def test_k3_when_averaged_is_unbiased():
    policy, reference = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    expected = (policy * (policy / reference).log()).sum()
    estimate = (policy * kl_k3(policy.log(), reference.log())).sum()  # the mean over the policy's own tokens
    torch.testing.assert_close(estimate, expected)


def test_importance_weights_when_above_the_cap_are_truncated():
    learner, engine = torch.tensor([-1.0, -1.0, -1.0], requires_grad=True), torch.tensor([-1.0, -3.0, -0.5])
    weights = truncated_importance_weights(learner, engine, cap=2.0)
    close(weights, [1.0, 2.0, math.exp(-0.5)])
    assert not weights.requires_grad
    close(truncated_importance_weights(learner, engine, cap=0.0), [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("normalisation", "expected"),
    [
        ("tokens", (1 + 3 + 5) / 3),
        ("sequences", (2 + 5) / 2),
        ("constant", (1 + 3 + 5) / (2 * 10)),
    ],
)
def test_loss_when_averaged_in_three_ways_is_these(normalisation, expected):
    denominator = loss_denominator([2, 1], [1.0, 1.0], normalisation, 10)
    losses, weights, segments = torch.tensor([1.0, 3.0, 5.0]), torch.ones(2), torch.tensor([0, 0, 1])
    assert aggregate(losses, weights, segments, 2, normalisation, denominator).item() == pytest.approx(expected)


@pytest.mark.parametrize("normalisation", ["tokens", "sequences", "constant"])
def test_loss_shares_when_micro_batches_are_added_are_the_whole(normalisation):
    losses, weights = torch.randn(6), torch.tensor([1.0, 0.5, 0.0])
    segments = torch.tensor([0, 0, 0, 1, 1, 2])
    denominator = loss_denominator([3, 2, 1], weights.tolist(), normalisation, 7)
    whole = aggregate(losses, weights, segments, 3, normalisation, denominator)
    first = aggregate(losses[:3], weights[:1], segments[:3], 1, normalisation, denominator)
    rest = aggregate(losses[3:], weights[1:], segments[3:] - 1, 2, normalisation, denominator)
    torch.testing.assert_close(first + rest, whole)


def batch_of(logprobs: list[float], old: list[float], **fields) -> TokenBatch:
    values = dict(
        logprobs=torch.tensor(logprobs, requires_grad=True),
        old_logprobs=torch.tensor(old),
        sampling_logprobs=torch.tensor(old),
        reference_logprobs=None,
        entropies=None,
        advantages=torch.tensor([1.0, -2.0]),
        weights=torch.ones(2),
        segments=torch.tensor([0, 0, 1]),
    )
    return TokenBatch(**{**values, **fields})


def test_grpo_when_on_policy_has_the_gradient_of_reinforce():
    gradients = []
    for name in ("grpo", "reinforce"):
        batch = batch_of([-1.0, -2.0, -0.5], [-1.0, -2.0, -0.5])
        loss, sums = policy_loss(batch, AlgorithmConfig(name=name), denominator=3.0)
        loss.backward()
        gradients.append(batch.logprobs.grad)
        assert sums["ratio"].item() == 3 and sums["clipped"].item() == 0 and sums["drift"].item() == 0
    close(gradients[0], [-1 / 3, -1 / 3, 2 / 3])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_gspo_when_computed_gives_every_token_the_sequence_ratio():
    config = AlgorithmConfig(name="gspo", loss_normalisation="sequences", clip_low=0.5, clip_high=0.5)
    batch = batch_of([-1.0, -2.0, -0.5], [-1.2, -2.2, -0.4])
    loss, _ = policy_loss(batch, config, denominator=2.0)
    assert loss.item() == pytest.approx((-math.exp(0.2) + 2 * math.exp(-0.1)) / 2, rel=1e-5)
    loss.backward()
    close(batch.logprobs.grad, [-math.exp(0.2) / 4, -math.exp(0.2) / 4, math.exp(-0.1)])
    far = batch_of([-1.0, -1.0, -0.5], [-2.0, -2.0, -0.5])  # a ratio of e is clipped, the other is 1
    loss, sums = policy_loss(far, config, denominator=2.0)
    assert loss.item() == pytest.approx((-1.5 + 2) / 2) and sums["clipped"].item() == 2


def test_loss_when_kl_entropy_and_importance_weights_are_set_includes_them():
    config = AlgorithmConfig(kl_coef=0.5, entropy_coef=0.1, tis_cap=2.0)
    batch = batch_of(
        [-1.0, -1.0, -1.0],
        [-1.0, -1.0, -1.0],
        sampling_logprobs=torch.tensor([-1.0, -3.0, -1.0]),
        reference_logprobs=torch.tensor([-1.0, -1.0, -1.0 + math.log(2)]),
        entropies=torch.tensor([1.0, 2.0, 3.0]),
    )
    loss, sums = policy_loss(batch, config, denominator=3.0)
    kl = 2 - math.log(2) - 1
    assert loss.item() == pytest.approx((-1 - 2 * 1 + 2 + 0.5 * kl - 0.1 * 6) / 3, rel=1e-5)
    assert sums["kl"].item() == pytest.approx(kl, rel=1e-5) and sums["entropy"].item() == 6
    assert sums["drift"].item() == 2 and sums["drift_max"].item() == 2


def test_sequences_when_of_weight_zero_count_nowhere():
    full = batch_of([-1.0, -2.0, -0.5], [-1.1, -2.0, -0.5], weights=torch.tensor([1.0, 0.0]))
    loss, sums = policy_loss(full, AlgorithmConfig(), denominator=2.0)
    assert loss.item() == pytest.approx((-math.exp(0.1) - 1) / 2, rel=1e-5)
    assert sums["tokens"].item() == 2
