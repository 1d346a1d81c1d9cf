"""The selection strategies: one file and one pure function each, of (view, count, generator, configuration).

A strategy returns a `Draw` of at most `count` positions of accepted exemplars; a failed one is served by
`failures_included` alone.
"""

from __future__ import annotations

from cudal1_ray.exemplars.strategies.best_worst import best_worst
from cudal1_ray.exemplars.strategies.bucket import bucket
from cudal1_ray.exemplars.strategies.failures_included import failures_included
from cudal1_ray.exemplars.strategies.island import island
from cudal1_ray.exemplars.strategies.map_elites import map_elites
from cudal1_ray.exemplars.strategies.none import none
from cudal1_ray.exemplars.strategies.novelty_filtered import novelty_filtered
from cudal1_ray.exemplars.strategies.openevolve_mix import openevolve_mix
from cudal1_ray.exemplars.strategies.power_law import power_law
from cudal1_ray.exemplars.strategies.prioritised import prioritised
from cudal1_ray.exemplars.strategies.recent import recent
from cudal1_ray.exemplars.strategies.shinka_weighted import shinka_weighted
from cudal1_ray.exemplars.strategies.top_k import top_k
from cudal1_ray.exemplars.strategies.uniform import uniform

BUNDLED = {
    strategy.__name__: strategy
    for strategy in (
        none,
        uniform,
        top_k,
        recent,
        best_worst,
        bucket,
        island,
        power_law,
        shinka_weighted,
        openevolve_mix,
        map_elites,
        novelty_filtered,
        prioritised,
        failures_included,
    )
}

__all__ = ["BUNDLED", *BUNDLED]
