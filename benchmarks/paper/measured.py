"""What one run's folder shows of an arm: its assessed samples, learning curve, techniques, settings and machines."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from benchmarks.paper.arms import ARMS, run_name
from benchmarks.paper.records import read_arms
from cudal1_ray.analysis.changes import changes_over_steps
from cudal1_ray.analysis.run_data import degenerate_problems, is_void
from cudal1_ray.analysis.statistics import FAILURE_IN_GEOMEAN
from cudal1_ray.analysis.techniques import find_techniques
from cudal1_ray.config import read_settings
from cudal1_ray.exemplars import ExemplarBuffer, exemplar_id
from cudal1_ray.files import read_json_lines
from cudal1_ray.problems import read_corpus
from cudal1_ray.source.renaming import same_except_names
from cudal1_ray.training.assessment import CONTROLS, WITH_OWN_EXEMPLARS, WITHOUT_EXEMPLARS
from cudal1_ray.training.policy_assessment import BASE, FILE
from cudal1_ray.training.run_folder import RunFolder

# Kind of the samples by the policy that an arm began with, to prompts with the exemplars that the arm's run found.
CONTROL = "train with exemplars, weights before stage 3"
# Those of a step's metrics by which a fault of the learner would show.
LEARNER_FIGURES = (
    "step",
    "loss",
    "grad_norm",
    "clip_fraction",
    "ratio_mean",
    "entropy",
    "drift_mean_abs",
    "rehearsal_loss",
    "rehearsal_grad_norm",
)
ROLLOUT_COLUMNS = [
    "step",
    "problem_id",
    "status",
    "speedup",
    "own_kernel",
    "copied",
    "code",
    "reasons",
    "exemplar_ids",
]


@dataclass(frozen=True)
class ArmRun:
    """One arm's run for one seed in a folder of runs; an arm that is not assessed has no policy yet."""

    arm: str
    seed: str
    folder: Path

    @property
    def note(self) -> dict[str, Any]:
        return read_arms(self.folder).get(self.arm, {})

    @property
    def is_assessed(self) -> bool:
        return "at" in self.note


def arm_runs(runs: Path) -> Iterator[ArmRun]:
    """Yield the runs of a table's folder that are assessed, or that trained at least a step of their arm's stage."""
    for folder in sorted(runs.glob("seed-*")):
        seed = folder.name.split("-")[1]
        if seed.isdecimal() and (folder / "config.yaml").is_file():
            for arm in ARMS:
                run = ArmRun(arm, seed, folder)
                stage_began = any(row["stage"] == ARMS[arm].stage for row in _metrics(folder))
                if folder.name == run_name(arm, int(seed)) and (run.is_assessed or stage_began):
                    yield run


def measure(run: ArmRun) -> dict[str, Any]:
    """Return what a result file holds of a run.

    Its `assessed` has the samples of the arm's policy by "train", "train with exemplars" and so on, and those of the
    policy that it began with by `CONTROL`: of each problem a list of [speedup, whether it has an own kernel, whether it
    is a copy, speedup of the fastest exemplar shown], a failure having speedup 0, as where no right exemplar was shown,
    and None where the run's folder lacks one; a copy is an exemplar shown, or a kernel that stage 1 learnt from.
    Samples whose evaluation failed are not in it but in `void`, by kind; `degenerate` are problems whose output does
    not depend on the input, as far as a sample showed. `problems` are those of the stage's samples, `learner` has
    `LEARNER_FIGURES` of each step, `changes` the counts of `changes_over_steps`.
    """
    stage = ARMS[run.arm].stage
    rollouts = _rollouts(run.folder, stage)
    steps = [row for row in _metrics(run.folder) if row["stage"] == stage]
    rows, control = _assessment_rows(run)
    counted = [row for row in rollouts if not is_void(row)]
    references = {row["problem_id"]: row["source"] for row in read_json_lines(run.folder / "problems.jsonl")}
    settings = read_settings(run.folder, "sft")
    exemplars = _exemplars(run.folder)
    assessed = partial(_assessed, learnt=kernels_of(settings["sft"]["corpus"]), exemplars=exemplars)
    return {
        **{"policy": "", "start": _start(settings), "training_minutes": None, "assessment_minutes": None},
        **{key: value for key, value in run.note.items() if key != "seed"},
        "samples": len(rollouts),
        "problems": sorted({row["problem_id"] for row in rollouts}),
        "evaluations": sum(row.get("evaluations", 0.0) for row in steps),
        "assessed": assessed(rows) | assessed(control, kind=CONTROL),
        "void": sum(is_void(row) for row in [*rows, *control]),
        "degenerate": sorted(degenerate_problems([*rows, *control])),
        "curve": learning_curve(counted),
        "learner": [{name: row[name] for name in LEARNER_FIGURES if name in row} for row in steps],
        "techniques": technique_speedups(counted, references),
        "changes": {
            steps: {name: astuple(change) for name, change in changes.items()}
            for steps, changes in changes_over_steps(counted, exemplars)
        },
        "settings": settings,
        "environments": list(read_json_lines(run.folder / "environment.jsonl")),
    }


def _start(settings: Mapping[str, Any]) -> str:
    """Return the arm whose folder a run starts from; empty for one that starts from the base model."""
    folder = re.search(r"seed-\d+-([a-z0-9-]+)", settings.get("init_from") or "")
    return folder[1] if folder and folder[1] in ARMS else ""


def _metrics(run: Path) -> list[dict[str, Any]]:
    return list(read_json_lines(run / "metrics.jsonl"))


