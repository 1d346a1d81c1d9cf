"""Choose the sizes at which a problem keeps a GPU busy and is still cheap to evaluate.

The larger of a call's inputs and outputs ends between `LOWEST` and `HIGHEST`. Only constants that are sizes of inputs
alone change (`constants.size_constants`), so the model, its parameters and its hyper-parameters stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cudal1_ray.problems.sizes.footprint import Footprint, footprint
from cudal1_ray.source.size_constants import rewrite, size_constants

MIB = 2**20
LOWEST = 64 * MIB
HIGHEST = 256 * MIB

# A smaller problem grows only when one call gives an H100 less than about 50 us of work: 160 MiB moved at its
# 3.35 TB/s, or 2.5e9 operations at the 50 TFLOP/s that fp32 products reach.
BUSY_TRAFFIC = 160 * MIB
BUSY_FLOPS = 2.5e9

# No size shrinks below this: at 1 a dimension broadcasts, and statistics over it mean something else.
SMALLEST = 2

_BATCH = re.compile(r"batch\w*|b|bs|n_?batch", re.IGNORECASE)
_SPATIAL = re.compile(
    r"(height|width|depth|length|sequence|seq|spatial|input_length|input_shape)\w*(\[\d\])?|dim\d+|[hwdtlmnk]",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Scaled:
    """The outcome for one problem.

    Attributes:
        values: constant -> new value; empty where the published sizes stay.
        reason: why they stay, "" where they changed.
        fits: whether the call is within the limits at these sizes, or at least busy.
        published_bytes, bytes: the larger of inputs and outputs, before and after.
    """

    values: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    fits: bool = False
    published_bytes: int = 0
    bytes: int = 0


def scale(source: str) -> Scaled:
    """Find the values of a problem's size constants. Runs the problem's code on the meta device."""
    try:
        published = footprint(source)
    except Exception as error:  # the problem's own code: anything
        return Scaled(reason=f"does not run on the meta device: {type(error).__name__}: {str(error)[:200]}")
    before = published.size
    too_large = before > HIGHEST
    if not too_large and (before >= LOWEST or _busy(published)):
        reason = "in range" if before >= LOWEST else "small inputs, but enough work"
        return Scaled(reason=reason, fits=True, published_bytes=before, bytes=before)
    constants = {name: constant.value for name, constant in size_constants(source).items()}
    if not constants:
        return Scaled(reason="no constant is a size of inputs alone", published_bytes=before, bytes=before)

    def at(values: dict[str, int]) -> Footprint | None:
        try:
            reached = footprint(rewrite(source, values))
        except Exception:  # a size at which the model does not run
            return None
        return reached if same_problem(published, reached) else None

    values, reached = _shrink(constants, published, at) if too_large else _grow(constants, published, at)
    changed = {name: value for name, value in values.items() if value != constants[name]}
    met = reached.size <= HIGHEST if too_large else reached.size >= LOWEST or _busy(reached)
    if not changed or not met:
        reason = f"reaches {reached.size / MIB:.0f} MiB only"
        return Scaled(reason=reason, published_bytes=before, bytes=before)
    return Scaled(values=changed, fits=True, published_bytes=before, bytes=reached.size)


def _busy(footprint: Footprint) -> bool:
    return footprint.traffic >= BUSY_TRAFFIC or footprint.flops >= BUSY_FLOPS


def same_problem(published: Footprint, scaled: Footprint) -> bool:
    """Return whether only extents of inputs and outputs differ.

    Parameters and buffers have their shapes, inputs and outputs their number, ranks and types, no extent became 1 or
    stopped being 1, and the same operators run in the same order.
    """
    alike = published.state == scaled.state and published.operators == scaled.operators
    for before, after in ((published.inputs, scaled.inputs), (published.outputs, scaled.outputs)):
        alike = alike and len(before) == len(after)
        alike = alike and all(_alike(b, a) for b, a in zip(before, after, strict=False))
    return alike


def _alike(before: Any, after: Any) -> bool:
    if isinstance(before, str) or isinstance(after, str):
        return before == after
    (shape, dtype), (other, other_dtype) = before, after
    if dtype != other_dtype or len(shape) != len(other):
        return False
    return all((x == 1) == (y == 1) for x, y in zip(shape, other, strict=True))


def _shrink(
    constants: dict[str, int], published: Footprint, at: Callable[[dict[str, int]], Footprint | None]
) -> tuple[dict[str, int], Footprint]:
    """Halve sizes until `HIGHEST` is met: the batch first, then the largest spatial sizes, then the largest others.

    Equal sizes of one kind shrink together (a square stays one) unless that overshoots `LOWEST`; equal sizes of all
    kinds do where the model does not run otherwise.
    """
    values, reached = dict(constants), published
    stuck: set[str] = set()
    while reached.size > HIGHEST:
        group = _next_group(values, stuck)
        if not group:
            break
        halved = None
        equal = [name for name, value in values.items() if value == values[group[0]]]
        for names in (group, group[:1], equal):
            trial = values | {name: (values[name] + 1) // 2 for name in names}
            halved = at(trial)
            if halved is not None and LOWEST <= halved.size < reached.size:
                break
            halved = None
        if halved is None:
            stuck |= set(group)
        else:
            values, reached = trial, halved
    return values, reached


def _next_group(values: dict[str, int], stuck: set[str]) -> list[str]:
    free = [name for name, value in values.items() if name not in stuck and (value + 1) // 2 >= SMALLEST]
    for matches in (_BATCH.fullmatch, _SPATIAL.fullmatch, lambda name: True):
        kind = [name for name in free if matches(name)]
        if kind:
            largest = max(values[name] for name in kind)
            return [name for name in kind if values[name] == largest]
    return []


def _grow(
    constants: dict[str, int], published: Footprint, at: Callable[[dict[str, int]], Footprint | None]
) -> tuple[dict[str, int], Footprint]:
    """Double the batch, or without one the largest spatial sizes, until `LOWEST` is met or the device is busy."""
    names = [name for name in constants if _BATCH.fullmatch(name)][:1]
    if not names:
        spatial = {name: value for name, value in constants.items() if _SPATIAL.fullmatch(name)}
        names = [name for name, value in spatial.items() if value == max(spatial.values())]
    values, reached = dict(constants), published
    while names and reached.size < LOWEST and not _busy(reached):
        trial = values | {name: 2 * values[name] for name in names}
        doubled = at(trial)
        if doubled is None or doubled.size > HIGHEST or doubled.size <= reached.size:
            break
        values, reached = trial, doubled
    return values, reached
