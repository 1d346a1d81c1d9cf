"""A buffer for each hardware: what prompts show side by side was measured on one GPU.

The run's `exemplars/` holds those of the hardware that it runs on; `hardware.json` in it names that. Those of others
lie beside it, as `exemplars.<hardware>`, until the run is back there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

from cudal1_ray.exemplars.buffer import ExemplarBuffer
from cudal1_ray.exemplars.exemplar import Exemplar
from cudal1_ray.files import write_atomically

NAME = "hardware.json"
# The file of exemplars that are withheld; it is carried over to other hardware: hacks are hacks on any.
WITHHELD = "withheld.json"


def switch(folder: Path, hardware: str) -> Path | None:
    """Make `folder` the buffer of this hardware.

    A buffer that names no hardware, of a new run or an older version, is taken to be of this one.

    Returns:
        Where the buffer that was there lies now; None when it was this hardware's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / NAME
    named = json.loads(note.read_text())["hardware"] if note.exists() else hardware
    if not note.exists():
        write_atomically(note, json.dumps({"hardware": hardware}))
    if named == hardware:
        return None
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
    return aside


def fastest(folder: Path, count: int) -> list[Exemplar]:
    """Return the `count` fastest accepted exemplars of each problem in the buffer at `folder`."""
    of_problem: dict[str, list[Exemplar]] = defaultdict(list)
    for exemplar in ExemplarBuffer.open(folder):
        if exemplar.speedup > 0:
            of_problem[exemplar.problem_id].append(exemplar)
    return [e for group in of_problem.values() for e in sorted(group, key=lambda e: -e.speedup)[:count]]


def _beside(folder: Path, hardware: str) -> Path:
    return folder.with_name(f"{folder.name}.{re.sub('[^A-Za-z0-9]+', '-', hardware).strip('-').lower()}")
