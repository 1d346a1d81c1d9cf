"""One learner and two vLLM engines in actors of their own, weights over gloo and through Ray's object store.

What holds after a sync, after a sync that went wrong, and after the death of an engine that generates.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import ray
import torch
from greedy import check_greedy, generate

pytest.importorskip("vllm")

from cudal1_ray.actors.config import ClusterConfig, RoleConfig, check_placement
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.learner import LearnerGroup
from cudal1_ray.actors.placement import actor_options, check_capacity
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.learning import (
    AlgorithmConfig,
    LearnerConfig,
    TrainingSequence,
    encode_completion,
    encode_prompt,
    load_tokenizer,
)
from cudal1_ray.rollout import GenerationRequest, RolloutConfig, SamplingParameters
from cudal1_ray.rollout.config import WeightSyncConfig
from cudal1_ray.rollout.transports import build_publisher
from tests.actors.conftest import POLICY, TEXTS

pytestmark = pytest.mark.slow

SYNC = WeightSyncConfig(transport="gloo", bucket_mib=0)
ROLLOUT = RolloutConfig(max_model_len=128, max_num_seqs=16, kv_cache_gib=0.05, weight_sync=SYNC, drift_band=1e-3)
ROLE = RoleConfig(count=2, num_cpus=0.5, call_timeout_s=120, start_timeout_s=120)
STORED = RolloutConfig()  # engines that take weights from Ray's store: whichever way is configured, they take both
SAMPLING = SamplingParameters(n=1, temperature=1.0, max_tokens=96, seed=3)


@pytest.fixture(scope="module")
def batch(policy_path) -> list[TrainingSequence]:
    tokenizer = load_tokenizer(policy_path)
    return [
        TrainingSequence(encode_prompt(tokenizer, text[:9], chat=False), encode_completion(tokenizer, text[9:]))
        for text in TEXTS[:8]
    ]


@pytest.fixture(scope="module")
def learner(ray_cluster, policy_path):
    role = RoleConfig(num_cpus=0.5, call_timeout_s=120, start_timeout_s=120)
    group = LearnerGroup(LearnerConfig(device="cpu"), POLICY, policy_path, role, seed=0, rollout=ROLLOUT)
    group.wait_until_ready()
    group.start_stage(3e-3)
    yield group
    group.stop()


def new_engine(policy_path: str) -> ray.actor.ActorHandle:
    return ray.remote(RolloutActor).options(**actor_options(ROLE)).remote(ROLLOUT, policy_path)


@pytest.fixture(scope="module")
def rollouts(ray_cluster, policy_path):
    def start(_: int):
        return new_engine(policy_path)

    fleet = RolloutFleet(Fleet("rollout", start, ROLE, max_replacements=4, bring_up=lambda: fleet.bring_up()))
    fleet.fleet.wait_until_ready()
    yield fleet
    fleet.fleet.stop()


def assert_in_step(learner, rollouts, batch, version: int) -> None:
    """Assert that both engines hold the learner's weights under this version."""
    expected = learner.score(batch)
    scores = rollouts.fleet.call_all("score", [(s.prompt_token_ids, s.completion_token_ids) for s in batch])
    assert len(scores) == 2
    for theirs in scores:
        assert np.abs(np.concatenate(expected) - np.concatenate(theirs)).max() < 1e-4
    assert rollouts.fleet.call_all("policy_version") == [version, version]


def test_engines_when_synced_over_gloo_follow_the_learner(learner, rollouts, batch, tmp_path):
    before = np.concatenate(learner.score(batch))
    for version in (1, 2):
        learner.train_sft(batch, 4)
        rollouts.load_weights(learner.publish(), version)
        assert_in_step(learner, rollouts, batch, version)
        phases = {"pause", "start", "transfer", "finish", "drop_caches", "total"} | {"connect"}
        for seconds in rollouts.sync_phases_s:  # both have met the learner at the first sync, once for all
            assert set(seconds) == (phases if version == 1 else phases - {"connect"})
    assert np.abs(np.concatenate(learner.score(batch)) - before).max() > 0.1  # the weights really moved

    learner.save_policy(tmp_path)
    completions = check_greedy(rollouts, tmp_path, [s.prompt_token_ids for s in batch])
    assert all(completion.policy_version == 2 for completion in completions)


