"""A run as one file, or as pieces of a bounded size, with which it goes on elsewhere.

The archive is a row of gzipped tars, one for each part of the run, most needed first; a part that does not fit the
limit is left out and named. A piece is a line of JSON (run, its number, how many there are, SHA-256 of what follows)
and that many bytes of the archive.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudal1_ray.config import is_run_name, read_settings
from cudal1_ray.errors import UserError
from cudal1_ray.files import replacing, replacing_folder
from cudal1_ray.training.checkpoints import CheckpointStore
from cudal1_ray.training.run_folder import RunFolder

FORMAT = 1
# Keys of a piece's header, and the types of their values.
HEADER = {"cudal1_pack": int, "run": str, "piece": int, "of": int, "archive": str, "sha256": str}
# What the header of a piece begins with.
_BEGINNING = b'{"cudal1_pack": '
# Bytes that a header line is shorter than.
HEADER_BYTES = 4096
MIB = 1 << 20
# What surely does not fit is not even compressed: JSON of metrics and verdicts shrinks to a twelfth, weights hardly
# (a run of 1.5 B with adapters: 561 MiB of an optimiser took a minute, to be left out of 110 MiB).
BEST_COMPRESSION, BEST_COMPRESSION_OF_TENSORS = 12, 2
TENSORS = (".pt", ".safetensors", ".bin", ".gguf")
# Folders that parts of their own are made of; everything else at the top of a run is small and goes first.
FOLDERS = ("checkpoints", "policy", "adapter", "rollouts", "assessed", "tb", "report", "extensions")
# Name of the part that has what the policy wrote.
ROLLOUTS = "rollouts"
# Times that a run is packed while it goes on: its files come and go once or twice a step, and a step takes longer.
ATTEMPTS = 4


@dataclass(frozen=True)
class Part:
    """Files of a run that are of use together. `needed`: the run does not go on without them."""

    name: str
    files: tuple[Path, ...]
    needed: bool = False


@dataclass(frozen=True)
class Packed:
    """What was written: the files, the bytes of all, and the parts inside and left out, with their packed bytes."""

    files: tuple[Path, ...]
    size: int
    inside: dict[str, int]
    left_out: dict[str, int]


def pack(folder: Path, out: Path, limit_mib: float, split_mib: float | None = None) -> Packed:
    """Pack the run in `folder`; one that runs meanwhile, as a kill at that moment would leave it.

    Args:
        out: the file to write; pieces get `.001` and so on behind that name.
        limit_mib: most MiB of all files together.
        split_mib: most MiB of a piece; None writes one.

    Raises:
        UserError: there is no run, or what it needs does not fit.
    """
    for name, mib in (("limit", limit_mib), ("split", split_mib)):
        if mib is not None and not 2 * HEADER_BYTES < mib * MIB < math.inf:
            raise UserError(f"--{name}-mib {mib:g}: must be a number above {2 * HEADER_BYTES / MIB:g}")
    run, limit = RunFolder(folder), int(limit_mib * MIB)
    read_settings(folder)
    piece = limit if split_mib is None else int(split_mib * MIB)
    for _ in range(ATTEMPTS):
        try:
            archive, inside, left_out = _archive(run, limit, piece)
            break
        except FileNotFoundError:
            continue
    else:
        raise UserError(f"{folder}: files went away meanwhile, {ATTEMPTS} times; pack it when it does not run")
    files = _write_pieces(archive, folder.resolve().name, out, None if split_mib is None else piece)
    return Packed(files, sum(file.stat().st_size for file in files), inside, left_out)


def _archive(run: RunFolder, limit: int, piece: int) -> tuple[bytes, dict[str, int], dict[str, int]]:
    """Return the archive of a run, and the packed bytes of the parts inside and left out.

    Args:
        limit: most bytes, headers of the pieces included.
        piece: most bytes of one.

    Raises:
        FileNotFoundError: a file went away meanwhile, or the run has others now that it does not go on without.
        UserError: what it needs does not fit.
    """
    archive, inside, left_out = b"", {}, {}
    parts = parts_of(run)
    for part in parts:
        if _least_packed(part.files) > limit - len(archive) and not part.needed:
            left_out[part.name] = sum(file.stat().st_size for file in part.files)
            continue
        compressed = _compress(run.path, part.files)
        total = len(archive) + len(compressed)
        if total + HEADER_BYTES * -(-total // (piece - HEADER_BYTES)) <= limit:
            archive += compressed
            inside[part.name] = len(compressed)
        elif part.needed:
            raise UserError(
                f"{run.path}: {part.name} takes {len(compressed) / MIB:.1f} MiB and does not fit beside "
                f"{len(archive) / MIB:.1f} MiB into --limit-mib {limit / MIB:g}; raise it, or train adapters "
                "(policy.lora_rank) of a smaller rank"
            )
        else:
            left_out[part.name] = len(compressed)
    if [part for part in parts if part.needed] != [part for part in parts_of(run) if part.needed]:
        raise FileNotFoundError
    return archive, inside, left_out


def parts_of(run: RunFolder) -> list[Part]:
    """Return the parts of a run, most needed first; those that it does not have are left out, and so are packed runs
    that lie in its folder.
    """
    top = [
        path
        for path in run.path.iterdir()
        if not path.name.startswith(".") and path.name not in FOLDERS and not _is_piece(path)
    ]
    parts = [Part("settings, metrics, verdicts and exemplars", _files(top), needed=True)]
    store = CheckpointStore(run.checkpoints, keep=1)
    latest, policy_settings = store.latest(), read_settings(run.path, "policy")["policy"]
    policy = Part("the initial policy", _files([run.policy]), needed=policy_settings.get("kind") == "scratch")
    if policy.needed:
        parts.append(policy)
    if latest is None:
        parts.append(Part("the adapter that it starts with", _files([run.adapter]), needed=True))
    else:
        ranks = tuple(sorted(latest.learner.glob("rank-*.pt")))
        optimiser = tuple(file for file in _files([latest.learner]) if file not in ranks)
        adapted = latest.adapter.is_dir()
        parts.append(Part("the last checkpoint's state", _files([latest.state]), needed=True))
        if adapted:
            parts.append(Part("the adapter", _files([latest.adapter]), needed=True))
        parts.append(Part("the steps under way", _files([run.in_flight])))
        parts.append(Part("random state and reference policy", ranks, needed=not adapted))
        parts.append(Part("the optimiser" if adapted else "weights and optimiser", optimiser, needed=not adapted))
        earlier = [checkpoint for checkpoint in store.all() if checkpoint.path != latest.path]
        states = [place for checkpoint in earlier for place in (checkpoint.state, checkpoint.adapter)]
        parts.append(Part("state and adapters of earlier checkpoints", _files([*states, run.adapter])))
        parts.append(Part("the policy with its adapters merged", _files([latest.policy])))
    parts.append(Part(ROLLOUTS, tuple(sorted([*run.rollouts.glob("*.parquet"), *run.assessed.glob("*.parquet")]))))
    parts += [Part(name, _files([run.path / name])) for name in ("tb", "extensions", "report")]
    if not policy.needed:
        parts.append(policy)
    return [part for part in parts if part.files]


def unpack(paths: Sequence[Path], target: Path | None = None) -> Path:
    """Put a packed run into a folder of its own.

    Args:
        paths: the file, all its pieces, or folders that hold them.
        target: the run's folder; None: under its own name in `runs/`.

    Returns:
        The run's folder.

    Raises:
        UserError: a piece is missing or damaged (it is named), the run's name is none, or the folder is there already.
    """
    header, archive = _join(_pieces(paths))
    if target is None and not is_run_name(header["run"]):
        raise UserError(f"{paths[0]}: run={header['run']!r:.80}: no name of a folder in runs/; give a folder with --to")
    target = target or Path("runs") / header["run"]
    if target.exists():
        raise UserError(f"{target}: is there already; give another folder with --to, or delete it")
    try:
        with (
            replacing_folder(target) as partial,
            tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz", ignore_zeros=True) as tar,
        ):
            tar.extractall(partial, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{paths[0]}: cannot be unpacked ({error})") from None
    return target


def _files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the regular files among and below the paths, in order of their names; unfinished ones are left out."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    return tuple(sorted(file for file in files if not file.name.endswith(".partial")))


def _least_packed(files: Sequence[Path]) -> float:
    """Return the bytes below which the files cannot be packed."""
    return sum(
        file.stat().st_size / (BEST_COMPRESSION_OF_TENSORS if file.suffix in TENSORS else BEST_COMPRESSION)
        for file in files
    )


def _compress(folder: Path, files: Sequence[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6, dereference=True) as tar:
        for file in files:
            tar.add(file, str(file.relative_to(folder)))
    return buffer.getvalue()


def _write_pieces(archive: bytes, run: str, out: Path, piece: int | None) -> tuple[Path, ...]:
    room = len(archive) if piece is None else piece - HEADER_BYTES
    chunks = [archive[start : start + room] for start in range(0, len(archive), room)]
    whole, files = hashlib.sha256(archive).hexdigest(), []
    out.parent.mkdir(parents=True, exist_ok=True)
    names = [
        out if piece is None else out.with_name(f"{out.name}.{number:03d}") for number in range(1, len(chunks) + 1)
    ]
    for file in names:
        if file.exists() and not _is_piece(file):
            raise UserError(f"{file}: is there, and no packed run; give another name")
    for number, (file, chunk) in enumerate(zip(names, chunks, strict=True), 1):
        header = {
            "cudal1_pack": FORMAT,
            "run": run,
            "piece": number,
            "of": len(chunks),
            "archive": whole,
            "sha256": hashlib.sha256(chunk).hexdigest(),
        }
        with replacing(file) as stream:
            stream.write(json.dumps(header).encode() + b"\n" + chunk)
        files.append(file)
    if piece is not None:
        _remove_pieces_behind(out, len(chunks))
    return tuple(files)


def _remove_pieces_behind(out: Path, count: int) -> None:
    """Remove what an earlier packing under the same name left, which had more pieces."""
    behind = (out.with_name(f"{out.name}.{number:03d}") for number in itertools.count(count + 1))
    for file in itertools.takewhile(_is_piece, behind):
        file.unlink()


def _is_piece(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(_BEGINNING)) == _BEGINNING


def _pieces(paths: Sequence[Path]) -> list[Path]:
    files = []
    for path in paths:
        if path.is_dir():
            files += sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        elif path.is_file():
            files.append(path)
        else:
            raise UserError(f"{path}: no such file")
    return files


def _join(files: Sequence[Path]) -> tuple[dict, bytes]:
    """Return the header of the first piece, and the archive.

    Raises:
        UserError: naming the piece that is damaged, missing, or of another archive.
    """
    chunks: dict[int, bytes] = {}
    first: dict = {}
    for file in files:
        line, _, chunk = file.read_bytes().partition(b"\n")
        try:
            header = json.loads(line[:HEADER_BYTES])
            if header["cudal1_pack"] == FORMAT and any(type(header[key]) is not kind for key, kind in HEADER.items()):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{file}: no piece of a packed run, or its first line is damaged") from None
        if header["cudal1_pack"] != FORMAT:
            theirs = header["cudal1_pack"]
            raise UserError(f"{file}: packed by another version (format {theirs}, this one reads {FORMAT})")
        number, count = header["piece"], header["of"]
        if hashlib.sha256(chunk).hexdigest() != header["sha256"]:
            raise UserError(f"{file}: piece {number} of {count} is damaged (its SHA-256 differs); copy it again")
        first = first or header
        if (header["archive"], count) != (first["archive"], first["of"]):
            raise UserError(f"{file}: belongs to another packed run than {files[0]}")
        chunks[number] = chunk
    if not first:
        raise UserError("no piece of a packed run was given")
    missing = [str(number) for number in range(1, first["of"] + 1) if number not in chunks]
    if missing:
        raise UserError(f"{files[0]}: of {first['of']} pieces, these are missing: {', '.join(missing)}")
    return first, b"".join(chunks[number] for number in sorted(chunks))