def _assessment_rows(run: ArmRun) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the policy's assessment, each with whether its prompt showed exemplars, and the rows of the
    policy that the run began with, shown the same exemplars; none before the assessment is whole.
    """
    stage = ARMS[run.arm].stage
    if not run.is_assessed:
        return [], []
    if not stage:
        return [row for row in read_json_lines(run.folder / FILE) if row["policy"] == BASE], []
    rows = list(read_json_lines(run.folder / "assessments.jsonl"))
    without = [row | {"exemplars": False} for row in rows if row["stage"] == stage + WITHOUT_EXEMPLARS]
    with_own = [row | {"exemplars": True} for row in rows if row["stage"] == stage + WITH_OWN_EXEMPLARS]
    own = [row | {"exemplars": bool(without) and row["split"] == "train"} for row in rows if row["stage"] == stage]
    control = [row for row in rows if row["stage"] in CONTROLS]
    return [*without, *with_own, *own], control


def _rollouts(run: Path, stage: str) -> list[dict[str, Any]]:
    files = sorted((run / "rollouts").glob(f"{stage}-*.parquet")) if stage else []
    return [row for file in files for row in pq.read_table(file, columns=ROLLOUT_COLUMNS).to_pylist()]


def _exemplars(run: Path) -> dict[str, dict[str, Any]]:
    """Return code and speedup of a run's exemplars by id."""
    folder = RunFolder(run).exemplars
    buffer = ExemplarBuffer.open(folder) if folder.is_dir() else ()
    return {exemplar.exemplar_id: {"code": exemplar.code, "speedup": exemplar.speedup} for exemplar in buffer}


def _assessed(
    rows: list[dict[str, Any]], *, learnt: Mapping[str, Sequence[str]], exemplars: Mapping[str, Mapping[str, Any]],
    kind: str = "",
) -> dict[str, dict[str, list[list[Any]]]]:  # fmt: skip
    """Return the samples by kind and problem.

    Args:
        rows: those of one policy.
        learnt: by problem the kernels that stage 1 learnt from.
        exemplars: code and speedup of the run's exemplars by id.
        kind: the name for all of them; empty: their split, with "with exemplars" where prompts showed any.
    """
    kinds: dict[str, dict[str, list[list[Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if is_void(row):
            continue
        speedup, problem = float(row["speedup"]), row["problem_id"]
        is_right = speedup > 0
        is_copy = is_right and (
            row.get("copied") or any(same_except_names(row["code"], c) for c in learnt.get(problem, ()))
        )
        name = kind or f"{row['split']}{' with exemplars' if row['exemplars'] else ''}"
        identities = row.get("exemplar_ids", ())
        is_known = exemplars.keys() >= set(identities)
        fastest_shown = max((exemplars[key]["speedup"] for key in identities), default=0.0) if is_known else None
        kinds[name][problem].append([speedup, is_right and bool(row["own_kernel"]), bool(is_copy), fastest_shown])
    return {kind: dict(problems) for kind, problems in kinds.items()}


@cache
def kernels_of(corpus: str) -> dict[str, list[str]]:
    """Return the kernels of a corpus by problem.

    Raises:
        UserError: there is no such corpus on this machine.
    """
    kernels: dict[str, list[str]] = defaultdict(list)
    for entry in read_corpus(corpus):
        kernels[entry.problem_id].append(entry.code)
    return dict(kernels)


def learning_curve(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return a point for each step: the samples up to it, and of its own samples the shares and speedups.

    `own_kernel` counts right samples with a kernel of their own, `new` those of them that copy no exemplar, `copied`
    is a share of the right ones; a failure counts as `FAILURE_IN_GEOMEAN` in the geometric mean.
    """
    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        steps[row["step"]].append(row)
    points, so_far = [], 0
    for step, of_step in sorted(steps.items()):
        so_far += len(of_step)
        right = [row for row in of_step if row["status"] == "accepted"]
        logs = [math.log(max(row["speedup"], FAILURE_IN_GEOMEAN)) for row in right]
        failures = len(of_step) - len(right)
        points.append(
            {
                "step": step,
                "samples": so_far,
                "success": len(right) / len(of_step),
                "own_kernel": sum(row["own_kernel"] for row in right) / len(of_step),
                "new": sum(row["own_kernel"] and not row["copied"] for row in right) / len(of_step),
                "copied": sum(row["copied"] for row in right) / max(1, len(right)),
                "median_speedup": median([row["speedup"] for row in right]) if right else 0.0,
                "geomean": math.exp((sum(logs) + failures * math.log(FAILURE_IN_GEOMEAN)) / len(of_step)),
            }
        )
    return points


def technique_speedups(rows: list[dict[str, Any]], references: Mapping[str, str]) -> dict[str, list[float]]:
    """Return the speedups of the distinct accepted candidates that use each technique, most used first, then by name.

    Copies are left out, and what the reference has as well is no technique of a candidate.
    """
    distinct = {
        exemplar_id(row["problem_id"], row["code"]): row
        for row in rows
        if row["status"] == "accepted" and not row["copied"]
    }
    speedups: dict[str, list[float]] = defaultdict(list)
    for row in distinct.values():
        for name in {
            technique.name for technique in find_techniques(row["code"], references.get(row["problem_id"], ""))
        }:
            speedups[name].append(round(row["speedup"], 4))
    return dict(sorted(speedups.items(), key=lambda item: (-len(item[1]), item[0])))
