"""The selection strategies: one file and one pure function each, of (view, count, generator, configuration).

A strategy returns a `Draw` of at most `count` positions of accepted exemplars; a failed one is never served.
"""

from __future__ import annotations

from cudal1_ray.exemplars.strategies.best_worst import best_worst
from cudal1_ray.exemplars.strategies.bucket import bucket
from cudal1_ray.exemplars.strategies.island import island
from cudal1_ray.exemplars.strategies.none import none
from cudal1_ray.exemplars.strategies.recent import recent
from cudal1_ray.exemplars.strategies.top_k import top_k
from cudal1_ray.exemplars.strategies.uniform import uniform

BUNDLED = {
    "none": none,
    "uniform": uniform,
    "top_k": top_k,
    "recent": recent,
    "best_worst": best_worst,
    "bucket": bucket,
    "island": island,
}

__all__ = ["BUNDLED", "best_worst", "bucket", "island", "none", "recent", "top_k", "uniform"]
