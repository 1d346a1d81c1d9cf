"""The reward function for TRL; tests/docs/test_integrations_page.py has it in TRL's own trainer."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.trl import KernelReward
from tests.integrations.conftest import FAST, PROBLEM, SETTINGS, WRONG, completion


@pytest.fixture(scope="module")
def reward():
    reward = KernelReward(device="cpu", settings=SETTINGS)
    yield reward
    reward.close()


def test_kernel_reward_when_given_texts_or_conversations_is_the_same(reward):
    texts = [completion(FAST), completion(WRONG)]
    conversations = [[{"role": "assistant", "content": text}] for text in texts]
    logged = {}
    of_texts = reward(prompts=["p"] * 2, completions=texts, problem=[PROBLEM] * 2, log_metric=logged.__setitem__)
    of_conversations = reward(prompts=["p"] * 2, completions=conversations, problem=[PROBLEM] * 2)
    assert of_texts[0] > 0.0 == of_texts[1] and of_conversations[0] > 0.0 == of_conversations[1]
    assert logged["accepted"] == 0.5 and logged["speedup"] > 0.0
    with pytest.raises(UserError, match="no column `problem`"):
        reward(prompts=["p"], completions=texts)
