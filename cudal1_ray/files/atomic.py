"""Files that readers find either as they were or as they should be, and folders that they find whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cudal1_ray.errors import UserError


@contextmanager
def replacing(path: Path, mode: int = 0o666, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a file to write to, which takes the place of `path` when the block ends; after an error it is removed.

    The content, and then the new name, are on the disk before this returns: a reader finds the old file or the whole
    new one, after a kill and after a power failure too. Writers of one path, processes or threads, do not meet. A
    symbolic link stays, and the file that it names is replaced.

    Args:
        path: the target; its folder is made.
        mode: permission bits of a new file, before the umask.
        durable: False for what can be made again: then the disk is not waited for, and a power failure may cut it off.

    Raises:
        UserError: when `path` is there and no regular file: a device, such as /dev/null, would be gone.
        OSError: naming `path`, when it cannot be written.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path}: no regular file; name one, it is made where there is none")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.partial")
    try:
        with naming(path, instead_of=partial):
            with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


@contextmanager
def naming(path: Path, instead_of: Path | None = None) -> Iterator[None]:
    """Let an OSError of the block that names no file, as that of a full disk, or names `instead_of`, name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.filename == str(instead_of):
            error.filename = str(path)
        raise


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a whole text file, as UTF-8, or leave the old one; see `replacing`.

    Raises:
        OSError: when it cannot be written.
    """
    with replacing(path, mode) as file:
        file.write(text.encode())


def replace_folder(partial: Path, target: Path) -> None:
    """Put a finished folder in its place; what stood there goes only after the new one is in place.

    After a kill in between, `settle_folder` puts back what stood there, and so does the next call.
    """
    aside = settle_folder(target)
    if target.exists():
        target.rename(aside)
    partial.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def settle_folder(target: Path) -> Path:
    """End a replacement of `target` that was killed, which may have left no folder there: for a process that writes
    into it or makes it where there is none. Return where `replace_folder` keeps the old folder meanwhile.
    """
    aside = target.with_name(f".{target.name}.replaced")
    if target.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(target)
    return aside


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which takes the place of `target` when the block ends.

    After an error it is removed; after a kill the next writer of `target` removes it. See `replace_folder`.

    Raises:
        OSError: when it cannot be made or moved.
    """
    settle_folder(target)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    replace_folder(partial, target)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
