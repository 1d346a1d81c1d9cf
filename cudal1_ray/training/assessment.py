"""Policies sampled anew, every candidate measured apart from all that training saw.

Rows go to assessments.jsonl, one per sample, under a stage's name, and under that name with a suffix where the prompts
showed exemplars and the stage's own row does not, or the other way round: a policy that only copies what it is shown is
as good as its buffer with exemplars, and no better than before without. Looks in between go to
assessments_during.jsonl, one row of figures each, and to TensorBoard.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cudal1_ray.analysis.run_data import counted_rows
from cudal1_ray.analysis.statistics import geometric_mean
from cudal1_ray.config import Config
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.files import JsonLines, read_json_lines
from cudal1_ray.problems import Problem
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.prompting import Prompt
from cudal1_ray.training.checkpoints import CheckpointStore
from cudal1_ray.training.preparation import Beginning, beginning_from, first_beginning
from cudal1_ray.training.rollout_table import write_rollouts
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.sampling import EvaluatedSample
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import contrastive_prompts

SCOPE = "assessment"
UNTRAINED = "untrained"
WITH_EXEMPLARS, WITHOUT_EXEMPLARS = "_with_exemplars", "_without_exemplars"
# Of a stage that itself learns from prompts with exemplars and from prompts without.
WITH_OWN_EXEMPLARS = "_with_own_exemplars"
# Stands in a control's name for what the run began with, where that is no checkpoint of an earlier stage.
START = "start"
# Names of a control's rows.
CONTROLS = frozenset(stage + WITH_EXEMPLARS for stage in ("sft", "self_supervised", START))
# Values of p in fast_p, the share of samples that are right and faster than p (KernelBench, arXiv 2502.10517).
FASTER = (1.0, 1.2)


def assess(session: Session, stage: str) -> None:
    """Sample the policy that the engines hold and append one row per sample to assessments.jsonl.

    The contrastive policy is asked as it was trained, with exemplars from its buffer, and on the training problems
    without them too; the buffer knows nothing of held-out problems, so there it answers without. So is the policy of
    stage 2, where that learns from prompts of both kinds. Does nothing when the run has this stage's rows already.
    """
    settings = session.config.assessment
    lines = JsonLines(session.run.assessments)
    if not settings.enabled or any(row["stage"] == stage for row in lines):
        return
    session.progress.stage(f"assess {stage}", 1)
    train = problems_of_table(session, session.train_problems)
    held_out = problems_of_table(session, session.held_out_problems) if settings.held_out else []
    rows: list[dict[str, Any]] = []

    def ask(name: str, problems: list[Problem], exemplars: bool) -> list[EvaluatedSample]:
        answers = sample(session, problems, exemplars, name)
        keep_samples(session, name, answers)
        rows.extend(sample_rows(session, name, answers))
        return answers

    if other := _other_way(session.config, stage):
        if shows_exemplars(session, train):
            ask(stage + other, train, other != WITHOUT_EXEMPLARS)
    samples = ask(stage, train + held_out, stage == "contrastive")
    lines.keep([*lines, *rows])  # all of a stage or none of it
    accepted = sum(j.verdict.accepted for j in samples)
    session.progress.advance(f"assess {stage}", f"{accepted}/{len(samples)} accepted")


def _other_way(config: Config, stage: str) -> str:
    """Return the suffix of a stage's name where its policy is asked training problems in another way too; else ""."""
    if stage == "self_supervised":
        return WITH_OWN_EXEMPLARS if config.self_supervised.shows_exemplars else ""
    return {UNTRAINED: WITH_EXEMPLARS, "contrastive": WITHOUT_EXEMPLARS}.get(stage, "")


def assess_control(session: Session) -> None:
    """Assess the policy that the contrastive stage started from with the exemplars that are there now, on the training
    problems. The learner and the engines hold that policy afterwards: for the end of a run.

    Does nothing where none is missing; logs a note where the weights are not there any more or fit no learner.
    """
    if not _is_control_missing(session.config, session.run):
        return
    try:
        start = start_of_contrastive(session.config, session.run)
    except UserError as error:
        session.progress.note(f"no control: {error}")
        return
    session.progress.stage("assess the control", 1)
    learner, stage = session.crew.learner, name_of_control(start)
    if start.whole:
        learner.load(start.checkpoint.learner)
    else:
        learner.load_first_weights(start.adapter)
    session.publish()
    samples = sample(session, problems_of_table(session, session.train_problems), True, stage)
    lines = JsonLines(session.run.assessments)
    lines.keep([*lines, *sample_rows(session, stage, samples)])
    accepted = sum(j.verdict.accepted for j in samples)
    session.progress.advance("assess the control", f"{accepted}/{len(samples)} accepted")


