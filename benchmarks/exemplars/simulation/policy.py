"""What a simulated policy writes, given the exemplars that its prompt showed. All of it is assumption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.exemplars.simulation.world import World


@dataclass(frozen=True)
class PolicyRule:
    """A completion starts from one exemplar shown (its model; the reference where none is), and changes it.

    speed_exponent: P(model = e) is proportional to s_e ^ speed_exponent over the accepted exemplars shown; 0: it does
    not read the speedups. contrast = 1 - s_slowest / s_fastest over those shown, 0 for fewer than two.
    drop: probability that a technique of the model is lost. explained: share of that risk which full contrast takes
    away, for techniques that the model has and a slower exemplar shown has not.
    borrow: probability that a technique which another accepted exemplar shows, and the model has not, is taken over.
    inspiration: a technique that no exemplar shows is found with its ease x (1 + inspiration x contrast).
    heed: share of the failure rate that a shown failure takes away, when the change holds a technique that it tried.
    keep_variant: probability that a completion which changes no technique is the model itself, and not a variant.
    """

    name: str
    speed_exponent: float
    explained: float
    inspiration: float
    heed: float
    drop: float = 0.05
    borrow: float = 0.25
    keep_variant: float = 0.9


def reader(speed_exponent: float) -> PolicyRule:
    """Return the main assumption: the speedups beside the code let the policy choose what to keep and where to look.

    speed_exponent: as recorded; the other figures are guesses.
    """
    return PolicyRule("reads the speedups", speed_exponent, explained=1.0, inspiration=2.0, heed=0.25)


# Its opposite: the policy makes nothing of the speedups, it changes some exemplar that it was shown.
COPYIST = PolicyRule("does not read them", speed_exponent=0.0, explained=0.0, inspiration=0.0, heed=0.0)


@dataclass(frozen=True)
class PromptExemplars:
    """The exemplars of one prompt for each problem, padded to N >= 1. masks, variants: int64[P, N], -1 where padded.
    speedup: float64[P, N], as measured, 0 for a failure and where padded.
    """

    masks: np.ndarray
    variants: np.ndarray
    speedup: np.ndarray

    def contrast(self) -> np.ndarray:
        """Return 1 - slowest / fastest of the accepted exemplars shown, float64[P]; 0 for fewer than two."""
        accepted = self.speedup > 0.0
        fastest = self.speedup.max(axis=1)
        slowest = np.where(accepted, self.speedup, np.inf).min(axis=1)
        return np.where(accepted.sum(axis=1) > 1, 1.0 - slowest / np.where(fastest > 0.0, fastest, 1.0), 0.0)


@dataclass(frozen=True)
class Written:
    """Completions, int64[P, G] and bool[P, G]; `copies` are those that are their model, unchanged."""

    masks: np.ndarray
    variants: np.ndarray
    accepted: np.ndarray
    copies: np.ndarray


def write(world: World, rule: PolicyRule, exemplars: PromptExemplars, count: int, rng: np.random.Generator) -> Written:
    """Write `count` completions G for every problem, after the rule."""
    size = (len(world.problem_ids), count)
    techniques = np.arange(world.techniques)
    rows = np.arange(size[0])[:, None]
    accepted = exemplars.speedup > 0.0
    # bool[P, N, T]
    bits = ((exemplars.masks[..., None] >> techniques) & 1).astype(bool) & (exemplars.masks >= 0)[..., None]
    model = _models(exemplars.speedup, accepted, rule.speed_exponent, rng.random(size))  # [P, G], -1 for none
    has_model = model >= 0
    at = np.maximum(model, 0)
    model_bits, model_speed = bits[rows, at] & has_model[..., None], exemplars.speedup[rows, at]

    contrast = exemplars.contrast()[:, None, None]
    slower_lacks = accepted[:, None, :] & (exemplars.speedup[:, None, :] < model_speed[..., None])  # [P, G, N]
    explained = (slower_lacks[..., None] & ~bits[:, None]).any(axis=2) & model_bits
    offered = (bits & accepted[..., None]).any(axis=1)[:, None, :]
    lost = rule.drop * (1.0 - rule.explained * contrast * explained)
    discovery = np.minimum(world.ease[:, None, :] * (1.0 + rule.inspiration * contrast), 1.0)
    gained = 1.0 - (1.0 - discovery) * (1.0 - rule.borrow * offered)
    chance = rng.random((*size, len(techniques)))
    written = np.where(model_bits, chance >= lost, chance < gained)

    same = has_model & (written == model_bits).all(axis=2)
    copies = same & (rng.random(size) < rule.keep_variant)
    variants = np.where(copies, exemplars.variants[rows, at], rng.integers(world.variants, size=size))
    tried = (bits & ~accepted[..., None]).any(axis=1)[:, None, :]
    heeded = (tried & written & ~model_bits).any(axis=2)
    failure = world.failure[:, None] * (1.0 - rule.heed * heeded)
    masks = (written << techniques).sum(axis=2)
    return Written(masks, variants, rng.random(size) >= failure, copies)


def _models(speedup: np.ndarray, accepted: np.ndarray, exponent: float, chance: np.ndarray) -> np.ndarray:
    """Return the exemplar that each completion starts from, int64[P, G]; -1 where no accepted one is shown."""
    weights = np.where(accepted, np.where(accepted, speedup, 1.0) ** exponent, 0.0)
    sums = np.cumsum(weights, axis=1)
    picked = (sums[:, None, :] <= (chance * sums[:, -1:])[..., None]).sum(axis=2)
    return np.where(sums[:, -1:] > 0.0, np.minimum(picked, sums.shape[1] - 1), -1)
