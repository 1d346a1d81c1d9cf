"""Compiled extensions on disk, by content hash: an entry holds one candidate's, complete or not there at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from cudal1_ray.errors import UserError
from cudal1_ray.files import OwnedFolder
from cudal1_ray.source.parsing import parse


class CompileResult(msgspec.Struct, frozen=True):
    """The result of a candidate's builds.

    Attributes:
        reason: a name of reasons.py, empty where the candidate may be evaluated.
        libraries: build key -> path of the library.
        failed: build key -> the compiler's message for a build that the candidate goes on without.
        cached: the result comes from the cache.
    """

    reason: str = ""
    detail: str = ""
    libraries: dict[str, str] = {}
    failed: dict[str, str] = {}
    cached: bool = False

    @property
    def ok(self) -> bool:
        return not self.reason


def without_building(code: str) -> CompileResult | None:
    """Return the result for a candidate of which nothing is built: Python alone, or no Python; None for any other."""
    try:
        parse(code)
    except SyntaxError as error:
        return CompileResult("unparsable", f"{type(error).__name__}: {error}")
    return None if "cpp_extension" in code else CompileResult()


def require_cache_folder(folder: str) -> None:
    """Make a folder for compiled extensions, where it is missing. Raise UserError where it cannot be written to."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"evaluation.compile_cache {folder}: {error.strerror}; name a folder of your own") from None


class CompileCache:
    """A folder of entries `<key>/`: `entry.json` and one `<library>.so` each.

    Only the evaluator writes entries, under a private name that a rename makes visible, and never changes them
    afterwards. Contestants never see the folder: they receive open descriptors of their own entry's libraries.

    Raises (constructor): UserError as `require_cache_folder` does.
    """

    def __init__(self, folder: str = "") -> None:
        self._temporary = None if folder else OwnedFolder("extensions")
        self.folder = Path(folder) if self._temporary is None else self._temporary.path
        require_cache_folder(str(self.folder))

    def get(self, key: str) -> CompileResult | None:
        """Return the entry, None if there is none."""
        try:
            entry = msgspec.json.decode((self.folder / key / "entry.json").read_bytes(), type=CompileResult)
        except (OSError, msgspec.MsgspecError):
            return None
        paths = {name: str(self.folder / key / file) for name, file in entry.libraries.items()}
        return msgspec.structs.replace(entry, libraries=paths)

    def put(self, key: str, result: CompileResult, libraries: dict[str, bytes]) -> None:
        """Add an entry, its libraries by build key. An entry that another process has added with that key stays."""
        private = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            for name, data in libraries.items():
                (private / f"{name}.so").write_bytes(data)
            files = {name: f"{name}.so" for name in libraries}
            entry = msgspec.structs.replace(result, libraries=files, cached=True)
            (private / "entry.json").write_bytes(msgspec.json.encode(entry))
            os.rename(private, self.folder / key)
        except OSError:
            if not (self.folder / key / "entry.json").exists():
                raise
        finally:
            shutil.rmtree(private, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder if it was private to this object."""
        if self._temporary is not None:
            self._temporary.close()
