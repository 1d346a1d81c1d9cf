"""A buffer for each hardware: what prompts show side by side was measured on one GPU.

The run's `exemplars/` holds those of the hardware that it runs on; `hardware.json` in it names that. Those of others
lie beside it, as `exemplars.<hardware>`, until the run is back there.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.exemplars.buffer import ExemplarBuffer
from cudal1_ray.exemplars.exemplar import Exemplar
from cudal1_ray.exemplars.storage import MANIFEST
from cudal1_ray.files import read_json_object, write_atomically

NAME = "hardware.json"
# The file of exemplars that are withheld; it is carried over to other hardware: hacks are hacks on any.
WITHHELD = "withheld.json"
# What stands for the name of the hardware where nothing names it: no machine's own.
UNRECORDED = "unrecorded"


def insert_measured(folder: Path, hardware: str, exemplars: Iterable[Exemplar]) -> None:
    """Add exemplars to the buffer of the hardware that measured them, `folder` or one beside it, and save it.

    Args:
        folder: the run's buffer; where there is none yet, it becomes that of this hardware. One that names no hardware
            may be any's: the exemplars go beside it, and `switch` joins them where it is of this one.
    """
    ours = folder if not folder.exists() or hardware_of(folder) == hardware else _beside(folder, hardware)
    ours.mkdir(parents=True, exist_ok=True)
    _name(ours, hardware)
    buffer = ExemplarBuffer.open(ours, create=True)
    buffer.insert(exemplars)
    buffer.save()


def copy_exemplars(source: Path, target: Path, is_chosen: Callable[[Exemplar], bool], as_seeds: bool = False) -> None:
    """Copy the chosen exemplars of a buffer, with what it withholds and the hardware that it names.

    Args:
        as_seeds: see `Exemplar.as_seed`.
    """
    buffer = ExemplarBuffer.open(target, create=True)
    chosen = filter(is_chosen, ExemplarBuffer.open(source))
    buffer.insert(map(Exemplar.as_seed, chosen) if as_seeds else chosen)
    buffer.save()
    for name in (WITHHELD, NAME):
        if (source / name).exists():
            shutil.copy(source / name, target)


def hardware_of(folder: Path) -> str:
    """Return the hardware that a buffer names; empty where it names none.

    Raises:
        UserError: naming the file that is damaged.
    """
    note = folder / NAME
    hardware = read_json_object(note).get("hardware") if note.exists() else ""
    if not isinstance(hardware, str):
        raise UserError(f"{note}: hardware must be a text; restore it")
    return hardware


def switch(folder: Path, hardware: str) -> bool:
    """Make `folder` the buffer of this hardware; return whether its exemplars are others now.

    A buffer of other hardware then lies beside it. One that names no hardware, of a new run, an older version or a
    switch that was killed, is taken to be of this one, and what lies beside it for this one is joined to it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (named := hardware_of(folder)):
        named = hardware
        _name(folder, hardware)
    aside, ours = _beside(folder, named), _beside(folder, hardware)
    joined = aside.is_dir()
    if joined:
        _join(aside, folder)
    if named == hardware:
        return joined
    ours.mkdir(exist_ok=True)
    _name(ours, hardware)
    if (folder / WITHHELD).exists():
        shutil.copy(folder / WITHHELD, ours / WITHHELD)
    folder.rename(aside)
    ours.rename(folder)  # after a kill before this, the next switch makes `folder` anew and joins its buffer to it
    return True


def _name(folder: Path, hardware: str) -> None:
    """Record the hardware of a buffer."""
    write_atomically(folder / NAME, json.dumps({"hardware": hardware}))


def _join(source: Path, target: Path) -> None:
    """Add the exemplars of a buffer to another of the same hardware, and remove it. Safe to repeat after a kill."""
    buffer = ExemplarBuffer.open(target)
    buffer.insert(ExemplarBuffer.open(source))
    buffer.save()
    if (source / WITHHELD).exists() and not (target / WITHHELD).exists():
        shutil.copy(source / WITHHELD, target / WITHHELD)
    (source / MANIFEST).unlink(missing_ok=True)  # first: without it a half-removed buffer is an empty one
    shutil.rmtree(source)


def buffers_of(folder: Path) -> list[Path]:
    """Return the folders of a run's buffers that are there: `folder` first, then those of other hardware beside it."""
    return [place for place in (folder, *sorted(folder.parent.glob(f"{folder.name}.*"))) if place.is_dir()]


def fastest_elsewhere(buffers: Iterable[ExemplarBuffer], count: int, here: ExemplarBuffer) -> list[Exemplar]:
    """Return the `count` fastest accepted exemplars of each problem in the buffers of other hardware, without problems
    of which any of these exemplars is accepted in `here` too. What the run itself finds here replaces none of them; one
    that several devices measured counts once, as the fastest of them.
    """
    of_problem: dict[str, dict[str, Exemplar]] = defaultdict(dict)
    for exemplar in itertools.chain.from_iterable(buffers):
        group = of_problem[exemplar.problem_id]
        other = group.get(exemplar.exemplar_id)
        if exemplar.speedup > (other.speedup if other else 0.0):
            group[exemplar.exemplar_id] = exemplar
    return [
        exemplar
        for problem_id, group in of_problem.items()
        if not any(exemplar.exemplar_id in group and exemplar.speedup > 0 for exemplar in here.of(problem_id))
        for exemplar in sorted(group.values(), key=lambda e: -e.speedup)[:count]
    ]


def _beside(folder: Path, hardware: str) -> Path:
    return folder.with_name(f"{folder.name}.{re.sub('[^A-Za-z0-9]+', '-', hardware).strip('-').lower()}")
