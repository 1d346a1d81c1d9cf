"""What a policy made from scratch can do before its first step: go on with what it has read once."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.learning import PolicyConfig, build_policy

TEXTS = ["def f(x):\n    return x\n"] * 4


def share_copied(layers: int, length: int) -> float:
    """Return the share of random tokens that the policy finds likeliest where they come the second time."""
    shape = {"intermediate_size": 512, "vocab_size": 1536, "max_position": 2048}
    config = PolicyConfig(kind="scratch", hidden_size=192, heads=3, layers=layers, **shape)
    model, _ = build_policy(config, TEXTS, seed=1)
    tokens = torch.randint(3, model.config.vocab_size, (16, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        likeliest = model(torch.cat([tokens, tokens], 1)).logits[:, length:-1].argmax(-1)
    return float((likeliest == tokens[:, 1:]).float().mean())


@pytest.mark.parametrize("length", [20, 100])
def test_scratch_policy_when_made_goes_on_with_what_it_has_read(length):
    assert share_copied(layers=3, length=length) > 0.6


def test_scratch_policy_of_one_layer_when_made_does_not():
    assert share_copied(layers=1, length=20) < 0.05
