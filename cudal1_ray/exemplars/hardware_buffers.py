"""A buffer for each hardware: what prompts show side by side was measured on one GPU.

The run's `exemplars/` holds those of the hardware that it runs on; `hardware.json` in it names that. Those of others
lie beside it, as `exemplars.<hardware>`, until the run is back there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from cudal1_ray.exemplars.buffer import ExemplarBuffer
from cudal1_ray.exemplars.exemplar import Exemplar
from cudal1_ray.files import write_atomically

NAME = "hardware.json"
# The file of exemplars that are withheld; it is carried over to other hardware: hacks are hacks on any.
WITHHELD = "withheld.json"
# What stands for the name of the hardware where nothing names it: no machine's own.
UNRECORDED = "unrecorded"


def insert_measured(folder: Path, hardware: str, exemplars: Iterable[Exemplar]) -> None:
    """Add exemplars to the buffer of the hardware that measured them, `folder` or one beside it, and save it.

    Args:
        folder: the run's buffer; where there is none yet, it becomes that of this hardware.
    """
    ours = folder if not folder.exists() or hardware_of(folder) == hardware else _beside(folder, hardware)
    ours.mkdir(parents=True, exist_ok=True)
    write_atomically(ours / NAME, json.dumps({"hardware": hardware}))
    buffer = ExemplarBuffer.open(ours, create=True)
    buffer.insert(exemplars)
    buffer.save()


def hardware_of(folder: Path) -> str:
    """Return the hardware that a buffer names; empty where it names none."""
    note = folder / NAME
    return str(json.loads(note.read_text())["hardware"]) if note.exists() else ""


def switch(folder: Path, hardware: str) -> bool:
    """Make `folder` the buffer of this hardware; return whether it was another's, which then lies beside it.

    A buffer that names no hardware, of a new run or an older version, is taken to be of this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    named = hardware_of(folder)
    if not named:
        write_atomically(folder / NAME, json.dumps({"hardware": hardware}))
    if named in ("", hardware):
        return False
    aside, ours = _beside(folder, named), _beside(folder, hardware)
    if aside.exists():  # a switch that was cut short: the newer one is here
        shutil.rmtree(aside)
    folder.rename(aside)
    if ours.exists():
        ours.rename(folder)
    else:
        folder.mkdir()
        write_atomically(folder / NAME, json.dumps({"hardware": hardware}))
    if (aside / WITHHELD).exists():
        shutil.copy(aside / WITHHELD, folder / WITHHELD)
    return True


def buffers_of(folder: Path) -> list[Path]:
    """Return the folders of a run's buffers that are there: `folder` first, then those of other hardware beside it."""
    return [place for place in (folder, *sorted(folder.parent.glob(f"{folder.name}.*"))) if place.is_dir()]


def fastest_elsewhere(folder: Path, count: int, here: ExemplarBuffer) -> list[Exemplar]:
    """Return the `count` fastest accepted exemplars of each problem in the buffers beside `folder`, without problems of
    which any of these exemplars is accepted in `here` too. What the run itself finds here replaces none of them; one
    that several devices measured counts once, as the fastest of them.
    """
    of_problem: dict[str, dict[str, Exemplar]] = defaultdict(dict)
    for place in buffers_of(folder):
        if place == folder:
            continue
        for exemplar in ExemplarBuffer.open(place):
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