def test_drift_when_outside_its_band_raises_the_alarm(learner, rollouts, batch):
    rollouts.load_weights(learner.publish(), 3)
    sampling = SamplingParameters(n=1, temperature=1.0, max_tokens=24, seed=3)
    sampled = [
        TrainingSequence(s.prompt_token_ids, c.token_ids, c.logprobs, advantage=0.0)
        for s, c in zip(batch, generate(rollouts, [s.prompt_token_ids for s in batch], sampling), strict=True)
    ]
    metrics = learner.train_policy_gradient(sampled, AlgorithmConfig())
    assert metrics["drift_mean_abs"] < 1e-4 and metrics["drift_alarm"] == 0.0
    learner.train_sft(batch, 4)  # the learner goes on, the engines do not follow: what a lost sync looks like
    metrics = learner.train_policy_gradient(sampled, AlgorithmConfig())
    assert metrics["drift_mean_abs"] > 1e-3 and metrics["drift_alarm"] == 1.0


def test_engine_when_killed_in_a_sync_is_replaced_and_ends_with_its_version(learner, rollouts, batch):
    learner.train_sft(batch, 4)
    pid = ray.get(rollouts.fleet.handle(rollouts.fleet.members[0]).pid.remote())
    lost = len(rollouts.fleet.replacements)
    weights = learner.publish()
    os.kill(pid, signal.SIGSTOP)  # the sync begins, and cannot end
    killer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
    killer.start()
    rollouts.load_weights(weights, 4)
    killer.join()
    assert len(rollouts.fleet.replacements) == lost + 1
    assert_in_step(learner, rollouts, batch, 4)
    learner.train_sft(batch, 4)
    rollouts.load_weights(learner.publish(), 5)  # over the replacement's own channel
    assert len(rollouts.fleet.replacements) == lost + 1
    assert_in_step(learner, rollouts, batch, 5)


