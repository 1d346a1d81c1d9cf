"""A complete run folder with plausible contents, written from a seed: what the report is tested on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.prompting.answer import render_answer

STAGES = {"untrained": 0, "sft": 12, "self_supervised": 10, "contrastive": 40}
FAMILIES = (
    "gelu_chain",
    "row_softmax",
    "diag_matmul",
    "layer_norm",
    "pairwise_distance",
    "loop_scan",
    "conv_bias_relu",
)
REASONS = (
    "wrong_result",
    "does_not_compile",
    "no_op_rewrite",
    "timeout",
    "result_cache",
    "hyperparameter_tamper",
)

REFERENCE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Multiplies a diagonal matrix with a matrix, then adds up in a loop."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        product = torch.diag(a) @ b
        total = torch.zeros_like(product[0])
        for row in product:
            total = total + row * self.scale
        return total


def get_inputs():
    return [torch.randn(256), torch.randn(256, 512)]


def get_init_inputs():
    return [0.5]
'''

CANDIDATE = '''import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """One fused pass: scaling the rows needs no dense diagonal, and the sum no loop (variant %d)."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, a, b):
        # a weighted sum of the rows of b is a single product
        return torch.mv(b.t().contiguous(), a * self.scale) + %d * 0.0
'''

ANALYSIS = """The first exemplar builds a dense 256 x 256 matrix & loops in Python <1.2x>;
the second avoids the diagonal and is 2.1x."""
DESIGN = "Replace diagonal product, scaling and summation by one matrix-vector product."


def write_run(folder: Path, seed: int = 0, problems: int = 24, samples: int = 8, level: float = 0.0) -> Path:
    """Write config, metrics, assessments, selections, exemplars and rollouts; `level` adds to every log
    speedup.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{FAMILIES[i % len(FAMILIES)]}_{i // len(FAMILIES) + 1}" for i in range(problems)]
    splits = ["held_out" if i % 3 == 2 else "train" for i in range(problems)]
    ability = rng.normal(0.0, 0.35, problems)
    (folder / "config.yaml").write_text(
        f"name: {folder.name}\nseed: {seed}\npolicy:\n  model: tiny-coder\n"
        f"assessment:\n  samples: {samples}\n  temperature: 0.8\n"
        "learning:\n  learning_rate: 1.0e-05\n  group_size: 8\n"
    )
    _write_lines(folder / "metrics.jsonl", _metrics(rng))
    _write_lines(folder / "assessments.jsonl", _assessments(rng, names, splits, ability, samples, level))
    exemplars = _exemplars(rng, names, ability)
    (folder / "exemplars").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(exemplars), folder / "exemplars" / "shard-0.parquet")
    _write_lines(
        folder / "selections.jsonl",
        [
            {
                "stage": "contrastive",
                "step": row["step"],
                "problem_id": row["problem_id"],
                "exemplar_ids": row["parent_ids"],
                "probabilities": [0.62, 0.38][: len(row["parent_ids"])],
            }
            for row in exemplars
            if row["parent_ids"]
        ],
    )
    (folder / "rollouts").mkdir(exist_ok=True)
    rollouts = _rollouts(rng, names, ability, exemplars)
    for shard in range(2):
        pq.write_table(pa.Table.from_pylist(rollouts[shard::2]), folder / "rollouts" / f"rollouts-{shard}.parquet")
    return folder


def _write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _metrics(rng: np.random.Generator) -> list[dict]:
    rows, wall = [], 0.0
    for stage, steps in STAGES.items():
        for step in range(steps):
            progress, step_s = step / max(1, steps - 1), float(rng.uniform(8, 12))
            wall += step_s
            row = {
                "stage": stage,
                "step": step,
                "wall_s": wall,
                "step_s": step_s,
                "grad_norm": float(rng.gamma(4, 0.2)),
                "loss": float(1.6 - 0.9 * progress + rng.normal(0, 0.05)),
            }
            if stage != "sft":
                base = 0.45 if stage == "self_supervised" else 0.62
                speed = 0.0 if stage == "self_supervised" else 0.55 * progress
                row |= {
                    "tokens_per_s": float(rng.normal(2400, 150)),
                    "evaluations": 64,
                    "success_rate": float(np.clip(base + 0.25 * progress + rng.normal(0, 0.05), 0, 1)),
                    "geomean_speedup": float(np.exp(-0.25 + speed + rng.normal(0, 0.07))),
                    "best_speedup": float(np.exp(0.5 + 1.4 * progress + rng.normal(0, 0.2))),
                    "reward_mean": float(0.4 + progress + rng.normal(0, 0.1)),
                    "kl": float(0.02 * step * rng.uniform(0.6, 1.2)),
                    "entropy": float(1.1 - 0.4 * progress + rng.normal(0, 0.03)),
                    "clip_fraction": float(rng.beta(2, 30)),
                    "drift_mean_abs": float(rng.gamma(5, 0.0008)),
                    "busy_rollout": step_s * float(rng.uniform(0.6, 0.9)),
                    "busy_evaluation": step_s * float(rng.uniform(0.5, 0.8)),
                    "busy_sync": step_s * float(rng.uniform(0.01, 0.04)),
                    "busy_learner": step_s * float(rng.uniform(0.25, 0.4)),
                }
            rows.append(row)
    return rows


def _assessments(rng, names, splits, ability, samples, level) -> list[dict]:
    effects = {
        "untrained": (-0.9, 0.12),
        "sft": (-0.05, 0.62),
        "self_supervised": (0.0, 0.8),
        "contrastive": (0.55, 0.88),
    }
    rows = []
    for stage, (shift, success) in effects.items():
        for name, split, own in zip(names, splits, ability, strict=True):
            for index in range(samples):
                accepted = bool(rng.random() < np.clip(success + 0.25 * own, 0.02, 0.99))
                handicap = 0.0 if split == "train" else -0.12
                speedup = float(np.exp(shift + own + handicap + level + rng.normal(0, 0.3)))
                rows.append(
                    {
                        "stage": stage,
                        "split": split,
                        "problem_id": name,
                        "index": index,
                        "status": "accepted" if accepted else "rejected",
                        "speedup": speedup if accepted else 0.0,
                        "reasons": [] if accepted else [str(rng.choice(REASONS))],
                        "code_hash": f"{rng.integers(2**40):x}",
                    }
                )
    return rows


def _exemplars(rng, names, ability) -> list[dict]:
    rows: list[dict] = []
    for problem, own in zip(names, ability, strict=True):
        members: list[dict] = []
        for step in range(0, 40, 4):
            parents = [members[i]["exemplar_id"] for i in rng.choice(len(members), min(2, len(members)), replace=False)]
            best = max((m["speedup"] for m in members), default=float(np.exp(own - 0.3)))
            failed = rng.random() < 0.2
            speedup = 0.0 if failed else float(best * np.exp(rng.normal(0.03, 0.12)))
            members.append(
                {
                    "exemplar_id": f"{rng.integers(2**60):015x}",
                    "problem_id": problem,
                    "speedup": speedup,
                    "code": CANDIDATE % (step, step),
                    "policy_version": step,
                    "step": step,
                    "parent_ids": parents,
                }
            )
        rows += members
    return rows


def _rollouts(rng, names, ability, exemplars) -> list[dict]:
    rows = []
    for stage, steps in STAGES.items():
        for step in range(0, steps, 2):
            for problem in rng.choice(len(names), min(12, len(names)), replace=False):
                accepted = bool(rng.random() < 0.7)
                code = CANDIDATE % (step, int(problem))
                identities = [row["exemplar_id"] for row in exemplars if row["problem_id"] == names[problem]]
                speedup = float(np.exp(ability[problem] + 0.02 * step + rng.normal(0, 0.3))) if accepted else 0.0
                rows.append(
                    {
                        "stage": stage,
                        "step": step,
                        "problem_id": names[problem],
                        "code": code,
                        "prompt": f"Reference Implementation\n```python\n{REFERENCE}```\n",
                        "completion": render_answer(ANALYSIS, DESIGN, code),
                        "analysis": ANALYSIS,
                        "design": DESIGN,
                        "status": "accepted" if accepted else "rejected",
                        "speedup": speedup,
                        "speedup_low": 0.97 * speedup,
                        "speedup_high": 1.03 * speedup,
                        "reasons": [] if accepted else [str(rng.choice(REASONS))],
                        "reward": speedup,
                        "advantage": 0.0,
                        "policy_version": step,
                        "exemplar_ids": identities[:2],
                    }
                )
    return rows
