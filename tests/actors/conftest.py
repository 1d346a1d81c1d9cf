"""The policy of tests that bring weights from a learner to engines."""

from __future__ import annotations

import pytest

from cudal1_ray.learning import PolicyConfig, build_policy, save_policy

POLICY = PolicyConfig(
    kind="scratch", hidden_size=64, layers=2, heads=2, intermediate_size=128, vocab_size=320, max_position=256
)
TEXTS = [f"def f{i}(x):\n    return x * {i} + {i % 7}\n" for i in range(40)]


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("policy")
    model, tokenizer = build_policy(POLICY, TEXTS, seed=0)
    save_policy(model, tokenizer, folder)
    return str(folder)
