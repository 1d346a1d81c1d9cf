"""The best candidates of a run, each with its reference, reasoning, techniques and interval."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.analysis.run_data import RunData, credited_speedup, number, read_texts, text_list
from cudal1_ray.analysis.techniques import Technique, find_techniques

_FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_REFERENCE = re.compile(r"^#+[ \t]*Reference[^\n]*\n(.*?)(?=^#{1,6} |\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class BestCandidate:
    """A fast candidate and where it came from; the interval is None where the run did not record one."""

    problem_id: str
    speedup: float
    interval: tuple[float, float] | None
    stage: str
    step: int | None
    code: str
    reference: str
    analysis: str
    design: str
    exemplar_ids: tuple[str, ...]
    techniques: tuple[Technique, ...]


def best_candidates(run: RunData, references: Mapping[str, str], limit: int) -> list[BestCandidate]:
    """Return the fastest accepted candidate of each problem, fastest first, from the rollouts, else the buffer.

    Degenerate problems have none: a candidate for them can have any speedup.
    """
    rows = run.counted_rollouts() or [{**row, "status": "accepted"} for row in run.exemplars]
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        problem = str(row.get("problem_id"))
        if row.get("code") and credited_speedup(row) > credited_speedup(best.get(problem, {})):
            best[problem] = row
    chosen = sorted(best.values(), key=lambda row: -credited_speedup(row))[:limit]
    return [_describe(row, references.get(str(row["problem_id"]), "")) for row in chosen]


def _describe(row: dict[str, Any], reference: str) -> BestCandidate:
    texts = read_texts(row, ["analysis", "design"]) if "_shard" in row else {}
    low, high = number(row.get("speedup_low")), number(row.get("speedup_high"))
    step = number(row.get("step"))
    return BestCandidate(
        problem_id=str(row["problem_id"]),
        speedup=credited_speedup(row),
        interval=(low, high) if low and high else None,
        stage=str(row.get("stage") or ""),
        step=None if step is None else int(step),
        code=row["code"],
        reference=reference,
        analysis=texts.get("analysis", ""),
        design=texts.get("design", ""),
        exemplar_ids=tuple(text_list(row.get("exemplar_ids"))),
        techniques=find_techniques(row["code"], reference),
    )


def reference_in_prompt(prompt: str) -> str:
    """Return the reference as a prompt shows it; empty where the prompt has none.

    It is the first fenced block that defines `Model`, or the text under the heading "Reference" up to the next heading.
    """
    blocks = [block.strip() for block in _FENCE.findall(prompt)]
    blocks += [match.group(1).strip() for match in _REFERENCE.finditer(prompt)]
    return next((block for block in blocks if re.search(r"^class Model\b", block, re.MULTILINE)), "")


def references_of(run: RunData) -> dict[str, str]:
    """Return {problem_id: reference source} from problems.jsonl; of older runs from the prompts of rollouts.

    Each shard is read at most once.
    """
    sources = {str(row["problem_id"]): str(row["source"]) for row in run.problems if {"problem_id", "source"} <= {*row}}
    if sources:
        return sources
    by_shard: dict[Path, list[tuple[str, int]]] = {}
    for row in run.rollouts:
        by_shard.setdefault(row["_shard"], []).append((str(row.get("problem_id")), row["_row"]))
    for shard, places in by_shard.items():
        if all(problem in sources for problem, _ in places):
            continue
        try:
            if "prompt" not in pq.read_schema(shard).names:
                continue
            prompts = pq.read_table(shard, columns=["prompt"])["prompt"]
        except (OSError, pa.ArrowException):
            continue
        for problem, place in places:
            if problem not in sources and place < len(prompts):
                reference = reference_in_prompt(prompts[place].as_py() or "")
                if reference:
                    sources[problem] = reference
    return sources
