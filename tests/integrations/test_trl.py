"""The reward function in TRL's own trainer."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.trl import KernelReward
from tests.integrations.conftest import FAST, PROBLEM, SETTINGS, WRONG, completion
from tests.rollout.conftest import make_tiny_model


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


@pytest.mark.slow
def test_grpo_trainer_when_rewarded_by_kernel_reward_takes_a_step(reward, tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"prompt": "Write ModelNew.", "problem": PROBLEM}] * 2)
    args = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=8, use_cpu=True, report_to=[], bf16=False, save_strategy="no", logging_steps=1,
    )  # fmt: skip
    policy = make_tiny_model(tmp_path / "policy", seed=1)
    trainer = trl.GRPOTrainer(policy.path, reward_funcs=reward, args=args, train_dataset=rows)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "rewards/kernel_reward/mean" in entry]
    assert logged and logged[0]["rewards/kernel_reward/mean"] == 0.0  # a random policy writes no candidate