def name_of_control(start: Beginning) -> str:
    """Return the name of a control's rows, by the stage that trained its policy. A policy of another run's contrastive
    stage is named as the base policy and an adapter are: `START`.
    """
    stage = start.checkpoint.stage if start.checkpoint is not None else START
    return (START if stage == "contrastive" else stage) + WITH_EXEMPLARS


def lacks_control(stages: Iterable[str]) -> bool:
    """Return whether assessed stages show exemplars to the contrastive policy and to no control: `assess` also asks
    that policy without exemplars only where its prompts show some.
    """
    return f"contrastive{WITHOUT_EXEMPLARS}" in stages and CONTROLS.isdisjoint(stages)


def _is_control_missing(config: Config, run: RunFolder) -> bool:
    """Return whether a run's control is asked for and missing. A policy that does not learn is its own control."""
    settings, stages = config.assessment, {row["stage"] for row in read_json_lines(run.assessments)}
    return settings.enabled and settings.control and config.contrastive.learning_rate > 0 and lacks_control(stages)


def is_control_due(config: Config, run: RunFolder) -> bool:
    """Return whether a run's control is missing and can be made, by its files alone."""
    if not _is_control_missing(config, run):
        return False
    try:
        start_of_contrastive(config, run)
    except UserError:
        return False
    return True


def start_of_contrastive(config: Config, run: RunFolder) -> Beginning:
    """Return where the learner takes the weights from that the contrastive stage started from: a checkpoint of this
    run or of the one in `init_from`, an adapter, or the base policy.

    Raises:
        UserError: they are not there any more, or fit no learner of this configuration.
    """
    store = CheckpointStore(run.checkpoints, keep=1)
    finals = (store.final(stage) for stage in ("self_supervised", "sft"))
    own = next((checkpoint for checkpoint in finals if checkpoint is not None), None)
    start = first_beginning(config, run, "contrastive") if own is None else beginning_from(config, own)
    steps = (row for row in read_json_lines(run.metrics) if row["stage"] == "contrastive")
    first_version = next(steps, {}).get("policy_version")
    if first_version is not None and first_version != (version := start.policy_version):
        raise UserError(
            f"{run.path}: the contrastive stage started from version {first_version:g} of the policy, which is not "
            f"there any more; the latest before it is version {version}"
        )
    return start


