"""The pieces of packed runs, after kills, and what is no piece."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from benchmarks.paper import travel
from cudal1_ray.errors import UserError

RUN = "seed-1-bucket"


def pack(runs: Path, out: Path, note: str) -> set[str]:
    """Pack the runs, one with a note, and return the names of the pieces."""
    (runs / RUN / "note").write_text(note)
    list(travel.pack_runs(runs, set(), out, 8.0, 0.01))
    return {file.name for file in out.iterdir()}


def unpacked_note(packed: Path, target: Path) -> str:
    assert len(list(travel.unpack_runs([packed], target))) == 4
    return (target / RUN / "note").read_text()


def test_pack_when_killed_while_it_is_written_leaves_the_earlier_one(runs, tmp_path, monkeypatch):
    packed, replacing = tmp_path / "packed", travel.replacing
    pack(runs, packed, "earlier")

    def replacing_until_killed(path: Path):
        if ".002-of-" in path.name:
            raise KeyboardInterrupt
        return replacing(path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(travel, "replacing", replacing_until_killed)
        pack(runs, packed, "later")
    assert unpacked_note(packed, tmp_path / "before") == "earlier"
    names = pack(runs, packed, "last")
    assert unpacked_note(packed, tmp_path / "after") == "last" and len({name.split(".")[2] for name in names}) == 1


def test_unpack_when_a_kill_left_two_packs_takes_the_newer_one(runs, tmp_path):
    packed, earlier = tmp_path / "packed", tmp_path / "earlier"
    pack(runs, earlier, "earlier")
    pack(runs, packed, "later")
    for file in earlier.iterdir():
        os.utime(file, (1.0, 1.0))
        shutil.copy2(file, packed)
    assert unpacked_note(packed, tmp_path / "there") == "later"


def test_unpack_when_pieces_are_of_an_earlier_version_reads_them(runs, tmp_path):
    for name in pack(runs, tmp_path / "packed", "old"):
        first, second, _, number = name.split(".")
        (tmp_path / "packed" / name).rename(tmp_path / "packed" / f"{first}.{second}.{number}")
    assert unpacked_note(tmp_path / "packed", tmp_path / "there") == "old"


@pytest.mark.parametrize("name", ["x.tar", "absent", "table.pack.001-of-001"])
def test_unpack_when_a_path_is_no_piece_names_it_and_what_to_give(tmp_path, name):
    (tmp_path / "x.tar").write_bytes(b"")
    with pytest.raises(UserError, match=f"{name}: no piece of packed runs; give the folder that --pack wrote"):
        list(travel.unpack_runs([tmp_path / name], tmp_path / "there"))
