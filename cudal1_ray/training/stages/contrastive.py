"""Stage 3: contrastive reinforcement learning (arXiv 2507.14111, section 2.3).

Each prompt shows earlier candidates with their measured speedups; GRPO moves the policy toward what then measures
faster; what it found becomes the next exemplars. With `exemplars=none` the same loop is plain GRPO.
"""

from __future__ import annotations

import time

import numpy as np

from cudal1_ray.prompting import Prompt
from cudal1_ray.training.reinforcement import policy_sequences
from cudal1_ray.training.run_folder import JsonLines
from cudal1_ray.training.session import Session

STAGE = "contrastive"


def run_contrastive(session: Session) -> None:
    """Runs the steps that the checkpoint does not have yet."""
    settings, algorithm = session.config.contrastive, session.config.algorithm
    done = session.steps_done(STAGE)
    session.progress.stage(STAGE, settings.steps, done)
    session.crew.learner.start_stage(
        settings.learning_rate, temperature=settings.temperature, resumed=done > 0
    )
    if done == 0 and algorithm.kl_coef > 0:
        session.crew.learner.set_reference_policy()
    session.ensure_published()
    selections = JsonLines(session.run.selections)
    selections.keep([row for row in selections if row["step"] <= done])
    for step in range(done + 1, settings.steps + 1):
        started = time.perf_counter()
        label = f"{STAGE}/{step}"
        prompts = contrastive_prompts(session, _problems_of_step(session, step))
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
        judged = session.sampler.sample(
            prompts,
            session.problems,
            settings.group_size,
            session.sampling(settings.temperature, label),
            scope="training",
            label=label,
        )
        rewards, advantages, sequences = policy_sequences(
            judged, session.config.rewards, algorithm, session.state.smoother
        )
        session.learn(algorithm.name, session.crew.learner.train_policy_gradient, sequences, algorithm)
        session.publish()
        session.remember(judged, step)
        session.finish_step(STAGE, step, started, judged, rewards, advantages, last=step == settings.steps)
        session.progress.advance(STAGE, f"{sum(j.verdict.accepted for j in judged)}/{len(judged)} accepted")


def contrastive_prompts(session: Session, problem_ids: list[str]) -> list[Prompt]:
    """One prompt per problem, its exemplars drawn from the buffer with the run's generator."""
    seed = int(session.state.rng.integers(2**62))
    selected = session.crew.ask_exemplars("select", problem_ids, seed)
    return [
        session.prompt(problem_id, selection)
        for problem_id, selection in zip(problem_ids, selected, strict=True)
    ]


def _problems_of_step(session: Session, step: int) -> list[str]:
    """Problems in shuffled passes over the training split, so that each is seen equally often."""
    ids = [problem.problem_id for problem in session.train_problems]
    count = min(session.config.contrastive.problems_per_step, len(ids))
    first = (step - 1) * count
    chosen = []
    for position in range(first, first + count):
        order = _shuffled(session.config.seed, position // len(ids), len(ids))
        chosen.append(ids[order[position % len(ids)]])
    return chosen


def _shuffled(seed: int, lap: int, length: int) -> list[int]:
    return list(np.random.default_rng((seed, lap)).permutation(length))