def problems_of_table(session: Session, problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a split that the table is made of: `assessment.problems` of them, or all."""
    return fixed_problems(problems, session.config.assessment.problems)


def assess_during(session: Session, stage: str, step: int) -> None:
    """Assess the policy between two steps, on the same problems every time, and record the figures.

    The problems are `assessment.problems_during` of each split, the same ones in every run.
    """
    lines = JsonLines(session.run.assessments_during)
    finished = {(row["stage"], row["step"], row["split"], row["exemplars"]) for row in lines}
    for exemplars in (False, True):
        for split, problems in (("train", session.train_problems), ("held_out", session.held_out_problems)):
            chosen = fixed_problems(problems, session.config.assessment.problems_during)
            if not chosen or (stage, step, split, exemplars) in finished:
                continue
            if exemplars and not shows_exemplars(session, chosen):
                continue
            how = "with" if exemplars else "without"
            session.progress.role("assessment", f"{split} problems {how} exemplars")
            samples = sample(session, chosen, exemplars, f"during/{stage}/{step}/{split}/{how}")
            figures = figures_of_rows(sample_rows(session, stage, samples))
            lines.append({"stage": stage, "step": step, "split": split, "exemplars": exemplars, **figures})
            session.metrics.show(f"assessment/{split}/{how}_exemplars", figures, step)
            named = (name for name in ("success", "own_kernel", "fast_1", "geomean") if name in figures)
            text = ", ".join(f"{name} {figures[name]:.2f}" for name in named) or "no sample counts"
            session.progress.note(f"after step {step}, {split} problems {how} exemplars: {text}")
    session.progress.role("assessment", "")


def sample(session: Session, problems: Sequence[Problem], exemplars: bool, label: str) -> list[EvaluatedSample]:
    """Return `assessment.samples_per_problem` evaluated samples of each problem under the policy that the engines hold.

    Raises:
        RunStopped: another one, as long as the last was, would not fit into the run's time.
    """
    session.stopper.check(session.last_assessment_s)
    started = time.perf_counter()
    settings, label = session.config.assessment, f"{SCOPE}/{label}"
    ids = [problem.problem_id for problem in problems]
    prompts: list[Prompt]
    if exemplars:
        prompts = _prompts_with_exemplars(session, ids)
    else:
        prompts = [session.prompt(problem_id) for problem_id in ids]
    sampling = session.sampling(settings.temperature, label)
    samples = session.sample(prompts, settings.samples_per_problem, sampling, scope=SCOPE, label=label)
    session.last_assessment_s = time.perf_counter() - started
    return samples


def shows_exemplars(session: Session, problems: Sequence[Problem]) -> bool:
    """Return whether a contrastive prompt of any of the problems would show an exemplar."""
    prompts = _prompts_with_exemplars(session, [p.problem_id for p in problems])
    return any(prompt.exemplar_ids for prompt in prompts)


def _prompts_with_exemplars(session: Session, problem_ids: list[str]) -> list[Prompt]:
    """Return prompts with exemplars, the same for every policy that is asked while the buffer stays as it is."""
    session.measure_exemplars(problem_ids)
    return contrastive_prompts(session, problem_ids, session.seed(f"{SCOPE}/exemplars"))


def figures_of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return a table's figures of samples: shares of all samples between 0 and 1, speedups as factors.

    Args:
        rows: with the keys problem_id, speedup (0 for a failure), own_kernel, reasons and degenerate.

    Returns:
        samples, problems; success (right), fast_1 and fast_1_2 (right and faster than 1.0 and 1.2), own_kernel (right
        with a kernel of its own), geomean (a failure counts as 0.1); and best_success, best_fast_1, best_fast_1_2,
        best_own_kernel, best_geomean, the same over the best sample of each problem, n of them being drawn (pass@n).
        They are of `counted_rows`: without void samples, and problems that any of the rows calls degenerate. Where no
        row counts, samples and problems alone, both 0.
    """
    counted = counted_rows(rows)
    if not counted:
        return {"samples": 0.0, "problems": 0.0}
    best: dict[str, float] = defaultdict(float)
    own: dict[str, bool] = defaultdict(bool)
    owned = [row["speedup"] > 0 and row["own_kernel"] for row in counted]
    for row, has_own in zip(counted, owned, strict=True):
        problem = row["problem_id"]
        best[problem] = max(best[problem], row["speedup"])
        own[problem] |= has_own
    figures = {"samples": float(len(counted)), "problems": float(len(best))}
    figures |= _shares([row["speedup"] for row in counted], owned)
    return figures | {f"best_{name}": value for name, value in _shares([*best.values()], [*own.values()]).items()}


def _shares(speedups: Sequence[float], owned: Sequence[bool]) -> dict[str, float]:
    count = len(speedups)
    shares = {"success": sum(speedup > 0 for speedup in speedups) / count}
    for factor in FASTER:
        name = f"fast_{factor:g}".replace(".", "_")
        shares[name] = sum(speedup > factor for speedup in speedups) / count
    return shares | {"own_kernel": sum(owned) / count, "geomean": geometric_mean(speedups)}


def keep_samples(session: Session, name: str, samples: Sequence[EvaluatedSample]) -> None:
    """Write prompt, completion and verdict of each sample to `assessed/<name>-<step>.parquet`."""
    count = len(samples)
    write_rollouts(session.run.assessed, name, session.state.step, samples, [None] * count, [0.0] * count)


def sample_rows(session: Session, stage: str, samples: Sequence[EvaluatedSample]) -> list[dict[str, Any]]:
    """Return one row for each sample, as assessments.jsonl holds them; the code is that of accepted ones alone."""
    splits = {problem_id: problem.split for problem_id, problem in session.problems.items()}
    return [
        {
            "stage": stage,
            "split": splits[j.prompt.problem_id],
            "problem_id": j.prompt.problem_id,
            "index": j.index,
            "status": j.verdict.status,
            "reasons": list(j.verdict.reasons),
            "degenerate": j.verdict.degenerate,
            "speedup": j.verdict.credited_speedup,
            "own_kernel": j.verdict.own_kernel,
            "own_kernel_share": j.verdict.own_kernel_share,
            "copied": j.copied,
            "exemplar_ids": list(j.prompt.exemplar_ids),
            "code_hash": exemplar_id(j.prompt.problem_id, j.answer.code) if j.answer.code else "",
            "code": j.answer.code if j.verdict.accepted else "",
        }
        for j in samples
    ]
