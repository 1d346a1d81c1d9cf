"""Fast exemplars that are not variants of one another."""

from __future__ import annotations

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.features import similarity
from cudal1_ray.exemplars.view import Draw, ProblemView, pick, softmax


def novelty_filtered(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw one after another, P(i) = exp(s_i / tau) / sum_j exp(s_j / tau) over those that are novel.

    Novel are accepted exemplars whose code is no more similar than `novelty_threshold` to any drawn before.
    Similarity is the cosine of the codes' shingle counts as `features.sketch` estimates it: no embedding model is
    asked. When none is novel any more, fewer are served: two variants of one program would be no contrast.
    Source: the code novelty rejection of ShinkaEvolve (arXiv 2509.19349; `code_embed_sim_threshold`: proposals whose
    embedding is too near to that of an archived program are rejected), applied here to what a prompt shows.
    """
    left = view.accepted()
    positions: list[int] = []
    probabilities: list[float] = []
    while len(positions) < count and len(left):
        p = softmax(view.speedup[left], config.tau)
        at = pick(p, rng)
        positions.append(int(left[at]))
        probabilities.append(float(p[at]))
        novel = similarity(view.sketch[left], int(view.sketch[left[at]])) <= config.novelty_threshold
        novel[at] = False
        left = left[novel]
    return Draw(tuple(positions), tuple(probabilities))
