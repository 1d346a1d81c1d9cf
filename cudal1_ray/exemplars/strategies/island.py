"""Sub-populations that evolve apart: exemplars of one prompt come from one island."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, draw_softmax, softmax


@dataclass
class Islands:
    """Who lives where after the first `seen` exemplars of a problem.

    members[i] lists the positions on island i; homes maps a position to the islands it is on (a founder is on
    two); seeded[i] counts the resets up to the last reseeding of island i.
    """

    members: list[list[int]]
    seeded: list[int]
    homes: dict[int, set[int]] = field(default_factory=dict)
    seen: int = 0
    accepted: int = 0
    rootless: int = 0


def island(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draws one inhabited island uniformly, then `count` of its exemplars without replacement.

    Within the island every draw is a softmax over those left, P(i) = exp(s_i / tau) / sum_j exp(s_j / tau).
    An island with fewer exemplars than asked serves what it has. The probabilities returned do not presume
    the island: P(first = a) = sum over islands I of P(I) P(a | I), and so on for each later draw given those
    before it; only a founder, which lives on two islands, makes a difference.
    Sources: FunSearch (Romera-Paredes et al., Nature 2024, islands and resets); CUDA-L1 (arXiv 2507.14111).
    """
    populations = [np.asarray(members) for members in settle(view, config).members if members]
    if not populations:
        return Draw()
    members = populations[rng.integers(len(populations))]
    drawn = members[draw_softmax(view.speedup[members], count, config.tau, rng)[0]].tolist()
    return Draw(tuple(drawn), _probabilities(drawn, populations, view.speedup, config.tau))


def _probabilities(
    drawn: list[int], populations: list[np.ndarray], speedup: np.ndarray, tau: float
) -> tuple[float, ...]:
    # joint[I]: probability that island I is chosen and yields the draws so far; their sum's growth is the
    # answer.
    left = [members for members in populations if drawn and drawn[0] in members]
    joint = np.full(len(left), 1.0 / len(populations))
    answer, before = [], 1.0
    for position in drawn:
        for i, members in enumerate(left):
            at = members == position
            joint[i] *= softmax(speedup[members], tau)[at].sum() if at.any() else 0.0
            left[i] = members[~at]
        answer.append(float(joint.sum() / before))
        before = joint.sum()
    return tuple(answer)


def settle(view: ProblemView, config: ExemplarsConfig) -> Islands:
    """The islands of a problem, replayed in order of insertion; failed exemplars live nowhere.

    An exemplar joins the island that all its parents share (its prompt came from there; if they share
    several, the one reseeded last, where a founder is alone). Without such an island it goes to the islands
    in turn. After every `island_reset_every` accepted exemplars the weaker half of the islands, by best
    speedup, is emptied, and each gets as its founder the best of a stronger one: the weakest takes from the
    strongest, and so on in turn. A replay costs O(n), so the memo of the view continues where the last one
    ended: O(new exemplars).
    """
    key = ("island", config.islands, config.island_reset_every)
    state = view.memo.get(key)
    if state is None or state.seen > len(view):  # nothing yet, or what is there is ahead of an older view
        state = Islands([[] for _ in range(config.islands)], [0] * config.islands)
        view.memo.setdefault(key, state)
    for position in range(state.seen, len(view)):
        if view.speedup[position] > 0.0:
            _join(state, position, _home(state, view.parents[position] if view.parents else ()))
            state.accepted += 1
            if state.accepted % config.island_reset_every == 0:
                _reset(state, view.speedup)
    state.seen = len(view)
    return state


def _home(state: Islands, parents: tuple[int, ...]) -> int:
    shared = set.intersection(*(state.homes.get(p, set()) for p in parents)) if parents else set()
    if shared:
        return max(shared, key=lambda i: (state.seeded[i], -i))
    state.rootless += 1
    return (state.rootless - 1) % len(state.members)


def _join(state: Islands, position: int, home: int) -> None:
    state.members[home].append(position)
    state.homes.setdefault(position, set()).add(home)


def _reset(state: Islands, speedup: np.ndarray) -> None:
    best = [max(members, key=lambda p: speedup[p], default=None) for members in state.members]
    ranked = sorted(range(len(best)), key=lambda i: -1.0 if best[i] is None else speedup[best[i]])
    half = len(ranked) // 2
    weak, strong = ranked[:half], ranked[half:][::-1]
    resets = max(state.seeded) + 1
    for turn, i in enumerate(weak):
        founder = best[strong[turn % len(strong)]]
        if founder is None:
            continue
        for position in state.members[i]:
            state.homes[position].discard(i)
        state.members[i] = []
        state.seeded[i] = resets
        _join(state, founder, i)
