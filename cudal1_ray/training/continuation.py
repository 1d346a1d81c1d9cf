"""Which settings may differ from those that a run has, and what becomes of the run then.

A key is of one of three kinds. What is computed: another value is refused, since half of the run would be of each. How
long: it may grow. How it is run (devices, memory, checkpoints, where files lie): allowed, and noted. A key that is in
neither list below is of the first kind.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1_ray.files import JsonLines, settle_folder
from cudal1_ray.learning.config import SHAPE

# Key -> the stage that it prolongs.
HOW_LONG = {"sft.epochs": "sft", "self_supervised.rounds": "self_supervised", "contrastive.steps": "contrastive"}

# Keys, and sections with all that is in them.
HOW_IT_IS_RUN = (
    "stage",
    "runs_dir",
    "init_from",
    "recipe",
    "max_minutes",
    "cluster",
    "checkpoint",
    "assessment",
    "tracking",
    "problems.path",
    "policy.path",
    "policy.adapter",
    "policy.gradient_checkpointing",
    "policy.attention",
    "prompting.device",
    "rollout.device",
    "rollout.dtype",
    "rollout.max_num_seqs",
    "rollout.max_num_batched_tokens",
    "rollout.kv_cache_gib",
    "rollout.gpu_memory_utilization",
    "rollout.block_size",
    "rollout.enable_prefix_caching",
    "rollout.enforce_eager",
    "rollout.compile",
    "rollout.tensor_parallel",
    "rollout.threads",
    "rollout.seed_completions",
    "rollout.sleep_mode",
    "rollout.weight_sync",
    "rollout.drift_band",
    "rollout.log_level",
    "learner.device",
    "learner.zero_stage",
    "learner.offload_optimizer",
    "learner.offload_parameters",
    "learner.nvme_path",
    "learner.tokens_per_micro_batch",
    "learner.packing",
    "learner.logit_chunk_tokens",
    "learner.autocast",
    "learner.compile",
    "learner.log_entropy",
    "learner.collective_timeout_s",
    "evaluation.threads",
    "evaluation.confirm_on",
    "evaluation.required_sandbox",
    "evaluation.sandbox",
    "evaluation.readable_paths",
    "evaluation.compile_cache",
    "evaluation.problem_cache",
    "evaluation.cuda_arch_list",
    "evaluation.live_references",
    "evaluation.live_mib",
    "evaluation.slots",
    "evaluation.compilers",
)


# Of the keys above, those that what is prepared before the first step is made from.
PREPARED_FROM = ("init_from", "policy.path", "policy.adapter", "problems.path")


@dataclass(frozen=True)
class Change:
    """A key whose value differs from the run's."""

    key: str
    was: Any
    now: Any

    @property
    def allowed(self) -> bool:
        if self.key in HOW_LONG:
            return isinstance(self.was, int) and self.now > self.was
        return is_how_it_is_run(self.key)

    def __str__(self) -> str:
        return f"{self.key} was {self.was!r}, is {self.now!r}"


def is_how_it_is_run(key: str) -> bool:
    """Return whether a key only sets how a run is run, so that the run may be continued with another value of it."""
    parts = key.split(".")
    return any(".".join(parts[: i + 1]) in HOW_IT_IS_RUN for i in range(len(parts)))


def changes(old: dict[str, Any], new: dict[str, Any], defaults: dict[str, Any]) -> list[Change]:
    """Return the keys that differ, in alphabetical order; the shape of a policy that brings its own is left out.

    Args:
        old: as the run has it. A key that is newer than the run was at its default in it.
        defaults: those of the schema.
    """
    before, now, default = dict(_flat(old)), dict(_flat(new)), dict(_flat(defaults))
    unread = set() if now.get("policy.kind") == "scratch" else {f"policy.{name}" for name in SHAPE}
    differences = []
    for key in sorted((set(before) | set(now)) - unread):
        was, is_now = before.get(key, default.get(key)), now.get(key)
        if key != "name" and was != is_now and not (key in before and key not in now and key not in default):
            differences.append(Change(key, was, is_now))
    return differences


def has_finished_step(run: Path) -> bool:
    """Return whether a step of the run was ever finished, or it has a checkpoint."""
    metrics = run / "metrics.jsonl"
    if metrics.is_file() and b"\n" in metrics.read_bytes():
        return True
    return any(not path.name.startswith(".") for path in (run / "checkpoints").glob("*-*"))


def later_stage(run: Path, stage: str, stages: tuple[str, ...]) -> str:
    """Return the first stage after `stage` that the run has a checkpoint of; empty when there is none."""
    after = stages[stages.index(stage) + 1 :]
    return next((name for name in after if any((run / "checkpoints").glob(f"{name}-*"))), "")


def begin_anew(run: Path, changed: list[Change]) -> None:
    """Remove what a start that finished no step has left behind and the new settings would not have made.

    The prepared policy stays where no key that makes it has changed: it may have taken minutes. So do verdicts, and an
    adapter, which may have come with an unpacked run.
    """
    settle_folder(run / "exemplars")  # else those that a killed rewind left aside would come back
    keys = [change.key for change in changed]
    names = ["metrics.jsonl", "assessments.jsonl", "selections.jsonl", "exemplars", "rollouts", "assessed"]
    names += ["assessments_during.jsonl", "assessments_asked.jsonl", "reviews.jsonl", "hack_cases.parquet"]
    names += ["tb", "report"]
    names += [path.name for path in run.glob("exemplars.*")]
    if any(key == "seed" or key.startswith(("policy.", "problems.", "init_from")) for key in keys):
        names += ["policy", "policy.json"]
    if any(key == "init_from" or key.startswith("policy.") and key != "policy.path" for key in keys):
        names.append("adapter")
    if any(key.startswith(("evaluation.", "problems.")) for key in keys):
        names.append("verdicts.jsonl")
    for name in names:
        path = run / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def note_start(run: Path, environment: dict[str, Any], changed: list[Change]) -> None:
    """Append a row for this start to environment.jsonl: when, on what, and which settings differ since the last."""
    row = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "changed": {change.key: [change.was, change.now] for change in changed},
        "environment": environment,
    }
    lines = JsonLines(run / "environment.jsonl")
    lines.append(row)
    lines.close()


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
