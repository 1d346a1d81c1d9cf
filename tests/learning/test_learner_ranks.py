"""Two ranks, two processes: they compute what one computes, at every ZeRO stage."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch
from learning_samples import some_sequences

from tests.ports import free_port

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys, torch
from dataclasses import replace
sys.path.insert(0, sys.argv[6])
torch.set_num_threads(1)
from cudal1_ray.uncollected import imported_to_stay
with imported_to_stay():  # as in a run: DeepSpeed collects garbage in most updates
    from cudal1_ray.learning import Learner, LearnerConfig
from learning_samples import SHAPE, some_sequences
from test_learner_ranks import work

rank, port, policy_folder, out = int(sys.argv[1]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
for name, (policy, learner) in json.loads(sys.argv[2]).items():
    config = LearnerConfig(
        device="cpu", tokens_per_micro_batch=64, logit_chunk_tokens=16, epsilon=1e-3, collective_timeout_s=300,
        **learner,
    )
    learner = Learner(
        config, replace(SHAPE, **policy), policy_folder, rank=rank, world_size=2, rendezvous=("127.0.0.1", port)
    )
    result = work(learner)
    learner.save_checkpoint(f"{out}/{name}/checkpoint")
    before = learner.train_sft(some_sequences(5, seed=4))["loss"]
    learner.load_checkpoint(f"{out}/{name}/checkpoint")
    result["resumed"] = learner.train_sft(some_sequences(5, seed=4))["loss"] == before
    learner.save_adapter(f"{out}/{name}/adapter")
    torch.distributed.barrier()
    score = learner.score(some_sequences(5))
    for adapter in ("", f"{out}/{name}/adapter") if policy.get("lora_rank") else ("",):
        learner.load_first_weights(adapter)
        result[f"first{adapter and '_of_adapter'}"] = learner.score(some_sequences(5))
    result["left"] = score
    torch.save(result, f"{out}/{name}/rank-{rank}.pt")
sys.stderr.flush()
os._exit(0)  # a thread of Gloo's that drops its last work while Python ends aborts the process, once in seven times
"""
PACKED = {"packing": True}
OFFLOAD = {"offload_optimizer": "cpu", "offload_parameters": "cpu"}
# Changes to the policy and to the learner; the same two processes go through them in turn.
WAYS = {
    "plain": ({}, {"zero_stage": 0}),
    "zero_2": ({}, {"zero_stage": 2, **PACKED}),
    "zero_3": ({"gradient_checkpointing": True}, {"zero_stage": 3, **PACKED}),
    "adapters": ({"lora_rank": 4}, {"zero_stage": 3, **OFFLOAD, **PACKED}),
}


def work(learner) -> dict:
    """Train, score and publish a little, and return the results."""
    from cudal1_ray.learning import AlgorithmConfig

    learner.start_stage(1e-2)
    sft = learner.train_sft(some_sequences(7), 3)  # 3, 3 and 1 sequences: the last leaves a rank with a spare
    learner.set_reference_policy()
    algorithm = AlgorithmConfig(kl_coef=0.1, minibatches=2)
    gradient = learner.train_policy_gradient(some_sequences(9, seed=1, sampled=True), algorithm)
    return {
        "sft": sft,
        "gradient": gradient,
        "weights": dict(learner.named_weights()),
        "score": learner.score(some_sequences(5)),
    }


@pytest.fixture(scope="module")
def results(policy_folder, tmp_path_factory, repository: Path) -> Path:
    """Return a folder for each way with what the two ranks computed: `rank-0.pt` and `rank-1.pt`."""
    folder = tmp_path_factory.mktemp("ranks")
    for way in WAYS:
        (folder / way).mkdir()
    port = free_port()
    arguments = [json.dumps(WAYS), str(port), policy_folder, str(folder), str(Path(__file__).parent)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), *arguments], cwd=repository, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=400)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_ranks_when_there_are_two_compute_what_one_does(results, make_learner, way):
    lora_rank = WAYS[way][0].get("lora_rank", 0)
    alone = work(make_learner(tokens_per_micro_batch=64, epsilon=1e-3, policy_lora_rank=lora_rank))
    first, second = (torch.load(results / way / f"rank-{rank}.pt") for rank in range(2))
    assert first["resumed"] and second["resumed"]
    assert second["weights"] == {} and first["score"] == second["score"]
    for part in ("sft", "gradient"):
        for key, value in alone[part].items():
            if "per_s" not in key:
                assert first[part][key] == second[part][key] == pytest.approx(value, rel=1e-3, abs=1e-5), key
    fresh = torch.tensor([*chain(*make_learner().score(some_sequences(5)))])
    torch.testing.assert_close(torch.tensor([*chain(*first["first"])]), fresh, rtol=0, atol=1e-5)
    assert first["first"] == second["first"] and first["left"] != first["first"]
    if lora_rank:
        assert first["first_of_adapter"] == second["first_of_adapter"] == first["left"]
    atol = 1e-3 if lora_rank else 1e-4  # of steps of 1e-2; an adapter is a product, in which rounding grows
    for name, weight in alone["weights"].items():
        torch.testing.assert_close(first["weights"][name], weight, rtol=0, atol=atol, msg=name)


@pytest.mark.parametrize(
    ("visible", "gpus"), [("", ["0", "1"]), ("4,6", ["4", "6"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])]
)
def test_benchmark_ranks_when_on_one_host_have_a_gpu_each(visible, gpus):
    from benchmarks.training.learner import gpu_of

    assert [gpu_of(local, visible) for local in (0, 1)] == gpus
