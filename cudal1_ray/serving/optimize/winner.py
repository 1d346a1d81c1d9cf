"""The answer of a job: the fastest candidate that is fast a second time, measured against every baseline; or none.

Among many noisy measurements the largest flatters, a fresh one does not. What is reported is the fresh one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cudal1_ray.evaluation import Verdict
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.optimize.rounds import JobRecord, Optimizer, described

NOT_FOUND = "nothing faster found"


async def optimize(job: Optimizer) -> dict[str, Any]:
    """Run a job to its end. `result` holds what has become of it; `tried`, where nothing was faster, what was tried.

    Raises:
        ModuleFault: when the module itself does not run, or nothing could be measured against it.
        PromptTooLong: when it alone fills the prompt.
    """
    await job.run()
    aims = job.aims
    ranking = sorted(job.buffer.of(job.problem.problem_id), key=lambda exemplar: -exemplar.speedup)
    accepted = [exemplar for exemplar in ranking if exemplar.speedup > 0.0]
    answer: dict[str, Any] = {
        "candidates": job.record.candidates,
        "accepted": sum(exemplar.step > 0 for exemplar in accepted),
        "known": sum(exemplar.step == 0 for exemplar in ranking),
        "rounds": job.record.rounds,
        "note": _note(job.record),
        "against": scrub(aims.against),  # a file, where the baseline is of one's own
        "device_name": job.record.device_name,
    }
    for exemplar in [e for e in accepted if e.speedup >= aims.min_speedup][: aims.confirm]:
        verdict = await job.evaluate(exemplar.code, exemplar.speedup)
        event = {"type": "confirmation", "candidate": exemplar.exemplar_id, "first": exemplar.speedup}
        job.emit(event | described(verdict))
        if verdict.speedup_low > 1.0 and verdict.credited_speedup >= aims.min_speedup:
            rows = await _baselines(job, exemplar, verdict)
            analysis, design = job.record.texts.get(exemplar.exemplar_id, ("", ""))
            result = {
                "found": True,
                "code": exemplar.code,
                "analysis": analysis,
                "design": design,
                "origin": "policy" if exemplar.step else "known",
                "baselines": rows,
                "devices": sorted({row["device"] for row in rows if row["device"]}),
            }
            return result | described(verdict) | answer | job.costs.so_far(job.spent_s())
    tried = [_attempt_row(exemplar) for exemplar in ranking[:100]]
    best = accepted[0].speedup if accepted else 0.0
    nothing = {"found": False, "message": NOT_FOUND, "best_tried": best, "tried": tried}
    return nothing | answer | job.costs.so_far(job.spent_s())


def _note(record: JobRecord) -> str:
    """Return what a user should know beside the result: of the module, and of evaluations that were void."""
    notes = [record.note] if record.note else []
    if record.void:
        evaluations = "an evaluation says" if len(record.void) == 1 else f"{len(record.void)} evaluations say"
        notes.append(f"{evaluations} nothing about the candidate ({record.void[-1]})")
    return "; ".join(notes)


async def _baselines(job: Optimizer, exemplar: Exemplar, verdict: Verdict) -> list[dict[str, Any]]:
    """Return a row for each baseline, the configured one first; what is not to be had has the reason."""
    rows = [_row(scrub(job.aims.against), verdict)]
    for name in job.aims.baselines:
        if name == job.aims.against:
            continue
        try:
            async with asyncio.timeout(job.left_s()):
                rows.append(_row(name, await job.against(exemplar.code, name)))
        except TimeoutError:
            rows.append(_row_without_figures(name, "the job's time was up"))
        job.emit({"type": "baseline"} | rows[-1])
    return rows


def _row(baseline: str, verdict: Verdict) -> dict[str, Any]:
    if not verdict.accepted:
        return _row_without_figures(baseline, scrub(verdict.detail) or ", ".join(verdict.reasons))
    return {
        "baseline": baseline,
        "baseline_ms": verdict.reference_ms,
        "runtime_ms": verdict.runtime_ms,
        "speedup": verdict.speedup,
        "speedup_low": verdict.speedup_low,
        "speedup_high": verdict.speedup_high,
        "device": verdict.device,
        "missing": "",
    }


def _row_without_figures(baseline: str, why: str) -> dict[str, Any]:
    figures = dict.fromkeys(("baseline_ms", "runtime_ms", "speedup", "speedup_low", "speedup_high"), 0.0)
    return {"baseline": baseline} | figures | {"device": "", "missing": why}


def _attempt_row(exemplar: Exemplar) -> dict[str, Any]:
    return {
        "candidate": exemplar.exemplar_id,
        "speedup": exemplar.speedup,
        "reasons": list(exemplar.reasons),
        "round": exemplar.step,
    }
