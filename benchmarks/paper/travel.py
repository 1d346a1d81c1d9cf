"""The runs of a table from one machine to the next, in pieces of a bounded size."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.paper.arms import ARMS
from benchmarks.paper.records import read_arms
from cudal1_ray.errors import UserError
from cudal1_ray.files import replacing, replacing_folder
from cudal1_ray.training.checkpoints import CheckpointStore
from cudal1_ray.training.packing import MIB, ROLLOUTS, pack, unpack

# Of a run that is finished, the results: everything but these.
LEFT_OUT = ("checkpoints", "policy", "adapter", "tb", "extensions", "report")
PIECE = "table.pack."
# Name of a piece: the first digits of the pack's SHA-256, which older ones do not have, its number and their number.
_PIECE_NAME = re.compile(re.escape(PIECE) + r"(?:([0-9a-f]{8})\.)?\d+-of-(\d+)")
# Arms whose policies others start from.
STARTS = frozenset(arm.start for arm in ARMS.values() if arm.start)


def pack_runs(runs: Path, whole: set[Path], out: Path, limit_mib: float, split_mib: float) -> Iterator[str]:
    """Pack the runs in a folder, and yield a line on each.

    Args:
        whole: runs that go on or that others start from, and travel with their last checkpoint's adapter.
        out: folder of the pieces `table.pack.1a2b3c4d.001-of-003` and so on; older ones there go once all are written.
        limit_mib: most MiB of all pieces. Of it each run that goes on may fill an equal share with what `pack` adds to
            what is needed; one whose needs do not fit is left out, and its line states it. What is left holds the last
            adapters of finished runs: those first that arms start from, then those that were assessed last.

    Raises:
        UserError: the results alone do not fit.
    """
    buffer = io.BytesIO()
    folders = sorted(path for path in runs.iterdir() if (path / "config.yaml").is_file())
    going_on = [run for run in folders if run in whole]
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for run in sorted(folders, key=lambda path: path in whole):  # results first: they are small
            before = buffer.tell()
            if run not in whole:
                _add_results(tar, run)
                kind = "results"
            else:
                room = limit_mib - before / MIB - 0.5  # for the tar's own blocks
                # What is not needed fills a share, not all that is left.
                kind = _add_whole(tar, run, room / len(going_on)) and _add_whole(tar, run, room)
                kind = f"left out ({kind})" if kind else "to go on"
                going_on.remove(run)
            yield f"packed: {run.name}, {kind}, {(buffer.tell() - before) / MIB:.1f} MiB"
        for run in sorted(set(folders) - whole, key=_worth_of_adapter, reverse=True):
            before = buffer.tell()
            if kind := _add_adapter(tar, run, limit_mib - before / MIB - 0.5):
                yield f"packed: {run.name}, {kind}, {(buffer.tell() - before) / MIB:.1f} MiB"
        if (attempts := runs / "attempts.jsonl").is_file():
            tar.add(attempts, attempts.name)
    data, size = buffer.getvalue(), int(split_mib * MIB)
    if len(data) > limit_mib * MIB:
        raise UserError(f"--limit-mib {limit_mib:g}: the runs need {len(data) / MIB:.1f} MiB")
    out.mkdir(parents=True, exist_ok=True)
    pack_id, count = hashlib.sha256(data).hexdigest()[:8], -(-len(data) // size)
    pieces = [out / f"{PIECE}{pack_id}.{number:03d}-of-{count:03d}" for number in range(1, count + 1)]
    for number, path in enumerate(pieces):
        with replacing(path) as piece:
            piece.write(data[number * size : (number + 1) * size])
    for old in set(out.glob(f"{PIECE}*")) - set(pieces):
        old.unlink()
    yield f"packed into {out}: {len(data) / MIB:.1f} MiB in {count} pieces"


def unpack_runs(paths: Sequence[Path], runs: Path) -> Iterator[str]:
    """Put packed runs into a folder, except those that are there, and yield their names.

    Args:
        paths: folders of pieces, of several times of packing the newest first; or the pieces of one.

    Raises:
        UserError: no piece is there, a path is none, or they are not whole.
    """
    folders = [path for path in paths if path.is_dir()]
    packs = [sorted(folder.glob(f"{PIECE}*")) for folder in folders]
    packs += [files] if (files := sorted(set(paths) - set(folders))) else []
    for path, pieces in zip([*folders, *files[:1]], packs, strict=True):
        if not pieces:
            raise UserError(f"{path}: no {PIECE}001-of-... is there")
        yield from _unpack(pieces, runs)


def _newest_pack(files: Sequence[Path]) -> list[Path]:
    """Return the pieces of the newest pack that is whole; a kill while packing leaves another, or a part of one, too.

    Raises:
        UserError: a file is no piece, or no pack is whole.
    """
    packs: dict[tuple[str | None, int], list[Path]] = defaultdict(list)
    for file in sorted(files):
        if (match := _PIECE_NAME.fullmatch(file.name)) is None or not file.is_file():
            raise UserError(f"{file}: no piece of packed runs; give the folder that --pack wrote, or all its {PIECE}*")
        packs[match[1], int(match[2])].append(file)
    whole = [pieces for (_, count), pieces in packs.items() if len(pieces) == count]
    if not whole:
        (_, count), pieces = max(packs.items(), key=lambda pack: len(pack[1]))
        raise UserError(f"{files[0].parent}: {len(pieces)} of {count} pieces are there; copy the others too")
    return max(whole, key=lambda pieces: pieces[-1].stat().st_mtime)


def _unpack(files: Sequence[Path], runs: Path) -> Iterator[str]:
    """Unpack the newest pack among the pieces."""
    files = _newest_pack(files)
    data = b"".join(file.read_bytes() for file in files)
    runs.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                content = tar.extractfile(member).read()
                kind, _, file = member.name.rpartition("/")
                name = file.rpartition(".")[0]
                if not kind:
                    _add_lines(runs / file, content)
                elif kind == "adapters":
                    _unpack_adapter(content, runs / name)
                elif not (runs / name).exists():
                    _unpack_run(kind, content, runs / name)
                    yield name
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{files[0].parent}: a piece is damaged ({error})") from None


@contextmanager
def opened_tables(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield folders of runs; those of packed ones are unpacked, and removed afterwards.

    Raises:
        UserError: a path is no folder, or its pieces are not whole.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folders = []
        for number, path in enumerate(paths):
            if not path.is_dir():
                raise UserError(f"{path}: no folder of runs")
            if any(path.glob(f"{PIECE}*")):
                folder = Path(temporary) / str(number)
                list(unpack_runs([path], folder))
                path = folder
            folders.append(path)
        yield folders


def _add_whole(tar: tarfile.TarFile, run: Path, limit_mib: float) -> str:
    """Add a packed run; return why it cannot be, empty when it was."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.pack"
        try:
            packed = pack(run, file, limit_mib)
        except UserError as error:
            return str(error)
        if ROLLOUTS in packed.left_out:  # a run goes on without them, the table does not
            return f"its rollouts do not fit into {limit_mib:.1f} MiB"
        tar.add(file, f"whole/{run.name}.pack")
    return ""


