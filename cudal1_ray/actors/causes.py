"""Why an actor was lost, in one line.

Kept apart from `fleet.py`, as `member.py` is: the learner's actors import this module, and only the driver needs RLlib.
"""

from __future__ import annotations

import re

import ray

# Characters of an exception's message; vLLM's on lengths have about 400.
LONGEST_CAUSE = 600
# The line of a traceback that names its exception.
_EXCEPTION_LINE = re.compile(r"(\w+\.)*\w*(Error|Exception)\b(: |$)")


def cause_of(error: BaseException) -> str:
    """Return in one line what happened, without the stack: its last exception, or its last line."""
    if isinstance(error, ray.exceptions.OutOfMemoryError):  # whose last line is an address of Ray's documentation
        return "the machine ran out of memory, and Ray ended it; free memory, or lower a role's count"
    return f"{type(error).__name__}: {last_exception(str(error)) or 'no message'}"


def last_exception(text: str) -> str:
    """Return in one line the last exception that a stack ends with, or the text's last line where it names none."""
    lines = [line for line in text.splitlines() if line.strip()]
    named = [i for i, line in enumerate(lines) if _EXCEPTION_LINE.match(line)]
    return " ".join(line.strip() for line in (lines[named[-1] :] if named else lines[-1:]))[:LONGEST_CAUSE]
