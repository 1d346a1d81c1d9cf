"""Stage 3: contrastive reinforcement learning (arXiv 2507.14111, section 2.3).

Each prompt shows earlier candidates with their measured speedups; GRPO moves the policy toward what then measures
faster; what it found becomes the next exemplars. With `exemplars=none` the same loop is plain GRPO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cudal1_ray.files import JsonLines
from cudal1_ray.learning import AlgorithmConfig, TrainingSequence
from cudal1_ray.prompting import Prompt
from cudal1_ray.training.pipeline import Pipeline, Stage
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.sft import StageOnePairs
from cudal1_ray.training.stopping import RunStopped

STAGE = "contrastive"


def run_contrastive(session: Session, look: Callable[[Session, str, int], None]) -> None:
    """Run the steps that the checkpoint does not have yet.

    Args:
        look: called with the stage's name and the step after every `assessment.every_steps` steps but the last.
    """
    settings, algorithm = session.config.contrastive, session.config.algorithm
    done = session.steps_done(STAGE)
    session.measure_exemplars(session.rotation)
    rehearses = settings.rehearsed_pairs > 0 and settings.learning_rate > 0
    rehearsed = StageOnePairs(session, settings.rehearsed_pairs).of_step if rehearses else None
    session.progress.stage(STAGE, settings.steps, done)
    updates = algorithm.epochs_per_batch * algorithm.minibatches + rehearses
    session.crew.learner.start_stage(
        settings.learning_rate,
        settings.steps * updates,
        settings.warmup_steps,
        temperature=settings.temperature,
        resumed=done > 0,
    )
    settle_reference(session, algorithm, done)
    session.ensure_published()
    stage, every = contrastive_stage(session, done, rehearsed), session.config.assessment.every_steps
    if every and done and done % every == 0:
        _look_or_save(session, look, done)  # which an interruption may have cut short
    while done < settings.steps:
        until = min(settings.steps, (done // every + 1) * every) if every else settings.steps
        Pipeline(session, stage).run(done, until)
        done = until
        if done < settings.steps:
            _look_or_save(session, look, done)


def _look_or_save(session: Session, look: Callable[[Session, str, int], None], done: int) -> None:
    """Look at the policy after a step; write the checkpoint of that step where the run has to end meanwhile."""
    try:
        look(session, STAGE, done)
    except (RunStopped, KeyboardInterrupt):
        if session.stopper.reason(session.last_assessment_s):
            session.checkpoint_if_newer()
        raise


def settle_reference(session: Session, algorithm: AlgorithmConfig, done: int) -> None:
    """Make the learner's policy the reference of the KL term, if there is one, unless a checkpoint of the stage's first
    `done` steps brought its own.
    """
    learner = session.crew.learner
    if algorithm.kl_coef <= 0 or (done and learner.has_reference_policy()):
        return
    if done:
        session.progress.note("the reference policy of the KL term was left out of this checkpoint: it starts anew")
    learner.set_reference_policy()


def contrastive_stage(
    session: Session, done: int = 0, rehearsed: Callable[[int], list[TrainingSequence]] | None = None
) -> Stage:
    """Return the stage as the configuration has it, of which a checkpoint holds the first `done` steps."""
    settings = session.config.contrastive
    selections = JsonLines(session.run.selections)
    selections.keep([row for row in selections if row["step"] <= done])

    def prompts(step: int) -> list[Prompt]:
        ids = _problems_of_step(session, step)
        with_exemplars = contrastive_prompts(session, ids, session.seed(f"{STAGE}/{step}/exemplars"))
        order = np.random.default_rng(session.seed(f"{STAGE}/{step}/one_shot")).permutation(len(ids))
        one_shot = set(order[: round(settings.one_shot_share * len(ids))])
        return [session.prompt(ids[n]) if n in one_shot else prompt for n, prompt in enumerate(with_exemplars)]

    def note_selections(step: int, prompts: Sequence[Prompt]) -> None:
        selections.extend(
            [
                {
                    "stage": STAGE,
                    "step": step,
                    "problem_id": prompt.problem_id,
                    "exemplar_ids": list(prompt.exemplar_ids),
                    "probabilities": list(prompt.exemplar_probabilities),
                }
                for prompt in prompts
            ]
        )

    return Stage(
        STAGE,
        settings.steps,
        prompts,
        settings.group_size,
        settings.temperature,
        session.config.rewards,
        session.config.algorithm,
        smooth=True,
        note_prompts=note_selections,
        staleness=settings.staleness,
        partial_rollouts=settings.partial_rollouts,
        groups=settings.problems_per_step,
        extra_completions=settings.extra_completions,
        ask_again=settings.ask_again,
        min_informative_groups=settings.min_informative_groups,
        turns=settings.turns,
        turn_discount=settings.turn_discount,
        learns=settings.learning_rate > 0,
        rehearsed=rehearsed,
    )


def contrastive_prompts(session: Session, problem_ids: list[str], seed: int) -> list[Prompt]:
    """Return one prompt per problem, its exemplars drawn from the buffer with the seed."""
    selected = session.crew.ask_exemplars("select", problem_ids, seed)
    return [session.prompt(problem_id, selection) for problem_id, selection in zip(problem_ids, selected, strict=True)]


def _problems_of_step(session: Session, step: int) -> list[str]:
    """Return the problems of a step: by what can be learnt from them, or in shuffled passes over the split."""
    ids, settings = session.rotation, session.config.contrastive
    count = min(settings.problems_per_step + settings.extra_problems, len(ids))
    if settings.problem_order == "informative":
        rng = np.random.default_rng(session.seed(f"{STAGE}/{step}/problems"))
        return session.state.problems.draw(ids, count, step, rng)
    first = (step - 1) * count
    chosen = []
    for position in range(first, first + count):
        order = _shuffled(session.config.seed, position // len(ids), len(ids))
        chosen.append(ids[order[position % len(ids)]])
    return chosen


def _shuffled(seed: int, lap: int, length: int) -> list[int]:
    return list(np.random.default_rng((seed, lap)).permutation(length))
