"""How short a call's time beside its events can be on a device, as all its evaluators have seen it together."""

from __future__ import annotations

import os
import struct

_FORGETTING = 1.01  # a measurement, or one lucky moment would make all others slow ones
_CLASSES = 8  # of batches, by the powers of two of their calls
_FORM = struct.Struct(f"{_CLASSES}d")


class Shortest:
    """Seconds a call, by how many calls a batch has: what comes once a batch is shared among them.

    It depends on the core and the driver, hardly on the problem. An evaluator that had to learn it by itself, and anew
    with every problem, would not know that the core it has is slow.

    Args:
        path: a file that evaluators of one device share; empty where there is one evaluator. Only an evaluator that
            measures alone on the device writes.
    """

    def __init__(self, path: str = "") -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if path else -1
        self._seen = [0.0] * _CLASSES

    def of(self, calls: int) -> float:
        """0.0 = not known."""
        return self._read()[_class(calls)]

    def saw(self, calls: int, beside_s: float) -> None:
        """``beside_s``: of a measurement; 0.0 = it says nothing."""
        if beside_s > 0:
            seen, one = self._read(), _class(calls)
            seen[one] = min(beside_s, _FORGETTING * seen[one] or beside_s)
            self._seen = seen
            if self._file >= 0:
                os.pwrite(self._file, _FORM.pack(*seen), 0)

    def close(self) -> None:
        """Calling it twice is fine."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _read(self) -> list[float]:
        data = os.pread(self._file, _FORM.size, 0) if self._file >= 0 else b""
        return list(_FORM.unpack(data)) if len(data) == _FORM.size else list(self._seen)


def _class(calls: int) -> int:
    return min(_CLASSES - 1, max(1, calls).bit_length() - 1)
