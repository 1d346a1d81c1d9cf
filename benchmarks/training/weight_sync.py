#!/usr/bin/env python3
"""How long engines stand still for new weights: pause to resume, packed in buckets beside one parameter at a time.

A learner and engines as `cudal1 train` starts them; for each transport a warm-up sync, then the median of the measured
ones. After each transport the engines' log-probabilities are compared with the learner's. Publishing (gathering and
packing, while engines still generate) is measured apart. Weights are random unless --model names a folder: speed does
not depend on them.

    python -m benchmarks.training.weight_sync --shape tiny --transports in_process gloo cluster.rollout.count=2 \
        rollout.kv_cache_gib=0.1 rollout.max_model_len=256
    python -m benchmarks.training.weight_sync --shape qwen2.5-coder-1.5b --transports ipc --out ipc.json \
        recipe=kernelbench_one_gpu policy.lora_rank=0
    python -m benchmarks.training.weight_sync --shape qwen2.5-coder-1.5b --transports nccl --out nccl.json \
        recipe=kernelbench_four_gpus policy.lora_rank=0
    python -m benchmarks.training.weight_sync --shape qwen2.5-coder-7b --transports nccl --out 7b.json \
        recipe=kernelbench_four_gpus policy.lora_rank=0 learner=zero3 cluster.learner.count=2
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.common.policy_shapes import SHAPES, write_random_policy
from benchmarks.common.results import new_result, write_result
from cudal1_ray.actors.config import check_placement
from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.learner import LearnerGroup
from cudal1_ray.actors.placement import actor_options, check_capacity, connect
from cudal1_ray.actors.rollout import RolloutFleet
from cudal1_ray.actors.rollout_member import RolloutActor
from cudal1_ray.config import Config, load_config
from cudal1_ray.learning import TrainingSequence
from cudal1_ray.rollout import AdapterShape
from cudal1_ray.rollout.config import TRANSPORTS, check_rollout_config

PHASES = ("pause", "start", "transfer", "finish", "drop_caches", "total")


class LearnerAndEngines:
    """A learner and its engines as `cudal1 train` starts them.

    Args:
        adapter: shape of the learner's adapters, for engines that take these alone.

    Attributes:
        start_s: seconds until all were up.
        version: the version of the policy that engines hold.
    """

    def __init__(self, config: Config, model: str, adapter: AdapterShape | None = None):
        self.config, cluster, rollout = config, config.cluster, config.rollout
        check_placement(cluster, rollout, config.evaluation)
        connect(cluster)
        check_capacity(cluster, ("rollout", "learner"))

        def start(_: int):
            return ray.remote(RolloutActor).options(**actor_options(cluster.rollout)).remote(rollout, model, adapter)

        started = time.perf_counter()
        self.learner = LearnerGroup(
            config.learner, config.policy, model, cluster.learner, config.seed, rollout, cluster.shared_gpu
        )
        fleet = Fleet("rollout", start, cluster.rollout, 0, bring_up=lambda: self.rollouts.bring_up())
        self.rollouts = RolloutFleet(fleet, workers=rollout.tensor_parallel, sleeps=rollout.sleep_mode)
        self.learner.wait_until_ready()
        fleet.wait_until_ready()
        self.start_s, self.version = time.perf_counter() - started, 0

    def stop(self) -> None:
        self.rollouts.fleet.stop()
        self.learner.stop()


class Measurement(LearnerAndEngines):
    """One learner and its engines, synced over and over."""

    def __init__(self, config: Config, model: str):
        super().__init__(config, model)
        self.learner.start_stage(1e-4)
        tokens = np.random.default_rng(0).integers(3, 250, size=(4, 64)).tolist()
        self.sequences = [TrainingSequence(tuple(row[:16]), tuple(row[16:])) for row in tokens]

    def measure(self, transport: str, bucket_mib: int, repeats: int, train: bool) -> dict[str, Any]:
        """Return medians of `repeats` syncs after a warm-up, seconds; the slowest engine counts."""
        rollout = copy.deepcopy(self.config.rollout)
        rollout.weight_sync.transport, rollout.weight_sync.bucket_mib = transport, bucket_mib
        check_rollout_config(rollout)
        if train:
            self.learner.train_sft(self.sequences, len(self.sequences))
        rows = []
        for _ in range(repeats + 1):
            self.version += 1
            started = time.perf_counter()
            weights = self.learner.publish(rollout)
            publish_s = time.perf_counter() - started
            wall_s = self.rollouts.load_weights(weights, self.version)
            engines = self.rollouts.sync_phases_s
            slowest = {phase: max(engine[phase] for engine in engines) for phase in PHASES}
            rows.append({**slowest, "publish": publish_s, "wall": wall_s})
        rows = rows[1:]
        return {
            "transport": transport,
            "bucket_mib": bucket_mib,
            "median_s": {key: statistics.median(row[key] for row in rows) for key in rows[0]},
            "pause_to_resume_s": [row["total"] for row in rows],
            "max_logprob_difference": self.difference(),
        }

    def difference(self) -> float:
        """Return the largest |log p (engine) - log p (learner)| over some tokens and all engines, nats."""
        ours = np.concatenate(self.learner.score(self.sequences))
        pairs = [(sequence.prompt_token_ids, sequence.completion_token_ids) for sequence in self.sequences]
        return max(
            float(np.abs(np.concatenate(scores) - ours).max())
            for scores in self.rollouts.fleet.call_all("score", pairs)
        )


def show(console: Console, results: list[dict[str, Any]], title: str) -> None:
    table = Table(
        "transport", "packed", "pause to resume, s", "of it transfer", "publish, s", "max |Δ log p|", title=title
    )
    for row in results:
        median = row["median_s"]
        packed = "by reference" if row["transport"] == "in_process" else f"{row['bucket_mib']} MiB"
        table.add_row(
            row["transport"],
            packed if row["bucket_mib"] else "one by one",
            f"{median['total']:.4f}",
            f"{median['transfer']:.4f}",
            f"{median['publish']:.4f}",
            f"{row['max_logprob_difference']:.2g}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a Hugging Face folder; else random weights of --shape")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=["in_process", "gloo"])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--no-train", action="store_true", help="no training step before each transport (memory)")
    parser.add_argument("--out", type=Path, default=new_result("weight-sync"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parse_with_settings(parser)

    config, console = load_config(arguments.overrides), Console()
    config.policy.kind, config.policy.dtype = "huggingface", config.rollout.dtype
    bucket_mib = config.rollout.weight_sync.bucket_mib or 512
    with tempfile.TemporaryDirectory(prefix="cudal1-weight-sync-") as folder:
        if not arguments.model:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            write_random_policy(Path(folder), arguments.shape, config.rollout.dtype, device)
            torch.cuda.empty_cache()  # this process shares the first GPU with those that are measured
        measurement = Measurement(config, arguments.model or folder)
        results = []
        for transport in arguments.transports:
            for size in (bucket_mib,) if transport == "in_process" else (bucket_mib, 0):
                results.append(measurement.measure(transport, size, arguments.repeats, not arguments.no_train))
                console.print(f"{transport}, {size} MiB: {results[-1]['median_s']['total']:.4f} s", highlight=False)
        measurement.stop()
    engines = f"{config.cluster.rollout.count} engines, tensor parallel {config.rollout.tensor_parallel}"
    title = f"{arguments.model or arguments.shape}, {engines}, median of {arguments.repeats}"
    show(console, results, title)
    configuration = vars(arguments) | {
        "engines": config.cluster.rollout.count,
        "tensor_parallel": config.rollout.tensor_parallel,
        "learner_ranks": config.cluster.learner.count,
        "dtype": config.rollout.dtype,
    }
    write_result(arguments.out, {"results": results}, configuration)
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
