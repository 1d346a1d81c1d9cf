"""Stage 2: the policy's own candidates, those that run and are right, are what it trains on next.

REINFORCE with reward 1 or 0 and no baseline (arXiv 2507.14111, section 2.2): speed plays no part yet.
"""

from __future__ import annotations

import time

from cudal1_ray.training.reinforcement import policy_sequences
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import contrastive_prompts

STAGE = "self_supervised"


def run_self_supervised(session: Session) -> None:
    """Runs the rounds that the checkpoint does not have yet."""
    settings = session.config.self_supervised
    done = session.steps_done(STAGE)
    session.progress.stage(STAGE, settings.rounds, done)
    session.crew.learner.start_stage(
        settings.learning_rate, temperature=settings.temperature, resumed=done > 0
    )
    session.ensure_published()
    for step in range(done + 1, settings.rounds + 1):
        started = time.perf_counter()
        label = f"{STAGE}/{step}"
        ids = [problem.problem_id for problem in session.train_problems]
        prompts = [session.prompt(problem_id) for problem_id in ids]
        if settings.exemplar_prompts and step > 1:  # the first round's successes are the first exemplars
            prompts += contrastive_prompts(session, ids)
        judged = session.sampler.sample(
            prompts,
            session.problems,
            settings.samples_per_problem,
            session.sampling(settings.temperature, label),
            scope="training",
            label=label,
        )
        rewards, advantages, sequences = policy_sequences(judged, settings.rewards, settings.algorithm, None)
        session.learn("REINFORCE", session.crew.learner.train_policy_gradient, sequences, settings.algorithm)
        session.publish()
        session.remember(judged, step)
        session.finish_step(STAGE, step, started, judged, rewards, advantages, last=step == settings.rounds)
        session.progress.advance(STAGE, f"{sum(j.verdict.accepted for j in judged)}/{len(judged)} accepted")
