"""What a training run did, as one result file: steps, samples by kind, the best of each problem, assessments.

    python -m benchmarks.training.recorded_run runs/kb --subject kernelbench-training --command "cudal1 train ..."

A copy of an exemplar that its prompt shows is counted apart: it shows what the policy was given, not what it can do.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.common.command_line import run_command
from benchmarks.common.results import new_result, write_result
from cudal1_ray.analysis.statistics import geometric_mean
from cudal1_ray.config import read_settings
from cudal1_ray.files import read_json_lines
from cudal1_ray.learning.advantages import group_centred
from cudal1_ray.training.policy_assessment import FILE as POLICIES

STEP = (
    "step_s",
    "sampling_s",
    "busy_evaluation",
    "evaluations",
    "success_rate",
    "own_kernel_share",
    "copy_rate",
    "geomean_speedup",
    "best_speedup",
    "reward_mean",
    "reward_std",
    "informative_groups",
    "truncated_share",
    "completion_tokens_mean",
    "entropy",
)
FASTER = 1.3


def record(run: Path) -> dict[str, Any]:
    """Return the metrics of the run in `run`: stages, steps, samples, problems, assessments."""
    metrics = read_json_lines(run / "metrics.jsonl")
    samples = [
        {**row, "step": int(file.stem.rpartition("-")[2])}
        for file in sorted((run / "rollouts").glob("contrastive-*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    rows = read_json_lines(run / "assessments.jsonl")
    steps = [{"step": row["step"], **_chosen(row, STEP)} for row in metrics if row["stage"] == "contrastive"]
    return {
        "sft": [
            {"epoch": row["step"], **_chosen(row, ("loss", "step_s", "learner_tokens", "learner_tokens_per_s"))}
            for row in metrics
            if row["stage"] == "sft"
        ],
        "steps": steps,
        "samples": _counts(samples),
        "samples_by_third": [_counts(part) for part in _thirds(samples, len(steps))],
        "reasons": dict(Counter(reason for row in samples for reason in row["reasons"]).most_common()),
        "advantages": _advantages(samples),
        "problems": _problems(samples),
        **({"assessments": _assessments(rows)} if rows else {}),
        "assessed": _assessed(read_json_lines(run / POLICIES)),
    }


def _chosen(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    return {name: round(row[name], 4) for name in names if name in row}


def _thirds(samples: list[dict[str, Any]], steps: int) -> list[list[dict[str, Any]]]:
    return [[row for row in samples if (row["step"] - 1) * 3 // max(steps, 1) == third] for third in range(3)]


def _counts(samples: list[dict[str, Any]]) -> dict[str, int]:
    right = [row for row in samples if row["status"] == "accepted"]
    own = [row for row in right if row["own_kernel"]]
    return {
        "samples": len(samples),
        "accepted": len(right),
        "with_own_kernel": len(own),
        "with_own_kernel_no_copy": sum(not row["copied"] for row in own),
        "copies": sum(bool(row["copied"]) for row in samples),
        "prompts_without_exemplars": sum(not row["exemplar_ids"] for row in samples),
        "accepted_without_exemplars": sum(not row["exemplar_ids"] for row in right),
    }


def _advantages(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return which share of the advantages' absolute values lies in groups of which no, some or all samples are right.

    "centred" is the same for rewards less their group's mean, which no deviation divides (`algorithm.name=dr_grpo`).
    """
    rewarded = [row for row in samples if row["reward"] is not None]
    if not rewarded:
        return {}
    places: dict[tuple[int, str], int] = {}
    groups = np.array([places.setdefault((row["step"], row["problem_id"]), len(places)) for row in rewarded])
    right = np.array([row["status"] == "accepted" for row in rewarded], dtype=float)
    share = (np.bincount(groups, weights=right) / np.bincount(groups))[groups]
    kinds = {"none_right": share == 0.0, "some_right": (share > 0.0) & (share < 1.0), "all_right": share == 1.0}
    weights = {
        "groups": 1.0 / np.bincount(groups)[groups],
        "as_trained": np.array([abs(row["advantage"] or 0.0) for row in rewarded]),
        "centred": np.abs(group_centred(np.array([row["reward"] for row in rewarded]), groups)),
    }
    return {
        name: {kind: round(float(weight[where].sum() / (weight.sum() or 1.0)), 4) for kind, where in kinds.items()}
        for name, weight in weights.items()
    }


