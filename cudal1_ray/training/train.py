"""`cudal1 train`: prepares or continues a run, takes it through its stages, and writes the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rich.console import Console

from cudal1_ray.actors.member import ActorsLost
from cudal1_ray.analysis import present
from cudal1_ray.config import STAGES, Config, stages_of, to_dict
from cudal1_ray.errors import UserError
from cudal1_ray.files import JsonLines
from cudal1_ray.problems import Problem, load_problems
from cudal1_ray.training.assessment import CONTROLS, UNTRAINED, assess, assess_control, assess_during, is_control_due
from cudal1_ray.training.checkpoints import CheckpointStore, TrainingState, read_state
from cudal1_ray.training.metrics import RunMetrics, rewind_rows
from cudal1_ray.training.policy_assessment import take_policy
from cudal1_ray.training.preflight import check_corpora, check_gpus, check_run
from cudal1_ray.training.preparation import Beginning, find_beginning, prepare_run, settle_adapter
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.roles import idle_line
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import run_contrastive
from cudal1_ray.training.stages.self_supervised import run_self_supervised
from cudal1_ray.training.stages.sft import begin_corpus, run_sft
from cudal1_ray.training.stopping import RunStopped, Stopper
from cudal1_ray.training.tracking import open_tracker

RUN_STAGE: dict[str, Callable[[Session], None]] = {
    "sft": run_sft,
    "self_supervised": run_self_supervised,
    "contrastive": lambda session: run_contrastive(session, assess_during),
}


def train(config: Config, command: str = "") -> int:
    """Run the configured stages; return the exit code.

    Args:
        command: the command line that continues the run, for the message where it ends early.

    Returns:
        0: done, or ended early with a checkpoint (`max_minutes`, SIGTERM); 1: it could not go on; 130: interrupted.

    Raises:
        UserError: when the configuration, the problems or the run's folder do not allow it.
    """
    check_run(config)
    check_corpora(config)
    problems = load_problems(config.problems)
    if not any(problem.split == "train" for problem in problems):
        raise UserError(f"problems.source={config.problems.source}: no training problem among {len(problems)}")
    stopper = Stopper(config.max_minutes)
    settle_adapter(config)
    with RunFolder.of(config).claimed():
        return _train(config, problems, stopper, command)


def _train(config: Config, problems: list[Problem], stopper: Stopper, command: str) -> int:
    """Train the run, whose folder no other command trains now; see `train`."""
    _check_stages(config)
    run = RunFolder.open(config)
    run.record_problems(problems)
    stages = stages_of(config)
    console = Console()
    with Progress(config.name, str(run.path), console) as progress:
        try:
            if not is_finished(config):
                _run_stages(config, run, problems, stages, progress, stopper)
        except (RunStopped, KeyboardInterrupt) as stop:
            if isinstance(stop, KeyboardInterrupt) and not stopper.terminated:
                progress.note("interrupted; the same command continues this run")
                return 130
            again = command or "the same command"
            progress.note(f"ended early ({str(stop) or 'SIGTERM'}); all that is finished is kept. To continue: {again}")
            return 0
        except ActorsLost as error:
            progress.note(f"stopped: {error}; the same command continues this run")
            return 1
    present(run.path, console)
    return 0


def _check_stages(config: Config) -> None:
    """Raise UserError where a stage is asked for that the run has left out before a later one: it would begin with the
    policy of the later one and replace its checkpoints.
    """
    run = RunFolder.of(config)
    if (latest := CheckpointStore(run.checkpoints, config.checkpoint.keep).latest()) is None:
        return
    passed, done = STAGES[: STAGES.index(latest.stage)], read_state(latest).stages_done
    if missing := next((stage for stage in stages_of(config) if stage in passed and stage not in done), ""):
        raise UserError(
            f"stage={config.stage}: {run.path} began its {latest.stage} stage without {missing}; give a run with "
            f"{missing} another name=..."
        )


def _run_stages(
    config: Config, run: RunFolder, problems: list[Problem], stages: list[str], progress: Progress, stopper: Stopper
) -> None:
    """Take the run through its stages; where the learner dies, all actors start again from the last checkpoint."""
    from cudal1_ray.actors.learner import LearnerLost  # Ray takes seconds to import: the input was checked before
    from cudal1_ray.actors.placement import connect

    check_gpus(config)
    stopper.listen()
    progress.note("preparing the policy, starting Ray")
    with ThreadPoolExecutor(1, "prepare") as beside:  # each takes some seconds
        prepared = beside.submit(prepare_run, config, run, problems, stages[0])
        with stopper.while_ray_starts():
            connect(config.cluster)
        prepared.result()
    progress.note("starting actors")
    for losses in range(config.cluster.max_replacements + 1):
        try:
            return _run_with_crew(config, run, problems, stages, progress, stopper)
        except LearnerLost as error:
            stopper.check()  # a signal to all processes of the run ends the learner before its step
            if losses == config.cluster.max_replacements:
                raise
            progress.note(f"learner: replaced, the run goes on from its last checkpoint ({error})")


@contextmanager
def open_session(
    config: Config,
    run: RunFolder,
    problems: list[Problem],
    first_stage: str,
    progress: Progress,
    stopper: Stopper | None = None,
    assessed: Beginning | None = None,
) -> Iterator[Session]:
    """Yield the actors of a run and its state as the last checkpoint has it. Needs a started Ray and a prepared run.

    Args:
        assessed: a policy to take instead, of which samples are drawn; nothing that the run has written changes.

    Raises:
        ActorsLost: on the way in, or within, when a role cannot go on.
    """
    from cudal1_ray.training.crew import Crew

    progress.role("actors", "waiting for a place for the learner")
    tracker = None if assessed else open_tracker(config.tracking, run.path, to_dict(config))
    beginning = assessed or find_beginning(config, run, first_stage)
    crew = Crew(config, run, beginning.adapter)
    try:
        started, ready = time.perf_counter(), {}

        def waiting_for(role: str) -> None:
            ready[role] = time.perf_counter() - started  # when those before it were all up
            progress.role("actors", f"waiting for {role} to start")

        crew.wait_until_ready(waiting_for)
        progress.role("actors", "")
        progress.note(start_line(ready, time.perf_counter() - started))
        state = TrainingState(config.seed, config.rewards)
        session = Session(config, run, crew, problems, state, RunMetrics(run, tracker), progress, stopper)
        if crew.no_adapter_reason:
            progress.note(f"adapters are merged into the engine's weights: {crew.no_adapter_reason}")
        if assessed is not None:
            take_policy(session, assessed)
        else:
            _restore(session, first_stage, beginning)
            session.settle_hardware()
        yield session
    finally:
        crew.stop()
        if tracker is not None:
            tracker.finish()


def start_line(waited_from_s: dict[str, float], total_s: float) -> str:
    """Return one line: how long the start took, and until when each role was waited for; all of them start side by
    side.

    Args:
        waited_from_s: seconds from the start on, by role, in order, at which the wait for it began.
    """
    ends = [*list(waited_from_s.values())[1:], total_s]
    text = ", ".join(f"{role} {end:.0f}" for role, end in zip(waited_from_s, ends, strict=True))
    return f"actors started in {total_s:.0f} s (up after: {text})"


def _run_with_crew(
    config: Config, run: RunFolder, problems: list[Problem], stages: list[str], progress: Progress, stopper: Stopper
) -> None:
    with open_session(config, run, problems, stages[0], progress, stopper) as session:
        state = session.state
        session.ensure_published()
        if not state.stage:
            if stages[0] == "sft":
                begin_corpus(session)  # the untrained policy leaves evaluators with next to nothing to do
            if config.assessment.initial:
                assess(session, UNTRAINED)
        for stage in stages:
            stopper.check(session.last_step_s)
            if stage not in state.stages_done:
                RUN_STAGE[stage](session)
                if line := idle_line(stage, session.metrics.lines, session.clock.members):
                    progress.note(line)
            if state.stage == stage and state.stage_finished:
                session.ensure_published()
                assess(session, stage)
        if state.stage == "contrastive" and state.stage_finished:
            assess_control(session)
        for role, causes in session.crew.replacements.items():
            progress.note(f"{role}: {len(causes)} replaced; the last one: {causes[-1]}")


def _restore(session: Session, first_stage: str, beginning: Beginning) -> None:
    """Load this run's latest checkpoint, or the policy of the one that it starts from."""
    state, checkpoint = session.state, beginning.checkpoint
    if checkpoint is not None and beginning.own:
        state.restore_from_path(str(checkpoint.state.resolve()))
        session.restored()
        session.progress.note(f"continuing from {checkpoint.path}")
        if state.stage_finished and state.step < steps_of(session.config, state.stage):
            state.stage_finished = False
            state.stages_done.remove(state.stage)
            table = JsonLines(session.run.assessments)
            stale = {row["stage"] for row in table if row["stage"].startswith(state.stage)} | CONTROLS
            table.keep([row for row in table if row["stage"] not in stale])  # a control had the exemplars of the time
            if checkpoint.final:
                checkpoint = session.store.reopen(checkpoint, state.step)
    elif checkpoint is not None:
        before = read_state(checkpoint)
        earlier = STAGES[: STAGES.index(first_stage)]
        state.stages_done = [stage for stage in before.stages_done if stage in earlier]
        state.policy_version = before.policy_version
        session.progress.note(f"starting from {checkpoint.path}")
    for lines in (session.metrics.lines, JsonLines(session.run.assessments_during)):
        rewind_rows(lines, state.stages_done, state.stage, state.step)
    session.crew.ask_exemplars("rewind", state.policy_version)
    if checkpoint is not None:
        learner = session.crew.learner
        if beginning.own:
            learner.load(checkpoint.learner, beginning.whole)
        elif beginning.whole:
            learner.load(checkpoint.learner)
        if beginning.own and not beginning.whole:
            session.progress.note("the optimiser's state is not there or fits no learner of this shape: it starts anew")
    session.engines_current = checkpoint is None and beginning.adapter is None


def steps_of(config: Config, stage: str) -> int:
    """Return the steps of a whole stage: its epochs, rounds or steps."""
    return {
        "sft": config.sft.epochs,
        "self_supervised": config.self_supervised.rounds,
        "contrastive": config.contrastive.steps,
    }[stage]


def is_finished(config: Config) -> bool:
    """Return whether the run that `config` describes has nothing left to do, by its files alone."""
    run, stages = RunFolder.of(config), stages_of(config)
    store = CheckpointStore(run.checkpoints, config.checkpoint.keep)
    finals = [store.final(stage) for stage in stages]
    if any(final is None or read_state(final).step < steps_of(config, final.stage) for final in finals):
        return False
    if not config.assessment.enabled:
        return True
    if not run.assessments.exists() or f'"stage": "{stages[-1]}"' not in run.assessments.read_text():
        return False
    return stages[-1] != "contrastive" or not is_control_due(config, run)
