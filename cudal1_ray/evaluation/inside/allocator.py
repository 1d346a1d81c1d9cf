"""What C's allocator does with memory that is let go of: in a contestant on the CPU, always the same."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Of <malloc.h>, and what they are set to: the most that they can be.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER, _MOST_IN_HEAP = 2**31 - 1, 32 << 20


def keep_freed_memory() -> None:
    """Memory that tensors of up to 32 MiB leave stays with the process. Whether it is given back to the system
    otherwise, to be asked for again page by page, depends on what happens to lie behind it: the same code takes 0.5 ms
    in one process and 0.85 in another.
    """
    with suppress(OSError, AttributeError):  # not every C library can be told
        for parameter, value in ((_M_TRIM_THRESHOLD, _NEVER), (_M_MMAP_THRESHOLD, _MOST_IN_HEAP)):
            ctypes.CDLL(None).mallopt(parameter, value)
