"""Learner and engine, each in its actor: after a weight sync they agree on every token, and the version is stamped."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
import ray

from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.learner import LearnerGroup
from cudal1_ray.actors.placement import actor_options
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.learning import (
    AlgorithmConfig,
    LearnerConfig,
    TrainingSequence,
    encode_completion,
    encode_prompt,
)
from cudal1_ray.rollout import GenerationRequest, RolloutConfig, SamplingParameters
from tests.actors.conftest import POLICY, TEXTS

pytestmark = pytest.mark.slow

SAMPLING = SamplingParameters(n=1, temperature=1.0, max_tokens=96, seed=3)


@pytest.fixture(scope="module")
def learner(ray_cluster, policy_path):
    role = RoleConfig(num_cpus=0.5, call_timeout_s=120, start_timeout_s=120)
    group = LearnerGroup(LearnerConfig(device="cpu"), POLICY, policy_path, role, seed=0)
    group.wait_until_ready()
    yield group
    group.stop()


@pytest.fixture(scope="module")
def rollouts(ray_cluster, policy_path):
    config = RolloutConfig(max_model_len=128, max_num_seqs=16, kv_cache_gib=0.05)
    role = RoleConfig(num_cpus=0.5, call_timeout_s=120, start_timeout_s=120)

    def start(_: int):
        return ray.remote(RolloutActor).options(**actor_options(role)).remote(config, policy_path)

    fleet = RolloutFleet(Fleet("rollout", start, role, max_replacements=3, bring_up=lambda: rollout_fleet.bring_up()))
    rollout_fleet = fleet
    fleet.fleet.wait_until_ready()
    yield fleet
    fleet.fleet.stop()


def sequences(tokenizer) -> list[TrainingSequence]:
    return [
        TrainingSequence(encode_prompt(tokenizer, text[:9], chat=False), encode_completion(tokenizer, text[9:]))
        for text in TEXTS[:16]
    ]


def generate(rollouts: RolloutFleet, requests: list[GenerationRequest]) -> dict:
    rollouts.start(requests, SAMPLING)
    completions, deadline = {}, time.monotonic() + 400
    while rollouts.outstanding:
        assert time.monotonic() < deadline
        completions.update({c.request_id: c for c in rollouts.collect()})
    return completions


def test_engine_and_learner_when_synced_agree(learner, rollouts, policy_path):
    from cudal1_ray.learning import load_tokenizer

    tokenizer = load_tokenizer(policy_path)
    batch = sequences(tokenizer)
    pairs = [(s.prompt_token_ids, s.completion_token_ids) for s in batch]
    learner.start_stage(3e-3)
    before = np.concatenate(learner.score(batch))
    for version in (1, 2):
        learner.train_sft(batch, 4)
        rollouts.load_weights(learner.publish(), version)
        ours = np.concatenate(learner.score(batch))
        (theirs,) = rollouts.fleet.call_all("score", pairs)
        assert np.abs(ours - np.concatenate(theirs)).max() < 1e-4
    assert np.abs(ours - before).max() > 0.1  # the weights really moved

    requests = [GenerationRequest(f"r{i}", s.prompt_token_ids) for i, s in enumerate(batch)]
    completions = generate(rollouts, requests)
    assert {c.policy_version for c in completions.values()} == {2}
    sampled = [
        TrainingSequence(r.prompt_token_ids, completions[r.request_id].token_ids, completions[r.request_id].logprobs)
        for r in requests
    ]
    for scored, sequence in zip(learner.score(sampled), sampled, strict=True):
        assert np.abs(np.array(scored) - np.array(sequence.sampling_logprobs)).max() < 1e-4
    metrics = learner.train_policy_gradient(sampled, AlgorithmConfig())
    assert metrics["drift_max_abs"] < 1e-4


def test_engine_when_killed_while_generating_is_replaced_with_the_current_weights(learner, rollouts, policy_path):
    from cudal1_ray.learning import load_tokenizer

    tokenizer = load_tokenizer(policy_path)
    prompt = encode_prompt(tokenizer, "def f", chat=False)
    rollouts.load_weights(learner.publish(), 7)
    requests = [GenerationRequest(f"k{i}", prompt) for i in range(160)]
    undisturbed = generate(rollouts, requests)
    pid = ray.get(rollouts.fleet.handle(rollouts.fleet.members[0]).pid.remote())
    rollouts.start(requests, SAMPLING)
    completions, deadline = {}, time.monotonic() + 400
    while not completions:  # some are delivered, most are not
        assert time.monotonic() < deadline
        completions.update({c.request_id: c for c in rollouts.collect()})
    assert len(completions) < len(requests)
    os.kill(pid, signal.SIGKILL)
    while rollouts.outstanding:
        assert time.monotonic() < deadline
        completions.update({c.request_id: c for c in rollouts.collect()})
    assert len(rollouts.fleet.replacements) == 1
    assert {c.policy_version for c in completions.values()} == {7}
    # the same draws, whichever engine made them
    assert {k: c.token_ids for k, c in completions.items()} == {k: c.token_ids for k, c in undisturbed.items()}


def test_weights_when_a_generation_runs_are_not_exchanged(learner, rollouts, policy_path):
    from cudal1_ray.learning import load_tokenizer

    prompt = encode_prompt(load_tokenizer(policy_path), "def f", chat=False)
    rollouts.start([GenerationRequest(f"x{i}", prompt) for i in range(4)], SAMPLING)
    with pytest.raises(RuntimeError, match="outstanding"):
        rollouts.load_weights(learner.publish(), 9)
    while rollouts.outstanding:
        rollouts.collect()