def _problems(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return for the problems asked the best own kernel that is no copy, with the speedup's lower bound."""
    best: dict[str, dict[str, Any]] = {}
    for row in samples:
        own = row["status"] == "accepted" and row["own_kernel"] and not row["copied"]
        if own and row["speedup"] > best.get(row["problem_id"], {"speedup": 0.0})["speedup"]:
            best[row["problem_id"]] = {
                "step": row["step"],
                "speedup": round(row["speedup"], 4),
                "speedup_low": round(row["speedup_low"], 4),
                "own_kernel_share": round(row["own_kernel_share"], 4),
                "exemplars_shown": len(row["exemplar_ids"]),
            }
    problem_ids = {row["problem_id"] for row in samples}
    return {
        "asked": len(problem_ids),
        "solved_without_copying": len(best),
        f"best_above_{FASTER}": sum(kernel["speedup_low"] > FASTER for kernel in best.values()),
        "best": dict(sorted(best.items(), key=lambda item: -item[1]["speedup"])),
    }


def _assessments(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault((row["stage"], row["split"]), []).append(row)
    result = []
    for (stage, split), of_kind in kinds.items():
        right = [row for row in of_kind if row["status"] == "accepted"]
        copies = sum(row.get("copied", False) for row in right)
        counts = {"samples": len(of_kind), "accepted": len(right), "copies": copies}
        counts["geomean"] = round(geometric_mean([row["speedup"] for row in of_kind]), 4)
        result.append({"stage": stage, "split": split, **counts})
    return result


def _assessed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the figures of each policy that `cudal1 assess` assessed."""
    groups: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["policy"], row["split"], row["exemplars"]), []).append(row)
    result = []
    for (policy, split, exemplars), group in groups.items():
        right = [row for row in group if row["status"] == "accepted"]
        result.append(
            {
                "policy": policy,
                "split": split,
                "exemplars": exemplars,
                "samples": len(group),
                "problems": len({row["problem_id"] for row in group}),
                "accepted": len(right),
                "with_own_kernel": sum(row["own_kernel"] for row in right),
                "copies": sum(row["code_hash"] in row["exemplar_ids"] for row in right),
                "faster_than_1.2": sum(row["speedup"] > 1.2 for row in right),
                "best_speedup": round(max((row["speedup"] for row in right), default=0.0), 4),
                "reasons": dict(Counter(reason for row in group for reason in row["reasons"]).most_common()),
            }
        )
    return result


def main() -> None:
    """Write the result file of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--subject", default="kernelbench-training")
    parser.add_argument("--device", default="h100", help="in the file's name")
    parser.add_argument("--commit", default="", help="that ran, where it is not the present one")
    parser.add_argument("--command", required=True, help="that started the run")
    parser.add_argument("--note", default="", help="what a reader has to know about this run")
    arguments = parser.parse_args()
    out = new_result(arguments.subject, arguments.device)
    if arguments.commit:
        out = out.with_name("-".join([*out.stem.split("-")[:-1], arguments.commit]) + ".json")
    write_result(
        out,
        record(arguments.run),
        read_settings(arguments.run),
        commit=arguments.commit or out.stem.rpartition("-")[2],
        command=arguments.command,
        environment=json.loads((arguments.run / "environment.json").read_text()),
        note=arguments.note,
    )
    print(out)


if __name__ == "__main__":
    run_command(main)