def test_engine_when_a_phase_hangs_is_poisoned_and_replaced(learner, rollouts, batch, policy_path):
    """One engine expects a second worker that never comes: it waits for it until its timeout."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(policy_path, dtype=torch.float32)
    # The first engine gives up after 2 s, the end that sends to it after 10 s, and the others have their time.
    waiting, publisher = (
        build_publisher(replace(SYNC, connect_timeout_s=limit_s), "float32", ray.util.get_node_ip_address())
        for limit_s in (10.0, SYNC.connect_timeout_s)
    )
    for each in (waiting, publisher):
        each.publish(model.named_parameters())
    channels = []

    def offer(channel: str, workers: int):
        channels.append(channel)
        if len(channels) == 1:
            return waiting.offer(f"elsewhere/{channel}", workers + 1)
        return publisher.offer(f"elsewhere/{channel}", workers)

    def hasten(actor: RolloutActor) -> None:
        actor._engine._updater._config.connect_timeout_s = 2.0

    ray.get(rollouts.fleet.handle(rollouts.fleet.members[0]).__ray_call__.remote(hasten))
    lost = len(rollouts.fleet.replacements)
    rollouts.load_weights(offer, 6)
    assert len(channels) == 3  # two engines, one replacement
    (cause,) = rollouts.fleet.replacements[lost:]
    assert "phase 'connect' was not done after 2 s" in cause
    assert rollouts.fleet.call_all("policy_version") == [6, 6]
    first, second = rollouts.fleet.call_all("score", [(s.prompt_token_ids, s.completion_token_ids) for s in batch])
    assert np.abs(np.concatenate(first) - np.concatenate(second)).max() < 1e-5
    for each in (waiting, publisher):
        each.close()


def test_engines_when_synced_through_rays_store_agree_with_the_learner(learner, rollouts, batch):
    before = np.concatenate(learner.score(batch))
    for version in (8, 9):
        learner.train_sft(batch, 4)
        rollouts.load_weights(learner.publish(STORED), version)
        assert_in_step(learner, rollouts, batch, version)
    assert np.abs(np.concatenate(learner.score(batch)) - before).max() > 0.1  # the weights really moved

    completions = generate(rollouts, [s.prompt_token_ids for s in batch], SAMPLING)
    assert {completion.policy_version for completion in completions} == {9}
    sampled = [
        TrainingSequence(s.prompt_token_ids, completion.token_ids, completion.logprobs)
        for s, completion in zip(batch, completions, strict=True)
    ]
    for scored, sequence in zip(learner.score(sampled), sampled, strict=True):
        assert np.abs(np.array(scored) - np.array(sequence.sampling_logprobs)).max() < 1e-4
    assert learner.train_policy_gradient(sampled, AlgorithmConfig())["drift_max_abs"] < 1e-4


def test_weights_when_a_generation_runs_are_not_exchanged(learner, rollouts, batch):
    rollouts.start([GenerationRequest(f"x{i}", batch[0].prompt_token_ids) for i in range(4)], SAMPLING)
    with pytest.raises(RuntimeError, match="outstanding"):
        rollouts.load_weights(learner.publish(STORED), 10)
    while rollouts.outstanding:
        rollouts.collect()


def test_engine_when_killed_while_generating_is_replaced_with_the_current_weights(
    learner, rollouts, batch, policy_path
):
    """It is the only engine of its fleet: its replacement makes what is missing."""
    role, engine = replace(ROLE, count=1), rollouts.fleet.handle(rollouts.fleet.members[0])

    def start(number: int):
        return engine if number == 0 else new_engine(policy_path)

    alone = RolloutFleet(Fleet("rollout", start, role, max_replacements=1, bring_up=lambda: alone.bring_up()))
    alone.load_weights(learner.publish(STORED), 11)
    prompts = [batch[0].prompt_token_ids] * 160
    undisturbed = generate(alone, prompts, SAMPLING)
    pid = ray.get(engine.pid.remote())
    requests = [GenerationRequest(f"r{i}", prompt) for i, prompt in enumerate(prompts)]
    alone.start(requests, SAMPLING)
    completions, deadline = {}, time.monotonic() + 400
    while not completions:  # some are delivered, most are not
        assert time.monotonic() < deadline
        completions.update({c.request_id: c for c in alone.collect()})
    assert len(completions) < len(requests)
    os.kill(pid, signal.SIGKILL)
    while alone.outstanding:
        assert time.monotonic() < deadline
        completions.update({c.request_id: c for c in alone.collect()})
    assert len(alone.fleet.replacements) == 1
    alone.fleet.stop()
    assert {c.policy_version for c in completions.values()} == {11}
    # the same draws, whichever engine made them
    assert [completions[r.request_id].token_ids for r in requests] == [c.token_ids for c in undisturbed]


@pytest.mark.parametrize(
    ("cluster", "rollout", "message"),
    [
        (ClusterConfig(), RolloutConfig(device="cuda", tensor_parallel=2), "cluster.rollout.num_gpus=0"),
        (ClusterConfig(evaluator=RoleConfig(num_gpus=0.5)), RolloutConfig(), "cluster.evaluator.num_gpus=0.5"),
        (ClusterConfig(learner=RoleConfig(num_gpus=1.5)), RolloutConfig(), "cluster.learner.num_gpus=1.5"),
        (
            ClusterConfig(shared_gpu=True, evaluator=RoleConfig(num_gpus=1)),
            RolloutConfig(),
            "cluster.shared_gpu=true",
        ),
    ],
)
def test_roles_when_their_gpus_do_not_fit_are_refused(cluster, rollout, message):
    with pytest.raises(UserError, match=message):
        check_placement(cluster, rollout, EvaluationConfig(device="cuda"))


def test_roles_when_ray_has_no_place_for_them_are_refused_at_once(ray_cluster):
    """Ray lets an actor without a place wait: the start timeout of a GPU preset is a quarter of an hour."""
    alone = ClusterConfig(num_cpus=8)
    check_capacity(alone)
    with pytest.raises(UserError, match=r"want 2 GPUs \(learner 2\), Ray has 0.*cluster.num_gpus"):
        check_capacity(ClusterConfig(learner=RoleConfig(count=2, num_gpus=1)))
    with pytest.raises(UserError, match=r"want 9 CPUs \(rollout 9\)"):
        check_capacity(ClusterConfig(rollout=RoleConfig(count=9)), ("rollout",))
    check_capacity(ClusterConfig(address="auto", learner=RoleConfig(count=2, num_gpus=1)))  # may grow
