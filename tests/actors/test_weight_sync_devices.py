"""A sync over each transport at its own place: GPUs that are shared or not, engines of one worker or of two."""

from __future__ import annotations

import numpy as np
import pytest
import ray
import torch
from greedy import check_greedy
from safetensors.torch import load_file

pytest.importorskip("vllm")

from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.learner import LearnerGroup
from cudal1_ray.actors.placement import actor_options
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.learning import LearnerConfig, PolicyConfig, TrainingSequence, build_policy, save_policy
from cudal1_ray.rollout import RolloutConfig
from cudal1_ray.rollout.config import WeightSyncConfig
from cudal1_ray.rollout.transports import open_receiver
from tests.actors.conftest import TEXTS


def check_sync(
    folder,
    transport: str,
    engines: int,
    tensor_parallel: int,
    learner_gpus: float,
    engine_gpus: float,
    dtype: str = "float32",
    **rollout,
) -> None:
    """Engine and learner agree after each of three syncs, and did not before; in float32 an engine then writes, token
    for token, what Transformers writes with the learner's weights.
    """
    on_gpu = transport != "gloo"
    # On a GPU the engine's attention multiplies in TF32: 1.1e-3 on an H100
    tolerance = 0.05 if dtype == "bfloat16" else 5e-3 if on_gpu else 1e-4
    policy = PolicyConfig(
        kind="scratch",
        hidden_size=128,
        layers=2,
        heads=2,
        intermediate_size=128,
        vocab_size=320,
        max_position=256,
        dtype=dtype,
    )
    model, tokenizer = build_policy(policy, TEXTS, seed=0)
    save_policy(model, tokenizer, folder)
    sync = WeightSyncConfig(transport=transport, bucket_mib=0)
    device = "cuda" if on_gpu else "cpu"
    config = RolloutConfig(
        device=device,
        dtype=dtype,
        max_model_len=128,
        max_num_seqs=16,
        kv_cache_gib=0.05,
        gpu_memory_utilization=0.2,
        tensor_parallel=tensor_parallel,
        weight_sync=sync,
        block_size=None if on_gpu else 32,
        **rollout,
    )
    learner_role = RoleConfig(num_cpus=0.5, num_gpus=learner_gpus, call_timeout_s=300, start_timeout_s=300)
    role = RoleConfig(count=engines, num_cpus=0.5, num_gpus=engine_gpus, call_timeout_s=300, start_timeout_s=300)
    learner = LearnerGroup(
        LearnerConfig(device=device, zero_stage=1 if on_gpu else 0), policy, str(folder), learner_role, 0, config
    )
    learner.wait_until_ready()

    def start(_: int):
        return ray.remote(RolloutActor).options(**actor_options(role)).remote(config, str(folder))

    rollouts = RolloutFleet(Fleet("rollout", start, role, 0), workers=tensor_parallel, sleeps=config.sleep_mode)
    rollouts.fleet.wait_until_ready()
    tokens = np.random.default_rng(0).integers(3, 250, size=(8, 40)).tolist()
    batch = [TrainingSequence(tuple(row[:8]), tuple(row[8:])) for row in tokens]
    pairs = [(s.prompt_token_ids, s.completion_token_ids) for s in batch]
    learner.start_stage(3e-3)
    for version in (1, 2, 3):
        learner.train_sft(batch, 2)
        ours = np.concatenate(learner.score(batch))
        stale = np.concatenate(rollouts.fleet.call_all("score", pairs)[0])
        rollouts.fleet.call_all("sleep")
        rollouts.load_weights(learner.publish(), version)
        scores = [np.concatenate(scores) for scores in rollouts.fleet.call_all("score", pairs)]
        assert len(scores) == engines
        for theirs in scores:
            assert np.abs(ours - theirs).mean() < tolerance
            assert np.abs(ours - theirs).mean() < np.abs(ours - stale).mean() / 2
        assert rollouts.fleet.call_all("policy_version") == [version] * engines
    if dtype == "float32":
        learner.save_policy(folder / "now")
        check_greedy(rollouts, folder / "now", [sequence.prompt_token_ids for sequence in batch])
    rollouts.fleet.stop()
    learner.stop()


@pytest.mark.long
def test_gloo_when_an_engine_has_two_workers_reaches_both(ray_cluster, tmp_path):
    check_sync(tmp_path, "gloo", engines=1, tensor_parallel=2, learner_gpus=0, engine_gpus=0)


@pytest.mark.long
def test_weights_when_a_learner_is_sharded_are_published_whole(ray_cluster, tmp_path):
    """ZeRO-3 over two ranks, adapters on top: what a receiver gets is what the learner would save."""
    policy = PolicyConfig(
        kind="scratch",
        hidden_size=64,
        layers=2,
        heads=2,
        intermediate_size=128,
        vocab_size=320,
        max_position=256,
        lora_rank=4,
    )
    model, tokenizer = build_policy(policy, TEXTS, seed=0)
    save_policy(model, tokenizer, tmp_path / "start")
    rollout = RolloutConfig(weight_sync=WeightSyncConfig(transport="gloo", bucket_mib=1))
    role = RoleConfig(count=2, num_cpus=0.5, call_timeout_s=200, start_timeout_s=200)
    learner = LearnerGroup(
        LearnerConfig(device="cpu", zero_stage=3), policy, str(tmp_path / "start"), role, 0, rollout=rollout
    )
    learner.wait_until_ready()
    learner.start_stage(3e-2)
    tokens = np.random.default_rng(0).integers(3, 250, size=(4, 40)).tolist()
    learner.train_sft([TrainingSequence(tuple(row[:8]), tuple(row[8:])) for row in tokens], 2)
    offer = learner.publish()("engine", 1)
    learner.save_policy(tmp_path / "now")
    receiver = open_receiver(offer.transport, offer.arguments, 0, torch.device("cpu"))
    received = {name: tensor for bucket in offer.buckets for name, tensor in receiver.receive(bucket)}
    receiver.close()
    learner.stop()
    saved = load_file(tmp_path / "now" / "model.safetensors")
    before = load_file(tmp_path / "start" / "model.safetensors")
    assert set(saved) == set(before) == set(received)
    assert all(torch.equal(received[name], saved[name]) for name in saved)
    assert any(not torch.equal(received[name], before[name]) for name in saved)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "sleep_mode"), [("bfloat16", False), ("bfloat16", True), ("float32", False)])
def test_ipc_when_on_one_gpu_carries_weights(ray_cluster, tmp_path, dtype, sleep_mode):
    check_sync(tmp_path, "ipc", 1, 1, learner_gpus=0.5, engine_gpus=0.5, dtype=dtype, sleep_mode=sleep_mode)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("engines", "tensor_parallel"), [(1, 1), (2, 1), (1, 2)])
def test_nccl_when_between_gpus_carries_weights(ray_cluster, tmp_path, engines, tensor_parallel, dtype):
    if torch.cuda.device_count() < 1 + engines * tensor_parallel:
        pytest.skip(f"needs {1 + engines * tensor_parallel} GPUs")
    eager = dtype == "bfloat16"  # CUDA graphs, which take half a minute to make, are in the others
    check_sync(tmp_path, "nccl", engines, tensor_parallel, 1, tensor_parallel, dtype, enforce_eager=eager)
