"""The speedup at which the calls of two sides agree most, with its interval.

On a GPU the times of one call have several heights: the core that launches has two speeds, some places in memory are
faster than others, now and then a call is held up. Means and medians of such a mixture vary with the shares that each
side happened to get, but its form is the same for both. So one side's log times are shifted along the other's until
most of them coincide: the mode of all differences between two calls, or the Hodges-Lehmann estimate with Welsch's
redescending loss (Holland and Welsch 1977). Between a reference and itself its errors are a third of the trimmed mean's
(benchmarks/evaluator/noise.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cudal1_ray.evaluation.timing.statistics import Interval

# Log time within which two calls agree (the kernel's standard deviation).
_WIDTH = 0.03
# Log time of a bin of the histograms.
_BIN = 0.0025
# Share of a side's calls that count; the slowest ones were held up.
_LATEST = 0.9
_RESAMPLINGS = 40


def agreement(references: Sequence[Sequence[float]], candidates: Sequence[Sequence[float]], seed: int) -> Interval:
    """Return the interval of log(t(reference) / t(candidate)), from seconds of each call, batch by batch; the sides may
    have different numbers of calls. `seed`: for resampling the batches, from which the interval comes.
    """
    pairs = len(references)
    logs = [[np.log(np.asarray(batch, dtype=float)) for batch in side] for side in (references, candidates)]
    sides = [np.concatenate(side) for side in logs]
    lowest = min(side.min() for side in sides)
    highest = max(np.quantile(side, _LATEST) for side in sides) + 4 * _WIDTH
    bins = int((highest - lowest) / _BIN) + 2
    size = 1 << math.ceil(math.log2(2 * bins + 8 * _WIDTH / _BIN))
    kernel = np.fft.rfft(np.exp(-0.5 * (np.fft.fftfreq(size) * size * _BIN / _WIDTH) ** 2))
    ours, theirs = (
        np.fft.rfft(np.stack([_histogram(batch, lowest, highest, bins) for batch in side]), size) for side in logs
    )
    centre = float(_peaks(ours.sum(0), theirs.sum(0), kernel, size))
    if pairs < 3:
        return Interval(centre, math.inf, pairs)
    drawn = np.random.default_rng(seed).multinomial(pairs, np.full(pairs, 1 / pairs), size=_RESAMPLINGS)
    peaks = _peaks(drawn @ ours, drawn @ theirs, kernel, size)
    # Around the estimate, not around their mean: an estimate that jumps between heights is sure of neither.
    return Interval(centre, 2 * float(np.sqrt(np.mean((peaks - centre) ** 2))), pairs)


def _histogram(logs: np.ndarray, lowest: float, highest: float, bins: int) -> np.ndarray:
    kept = logs[logs <= highest]
    return np.bincount(np.rint((kept - lowest) / _BIN).astype(int), minlength=bins)[:bins].astype(float)


def _peaks(ours: np.ndarray, theirs: np.ndarray, kernel: np.ndarray, size: int) -> np.ndarray:
    """Return the shifts of `theirs` at which two smoothed histograms, given by their Fourier transforms along the last
    axis, overlap most; between bins by a parabola.
    """
    overlap = np.fft.irfft(ours * np.conj(theirs) * kernel, size)
    top = overlap.argmax(-1)[..., None]
    before, peak, after = (np.take_along_axis(overlap, (top + step) % size, -1) for step in (-1, 0, 1))
    bend = before - 2 * peak + after
    offset = np.where(bend < 0, 0.5 * (before - after) / np.where(bend < 0, bend, 1.0), 0.0)
    return (_BIN * (np.where(top <= size // 2, top, top - size) + offset))[..., 0]
