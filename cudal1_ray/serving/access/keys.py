"""API keys: shown once, kept as hashes.

A key holds 256 random bits, so one round of SHA-256 is as hard to turn back as many: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.files import lock_file, write_atomically

PREFIX = "cudal1-"


@dataclass(frozen=True)
class KeyLimits:
    """What one key may do where it differs from `security.*`; None: as configured."""

    requests_per_minute: float | None = None
    max_concurrent: int | None = None


@dataclass(frozen=True)
class KnownKey:
    name: str
    digest: str
    limits: KeyLimits = KeyLimits()


def key_digest(key: str) -> str:
    """Return the SHA-256 of a key, hexadecimal; any text has one."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class KeyFile:
    """The keys of a file, read again when the file changes: a key is added or revoked while the server runs."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._stamp: tuple[int, int] | None = None
        self._by_digest: dict[str, KnownKey] = {}

    def find(self, digest: str) -> KnownKey | None:
        """Return the key of a digest. Hashes are compared, so the time it takes reveals nothing of a key.

        Raises:
            UserError: when the file cannot be read.
        """
        self._refresh()
        return self._by_digest.get(digest)

    def names(self) -> list[str]:
        self._refresh()
        return sorted(key.name for key in self._by_digest.values())

    def add(self, name: str, limits: KeyLimits = KeyLimits()) -> str:
        """Make a key and return it, the only time that it is readable.

        Raises:
            UserError: for a name that is empty or taken, and where the file cannot be written.
        """
        if not name or not name.isprintable() or len(name) > 64:
            raise UserError(f"--add-key {name!r}: a name of 1 to 64 printable characters")
        with self._alone():
            if self.path.exists() and name in self.names():
                raise UserError(f"--add-key {name}: {self.path} has a key of that name; revoke it first")
            key = PREFIX + secrets.token_urlsafe(32)
            self._write([*self._by_digest.values(), KnownKey(name, key_digest(key), limits)])
        return key

    def revoke(self, name: str) -> None:
        """Revoke a key. Raises UserError when there is no such key."""
        with self._alone():
            if name not in self.names():
                raise UserError(f"--revoke-key {name}: {self.path} has no key of that name")
            self._write([key for key in self._by_digest.values() if key.name != name])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Serialise writers: the second of two concurrent changes reads what the first wrote."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UserError(f"security.keys_file={self.path}: cannot be written ({error.strerror})") from None
        try:
            lock_file(lock)
            self._stamp = None
            yield
        finally:
            os.close(lock)

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._stamp:
                return
            rows = json.loads(self.path.read_text())["keys"]
            keys = [KnownKey(row["name"], row["sha256"], KeyLimits(**row.get("limits", {}))) for row in rows]
        except OSError as error:
            make = f"cudal1 serve --add-key NAME security.keys_file={self.path}"
            raise UserError(f"security.keys_file={self.path}: {error.strerror}; make it with `{make}`") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f"security.keys_file={self.path}: not a file of keys ({error}); restore it") from None
        self._by_digest, self._stamp = {key.digest: key for key in keys}, stamp

    def _write(self, keys: list[KnownKey]) -> None:
        rows = []
        for key in keys:
            limits = {name: value for name, value in vars(key.limits).items() if value is not None}
            rows.append({"name": key.name, "sha256": key.digest} | ({"limits": limits} if limits else {}))
        try:
            write_atomically(self.path, json.dumps({"keys": rows}, indent=1), mode=0o600)
        except OSError as error:
            raise UserError(f"security.keys_file={self.path}: cannot be written ({error.strerror})") from None
        self._stamp = None
        self._refresh()
