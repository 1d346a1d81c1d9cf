"""Memory that ran short: may others on the device have taken it, or is it a candidate's own doing?"""

from __future__ import annotations

import re

from cudal1_ray.evaluation.verdict import Verdict

# CUDA's libraries say it in words of their own, and Linux with a signal.
_SHORT = ("out of memory", "ALLOC_FAILED", "NOT_INITIALIZED", "SIGKILL")
_OWN_LIMIT = re.compile(r"\d MiB of \d+ MiB allowed")  # the referee's words for a process that takes too much
_BYTES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = r"([\d.]+) (bytes|KiB|MiB|GiB)"
_WANTED, _HELD, _ALLOWED = (
    re.compile(words)
    for words in (f"Tried to allocate {_SIZE}", f"{_SIZE} is allocated by PyTorch", f"{_SIZE} allowed")
)


def others_may_have_it(verdict: Verdict) -> bool:
    """Return whether a verdict rejects for a lack of memory that the candidate might not meet with a device to itself.

    Not where it reached the limit of its own process, nor where what it wanted is more than one may have: torch says
    so, and a candidate that lies in torch's words is only rejected for what it said.
    """
    if "memory_limit" not in verdict.reasons and not any(words in verdict.detail for words in _SHORT):
        return False
    requested, held, allowed = (_bytes(pattern, verdict.detail) for pattern in (_WANTED, _HELD, _ALLOWED))
    too_much = requested is not None and allowed is not None and requested + (held or 0.0) > allowed
    return not too_much and _OWN_LIMIT.search(verdict.detail) is None


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return None if match is None else float(match[1]) * _BYTES[match[2]]
