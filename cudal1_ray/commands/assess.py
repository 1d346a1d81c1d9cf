"""`cudal1 assess`: samples any policy of a run on its problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudal1_ray.analysis.tables import format_share, print_table
from cudal1_ray.errors import UserError
from cudal1_ray.problems import Problem, load_problems

if TYPE_CHECKING:
    from cudal1_ray.config import Config
    from cudal1_ray.training.policy_assessment import Question
    from cudal1_ray.training.preparation import Beginning
    from cudal1_ray.training.run_folder import RunFolder

COLUMNS = {"success": "right", "own_kernel": "own\nkernel", "fast_1": "> 1.0x", "fast_1_2": "> 1.2x", "geomean": "mean"}


@dataclass(frozen=True)
class AssessmentRequest:
    """What is to be assessed.

    Attributes:
        policies: as `policy_assessment.find_policy` takes them.
        splits: those of the problems.
        exemplars: whether prompts show the run's exemplars; several values ask in several ways.
        samples: samples of each problem; None takes `assessment.samples_per_problem`.
        problems: problems of each split, the same ones in every run; None takes all.
    """

    policies: list[str]
    splits: list[str]
    exemplars: tuple[bool, ...] = (False,)
    samples: int | None = None
    problems: int | None = None


def assess_policies(run: str, request: AssessmentRequest, overrides: list[str], console: Console | None = None) -> int:
    """Sample policies of a run, print the table of all that was assessed, and return 0.

    Args:
        overrides: other settings than the run's.

    Raises:
        UserError: there is no run or policy, a setting is wrong, or another command trains or assesses the run.
    """
    from cudal1_ray.problems.select import fixed_problems
    from cudal1_ray.training.policy_assessment import (
        find_policy,
        identity_of,
        is_assessed,
        left_out_problems,
        questions_of,
        read_config,
    )
    from cudal1_ray.training.run_folder import RunFolder

    folder, console = RunFolder(Path(run)), console or Console()
    config = read_config(folder.path, overrides)
    for flag, value in (("--samples", request.samples), ("--problems", request.problems)):
        if value is not None and value < 1:
            raise UserError(f"{flag} {value}: must be at least 1")
    config.assessment.samples_per_problem = count = request.samples or config.assessment.samples_per_problem
    config.assessment.problems = request.problems
    config.assessment.enabled = True  # whatever the run had: its engines are started
    beginnings = dict(find_policy(config, folder, policy) for policy in request.policies)
    problems, left_out = load_problems(config.problems), left_out_problems(folder, config)
    chosen: list[Problem] = []
    for split in request.splits:
        if not (of_split := [problem for problem in problems if problem.split == split]):
            raise UserError(f"--split {split}: problems.source={config.problems.source} has none")
        chosen += fixed_problems([p for p in of_split if p.problem_id not in left_out], request.problems)
    questions = questions_of(folder, chosen, request.splits, request.exemplars)
    if True in request.exemplars and not any(question.exemplars for question in questions):
        note = f"{folder.path} has no accepted exemplar of these problems: no prompt shows any"
        console.print(note, highlight=False, markup=False)
    work = {}
    for name, beginning in beginnings.items():
        identity = identity_of(beginning)
        open_questions = [q for q in questions if not is_assessed(folder, name, identity, q, chosen, count)]
        if open_questions:
            work[name] = (beginning, open_questions)
    if work:
        with folder.claimed():
            _sample(folder, config, problems, work, console)
    print_table(console, table_of(folder))
    return 0


def _sample(
    folder: RunFolder,
    config: Config,
    problems: list[Problem],
    work: dict[str, tuple[Beginning, list[Question]]],
    console: Console,
) -> None:
    from cudal1_ray.actors.placement import connect
    from cudal1_ray.learning.adapter_files import with_adapter_shape
    from cudal1_ray.training.policy_assessment import ask, identity_of
    from cudal1_ray.training.preflight import check_gpus
    from cudal1_ray.training.preparation import prepare_run
    from cudal1_ray.training.progress import Progress
    from cudal1_ray.training.train import open_session

    check_gpus(config)
    # An adapter from elsewhere has a rank and an alpha of its own, which the learner must compute with.
    configs = {
        name: replace(config, policy=with_adapter_shape(config.policy, beginning.adapter))
        for name, (beginning, _) in work.items()
        if beginning.adapter is not None
    }
    with Progress(config.name, str(folder.path), console) as progress:
        connect(config.cluster)
        for name, (beginning, questions) in work.items():
            stage = beginning.checkpoint.stage if beginning.checkpoint else "sft"
            prepare_run(config, folder, problems, stage)
            of_policy = configs.get(name, config)
            with open_session(of_policy, folder, problems, stage, progress, assessed=beginning) as session:
                if any(question.exemplars for question in questions):
                    session.settle_hardware()
                for question, rows in ask(session, name, identity_of(beginning), questions):
                    right = sum(row["speedup"] > 0 for row in rows)
                    progress.note(f"{name}, {question.split}: {right} of {len(rows)} right")


def table_of(folder: RunFolder) -> Table:
    """Return the table of all that was assessed in a run's folder."""
    from cudal1_ray.training.policy_assessment import tables

    title = f"{folder.path}: of all samples, below that of the best of each problem; mean: geometric, a failure is 0.1"
    table = Table(title=escape(title), box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for column in ("policy", "problems"):
        table.add_column(column, overflow="fold")  # a long name takes two lines before a figure is cut
    for column in ("samples", *COLUMNS.values()):
        table.add_column(column, no_wrap=True)
    for (policy, split, exemplars), figures in tables(folder).items():
        problems = f"{figures['problems']:g} {split.replace('_', '-')}" + ("\nwith exemplars" if exemplars else "")
        cells = [""] * len(COLUMNS)
        if figures["samples"]:
            cells = ["\n".join(_cell(key, figures[prefix + key]) for prefix in ("", "best_")) for key in COLUMNS]
        table.add_row(escape(policy), problems, f"{figures['samples']:g}", *cells)
    return table


def _cell(key: str, value: float) -> str:
    return f"{value:.2f}" if key == "geomean" else format_share(value)
