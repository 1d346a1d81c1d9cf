"""Sub-populations that evolve apart: exemplars of one prompt come from one island."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.exemplars.view import Draw, ProblemView, draw_softmax, softmax


@dataclass
class Islands:
    """The islands of each exemplar after the first `seen` exemplars of a problem.

    members[i] lists the positions on island i, best[i] is the fastest of them (None when there is none); bit i of
    homes[p] is set where p is on island i (founders and migrants are on several); seeded[i] counts the resets up to the
    last reseeding of island i.
    """

    members: list[list[int]]
    best: list[int | None]
    seeded: list[int]
    homes: list[int] = field(default_factory=list)
    seen: int = 0
    accepted: int = 0
    rootless: int = 0


def island(view: ProblemView, count: int, rng: np.random.Generator, config: ExemplarsConfig) -> Draw:
    """Draw one inhabited island uniformly, then `count` of its exemplars without replacement.

    Within the island every draw is a softmax over those left, P(i) = exp(s_i / tau) / sum_j exp(s_j / tau).
    An island with fewer exemplars than asked serves what it has. The probabilities returned do not presume
    the island: P(first = a) = sum over islands I of P(I) P(a | I), and so on for each later draw given those
    before it; only founders and migrants, which live on several islands, make a difference.
    Sources: FunSearch (Romera-Paredes et al., Nature 2024, islands and resets); CUDA-L1 (arXiv 2507.14111);
    OpenEvolve (migration of the best along a ring).
    """
    visible, islands = view.may_be_shown, (np.asarray(group, dtype=np.int64) for group in settle(view, config).members)
    populations = [members[visible[members]] for members in islands if visible[members].any()]
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
    """Return the islands of a problem, replayed in order of insertion; failed exemplars live nowhere.

    An exemplar joins the island that all its parents share (its prompt came from there; if they share
    several, the one reseeded last, where a founder is alone). Without such an island it goes to the islands
    in turn. After every `island_reset_every` accepted exemplars the weaker half of the islands, by best
    speedup, is emptied, and each gets as its founder the best of a stronger one: the weakest takes from the
    strongest, and so on in turn. After every `island_migrate_every` the best of each island also joins the next
    island of the ring; one that already is on several stays. When both are due, only the reset happens. A replay
    costs O(n), so the memo of the view continues where the last one ended: O(new exemplars).
    """
    key = ("island", config.islands, config.island_reset_every, config.island_migrate_every)
    state = view.memo.get(key)
    if state is None or state.seen > len(view):  # nothing yet, or what is there is ahead of an older view
        state = Islands([[] for _ in range(config.islands)], [None] * config.islands, [0] * config.islands)
        view.memo.setdefault(key, state)
    start = state.seen
    speedup = view.speedup.tolist() if start == 0 else view.speedup  # plain floats are quicker by the thousand
    parents = view.parents[start:]
    state.homes += [0] * len(parents)
    for position, parent in enumerate(parents, start):
        if speedup[position] > 0.0:
            _join(state, position, _home(state, parent), speedup)
            state.accepted += 1
            if state.accepted % config.island_reset_every == 0:
                _reset(state, speedup)
            elif config.island_migrate_every and state.accepted % config.island_migrate_every == 0:
                _migrate(state, speedup)
    state.seen = len(view)
    return state


def _home(state: Islands, parents: tuple[int, ...]) -> int:
    shared = -1 if parents else 0
    for parent in parents:
        shared &= state.homes[parent]
    if shared & (shared - 1):  # several
        return max(_islands(shared), key=lambda i: (state.seeded[i], -i))
    if shared:
        return shared.bit_length() - 1
    state.rootless += 1
    return (state.rootless - 1) % len(state.members)


def _islands(homes: int) -> list[int]:
    return [i for i in range(homes.bit_length()) if homes >> i & 1]


def _join(state: Islands, position: int, home: int, speedup) -> None:
    state.members[home].append(position)
    state.homes[position] |= 1 << home
    best = state.best[home]
    if best is None or speedup[position] > speedup[best]:
        state.best[home] = position


def _migrate(state: Islands, speedup) -> None:
    travellers = list(state.best)  # of one moment: none moves two islands at once
    for i, position in enumerate(travellers):
        if position is not None and state.homes[position] == 1 << i and len(travellers) > 1:
            _join(state, position, (i + 1) % len(travellers), speedup)


def _reset(state: Islands, speedup) -> None:
    best = list(state.best)
    ranked = sorted(range(len(best)), key=lambda i: -1.0 if best[i] is None else speedup[best[i]])
    half = len(ranked) // 2
    weak, strong = ranked[:half], ranked[half:][::-1]
    resets = max(state.seeded) + 1
    for turn, i in enumerate(weak):
        founder = best[strong[turn % len(strong)]]
        if founder is None:
            continue
        for position in state.members[i]:
            state.homes[position] &= ~(1 << i)
        state.members[i], state.best[i] = [], None
        state.seeded[i] = resets
        _join(state, founder, i, speedup)
