"""Stage 2: the policy's own candidates, those that run and are right, are what it trains on next.

REINFORCE with reward 1 or 0 and no baseline (arXiv 2507.14111, section 2.2): speed plays no part yet.
"""

from __future__ import annotations

from cudal1_ray.prompting import Prompt
from cudal1_ray.training.pipeline import Pipeline, Stage
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import contrastive_prompts, settle_reference

STAGE = "self_supervised"


def run_self_supervised(session: Session) -> None:
    """Run the rounds that the checkpoint does not have yet."""
    settings = session.config.self_supervised
    done = session.steps_done(STAGE)
    if settings.shows_exemplars:
        session.measure_exemplars(session.rotation)
    session.progress.stage(STAGE, settings.rounds, done)
    session.crew.learner.start_stage(
        settings.learning_rate,
        settings.rounds * settings.algorithm.epochs_per_batch * settings.algorithm.minibatches,
        settings.warmup_steps,
        temperature=settings.temperature,
        resumed=done > 0,
    )
    settle_reference(session, settings.algorithm, done)
    session.ensure_published()

    def prompts(step: int) -> list[Prompt]:
        ids = session.rotation
        requests = [session.prompt(problem_id) for problem_id in ids]
        if settings.exemplar_prompts and step > 1:
            requests += contrastive_prompts(session, ids, session.seed(f"{STAGE}/{step}/exemplars"))
        return requests

    stage = Stage(
        STAGE,
        settings.rounds,
        prompts,
        settings.samples_per_problem,
        settings.temperature,
        settings.rewards,
        settings.algorithm,
        learns=settings.learning_rate > 0,
    )
    Pipeline(session, stage).run(done)
