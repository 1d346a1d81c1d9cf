"""Every rollout of a run as Parquet: what was asked, answered, measured and credited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cudal1_ray.files import replacing
from cudal1_ray.training.sampling import EvaluatedSample

SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("step", pa.int32()),
        ("problem_id", pa.string()),
        ("index", pa.int32()),
        ("turn", pa.int32()),
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("analysis", pa.string()),
        ("design", pa.string()),
        ("code", pa.string()),
        ("status", pa.string()),
        ("reasons", pa.list_(pa.string())),
        ("degenerate", pa.bool_()),
        ("detail", pa.string()),
        ("speedup", pa.float64()),
        ("speedup_low", pa.float64()),
        ("speedup_high", pa.float64()),
        ("runtime_ms", pa.float64()),
        ("reference_ms", pa.float64()),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
        ("policy_version", pa.int64()),
        ("exemplar_ids", pa.list_(pa.string())),
        ("copied", pa.bool_()),
        ("finish_reason", pa.string()),
        ("flags", pa.list_(pa.string())),
        ("own_kernel", pa.bool_()),
        ("own_kernel_share", pa.float64()),
    ]
)


def write_rollouts(
    folder: Path,
    stage: str,
    step: int,
    samples: Sequence[EvaluatedSample],
    rewards: Sequence[float | None],
    advantages: Sequence[float],
) -> Path:
    """Write one file per step, `<stage>-<step>.parquet`, replaced whole when a step is repeated."""
    rows = [
        {
            "stage": stage,
            "step": step,
            "problem_id": j.prompt.problem_id,
            "index": j.index,
            "turn": j.turn,
            "prompt": j.prompt.text,
            "completion": j.completion.text,
            "analysis": j.answer.analysis,
            "design": j.answer.design,
            "code": j.answer.code,
            "status": j.verdict.status,
            "reasons": list(j.verdict.reasons),
            "degenerate": j.verdict.degenerate,
            "detail": j.verdict.detail,
            "speedup": j.verdict.credited_speedup,
            "speedup_low": j.verdict.speedup_low,
            "speedup_high": j.verdict.speedup_high,
            "runtime_ms": j.verdict.runtime_ms,
            "reference_ms": j.verdict.reference_ms,
            "reward": reward,
            "advantage": float(advantage),
            "policy_version": j.completion.policy_version,
            "exemplar_ids": list(j.prompt.exemplar_ids),
            "copied": j.copied,
            "finish_reason": j.completion.finish_reason,
            "flags": list(j.verdict.flags),
            "own_kernel": j.verdict.own_kernel,
            "own_kernel_share": j.verdict.own_kernel_share,
        }
        for j, reward, advantage in zip(samples, rewards, advantages, strict=True)
    ]
    target = folder / f"{stage}-{step:06d}.parquet"
    with replacing(target) as file:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)
    return target
