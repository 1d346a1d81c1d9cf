"""The report's table: each policy sampled anew, every candidate measured apart from all that training saw."""

from __future__ import annotations

from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.problems import Problem
from cudal1_ray.prompting import Prompt
from cudal1_ray.training.run_folder import JsonLines
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import contrastive_prompts

SCOPE = "assessment"


def assess(session: Session, stage: str) -> None:
    """Samples the policy that the engines hold and appends one row per sample to assessments.jsonl.

    The contrastive policy is asked as it was trained, with exemplars from its buffer; the buffer knows nothing of
    held-out problems, so there it answers without. Does nothing when the run has this stage's rows already.
    """
    settings = session.config.assessment
    lines = JsonLines(session.run.assessments)
    if not settings.enabled or any(row["stage"] == stage for row in lines):
        return
    problems: list[Problem] = session.train_problems + (session.held_out_problems if settings.held_out else [])
    label = f"{SCOPE}/{stage}"
    session.progress.stage(f"assess {stage}", 1)
    if stage == "contrastive":
        prompts: list[Prompt] = contrastive_prompts(session, [p.problem_id for p in problems])
    else:
        prompts = [session.prompt(problem.problem_id) for problem in problems]
    judged = session.sampler.sample(
        prompts,
        session.problems,
        settings.samples_per_problem,
        session.sampling(settings.temperature, label),
        scope=SCOPE,
        label=label,
    )
    rows = [
        {
            "stage": stage,
            "split": session.problems[j.prompt.problem_id].split,
            "problem_id": j.prompt.problem_id,
            "index": j.index,
            "status": j.verdict.status,
            "reasons": list(j.verdict.reasons),
            "degenerate": j.verdict.degenerate,
            "speedup": j.verdict.credited_speedup,
            "exemplar_ids": list(j.prompt.exemplar_ids),
            "code_hash": exemplar_id(j.prompt.problem_id, j.answer.code) if j.answer.code else "",
        }
        for j in judged
    ]
    lines.keep([*lines, *rows])  # all of a stage or none of it
    accepted = sum(j.verdict.accepted for j in judged)
    session.progress.advance(f"assess {stage}", f"{accepted}/{len(judged)} accepted")
