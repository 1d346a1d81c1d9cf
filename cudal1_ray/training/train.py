"""`cudal1 train`: prepares or continues a run, takes it through its stages, and writes the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from cudal1_ray.actors.member import ActorsLost
from cudal1_ray.analysis import present
from cudal1_ray.config import STAGES, Config
from cudal1_ray.errors import UserError
from cudal1_ray.problems import Problem, load_problems
from cudal1_ray.training.assessment import assess
from cudal1_ray.training.checkpoints import CheckpointStore, TrainingState
from cudal1_ray.training.metrics import RunMetrics
from cudal1_ray.training.pipeline import check_overlap
from cudal1_ray.training.preparation import origin_checkpoint, prepare_run
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.roles import idle_line
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import run_contrastive
from cudal1_ray.training.stages.self_supervised import run_self_supervised
from cudal1_ray.training.stages.sft import run_sft

RUN_STAGE: dict[str, Callable[[Session], None]] = {
    "sft": run_sft,
    "self_supervised": run_self_supervised,
    "contrastive": run_contrastive,
}


def train(config: Config) -> int:
    """Runs the configured stages; returns the exit code.

    Raises:
        UserError: when the configuration, the problems or the run's folder do not allow it.
    """
    problems = load_problems(config.problems)
    if not any(problem.split == "train" for problem in problems):
        raise UserError(f"problems.source={config.problems.source}: no training problem among {len(problems)}")
    if config.policy.kind == "endpoint":
        raise UserError("policy=endpoint: a server gives no weights to train; `cudal1 collect` samples its model")
    check_overlap(config)
    run = RunFolder.open(config)
    stages = list(STAGES) if config.stage == "all" else [config.stage]
    console = Console()
    with Progress(config.name, str(run.path), console) as progress:
        try:
            if not _finished(run, config, stages):
                _run_stages(config, run, problems, stages, progress)
        except KeyboardInterrupt:
            progress.note("interrupted; the same command continues this run")
            return 130
        except ActorsLost as error:
            progress.note(f"stopped: {error}; the same command continues this run")
            return 1
    present(run.path, console)
    return 0


def _run_stages(config: Config, run: RunFolder, problems: list[Problem], stages: list[str], progress: Progress) -> None:
    """Takes the run through its stages; a learner that dies is started again from the last checkpoint."""
    from cudal1_ray.actors.learner import LearnerLost  # Ray takes seconds to import: the input was checked before
    from cudal1_ray.actors.placement import connect

    progress.note("preparing the policy")
    prepare_run(config, run, problems, stages[0])
    progress.note("starting actors")
    connect(config.cluster)
    for losses in range(config.cluster.max_replacements + 1):
        try:
            return _run_with_crew(config, run, problems, stages, progress)
        except LearnerLost as error:
            if losses == config.cluster.max_replacements:
                raise
            progress.note(f"learner: replaced, the run goes on from its last checkpoint ({error})")


@contextmanager
def open_session(
    config: Config, run: RunFolder, problems: list[Problem], first_stage: str, progress: Progress
) -> Iterator[Session]:
    """The actors of a run and its state as the last checkpoint has it. Wants a Ray and a prepared run.

    Raises:
        ActorsLost: on the way in, or within, when a role cannot go on.
    """
    from cudal1_ray.training.crew import Crew

    progress.role("actors", "waiting for a place for the learner")
    crew = Crew(config, run)
    try:
        crew.wait_until_ready(lambda role: progress.role("actors", f"waiting for {role} to start"))
        progress.role("actors", "")
        state = TrainingState(config.seed, config.rewards)
        session = Session(config, run, crew, problems, state, RunMetrics(run), progress)
        _restore(session, first_stage)
        yield session
    finally:
        crew.stop()


def _run_with_crew(
    config: Config, run: RunFolder, problems: list[Problem], stages: list[str], progress: Progress
) -> None:
    with open_session(config, run, problems, stages[0], progress) as session:
        state = session.state
        if not state.stage and stages[0] == "sft":
            assess(session, "untrained")
        for stage in stages:
            if stage not in state.stages_done:
                RUN_STAGE[stage](session)
                if told := idle_line(stage, session.metrics.lines, session.clock.members):
                    progress.note(told)
            if state.stage == stage and state.stage_finished:
                session.ensure_published()
                assess(session, stage)
        for role, causes in session.crew.replacements.items():
            progress.note(f"{role}: {len(causes)} replaced; the last one: {causes[-1]}")


def _restore(session: Session, first_stage: str) -> None:
    """Loads this run's latest checkpoint, or the policy that `init_from` ended the stage before with."""
    checkpoint = session.store.latest()
    if checkpoint is not None:
        session.state.restore_from_path(str(checkpoint.state.resolve()))
        session.progress.note(f"continuing from {checkpoint.path}")
    elif checkpoint := origin_checkpoint(session.config, session.run, first_stage):
        before = TrainingState(session.config.seed, session.config.rewards)
        before.restore_from_path(str(checkpoint.state.resolve()))
        session.state.stages_done = list(before.stages_done)
        session.state.policy_version = before.policy_version
        session.progress.note(f"starting from {checkpoint.path}")
    session.metrics.rewind(session.state.stages_done, session.state.stage, session.state.step)
    if checkpoint is not None:
        session.crew.learner.load(checkpoint.learner)
        session.engines_current = False


def _finished(run: RunFolder, config: Config, stages: list[str]) -> bool:
    """Whether there is nothing left to do, so that no actor need be started to say so."""
    store = CheckpointStore(run.checkpoints, config.checkpoint.keep)
    if any(store.final(stage) is None for stage in stages):
        return False
    if not config.assessment.enabled:
        return True
    return run.assessments.exists() and f'"stage": "{stages[-1]}"' in run.assessments.read_text()
