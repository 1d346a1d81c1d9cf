"""Memory shortages: whether other processes on the device may have caused one, or only the candidate itself."""

from __future__ import annotations

import re

import torch

from cudal1_ray.evaluation.verdict import Verdict

# Words that report a shortage of memory: torch's, those of CUDA's libraries, and Linux's signal.
_SHORT = ("out of memory", "ALLOC_FAILED", "NOT_INITIALIZED", "SIGKILL")
# The referee's words for a process that exceeds its memory limit.
_OWN_LIMIT = re.compile(r"\d MiB of \d+ MiB allowed")
_BYTES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
_WANTED, _HELD, _ALLOWED = (
    re.compile(words)
    for words in (f"Tried to allocate {_SIZE}", f"{_SIZE} is allocated by PyTorch", f"{_SIZE} allowed")
)


def is_shortage(error: Exception) -> bool:
    """Return whether an error of this process reports that the device has no memory left. Where CUDA finds none for its
    own needs, such as a context, torch does not raise its OutOfMemoryError.
    """
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "CUDA error: out of memory" in str(error)
    )


def others_may_have_it(verdict: Verdict) -> bool:
    """Return whether a verdict rejects for a lack of memory that the candidate might not meet alone on the device.

    A process that reached its own limit, or requested more than one may have, would fail alone, too. torch reports the
    request; a candidate that forges torch's words is rejected only for what it printed.
    """
    if "memory_limit" not in verdict.reasons and not any(words in verdict.detail for words in _SHORT):
        return False
    requested, held, allowed = (_bytes(pattern, verdict.detail) for pattern in (_WANTED, _HELD, _ALLOWED))
    too_much = requested is not None and allowed is not None and requested + (held or 0.0) > allowed
    return not too_much and _OWN_LIMIT.search(verdict.detail) is None


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return None if match is None else float(match[1]) * _BYTES[match[2]]