def _worth_of_adapter(run: Path) -> tuple[bool, float]:
    """Return whether arms start from one of the run's, and when the last of them was assessed (0: never)."""
    arms = read_arms(run)
    return not STARTS.isdisjoint(arms), max((note.get("at", 0.0) for note in arms.values()), default=0.0)


def _add_adapter(tar: tarfile.TarFile, run: Path, room_mib: float) -> str:
    """Add the adapter and the state of a run's last checkpoint, from which arms start, where it fits; return a text on
    it, empty where there is no adapter.
    """
    checkpoint = CheckpointStore(run / "checkpoints", keep=1).latest()
    if checkpoint is None or not checkpoint.adapter.is_dir():
        return ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adapter.tgz"
        with tarfile.open(file, "w:gz") as adapter:
            for part in (checkpoint.adapter, checkpoint.state):  # the state makes the folder a checkpoint
                adapter.add(part, str(part.relative_to(run)))
        if (size := file.stat().st_size / MIB) > room_mib:
            return f"left out: the adapter of {checkpoint.path.name} of {size:.1f} MiB"
        tar.add(file, f"adapters/{run.name}.tgz")
    return f"the adapter of {checkpoint.path.name}"


def _add_lines(file: Path, content: bytes) -> None:
    """Add the lines of another machine's file that are not in this one yet."""
    lines = file.read_bytes().splitlines() if file.is_file() else []
    lines += [line for line in content.splitlines() if line not in lines]
    with replacing(file) as copy:
        copy.write(b"".join(line + b"\n" for line in lines))


def _unpack_run(kind: str, content: bytes, target: Path) -> None:
    if kind == "whole":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.pack"
            file.write_bytes(content)
            unpack([file], target)
        return
    with replacing_folder(target) as partial, tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        tar.extractall(partial, filter="data")


def _unpack_adapter(content: bytes, run: Path) -> None:
    """Put an adapter into its run's folder, unless the run has a checkpoint."""
    if not CheckpointStore(run / "checkpoints", keep=1).all():
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            tar.extractall(run, filter="data")


def _add_results(tar: tarfile.TarFile, run: Path) -> None:
    """Add a gzipped tar with the run's settings, metrics, samples, verdicts and exemplars."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.tgz"
        with tarfile.open(file, "w:gz") as results:
            for path in sorted(run.iterdir()):
                if path.name not in LEFT_OUT and not path.name.startswith("."):
                    results.add(path, path.name)
        tar.add(file, f"results/{run.name}.tgz")
