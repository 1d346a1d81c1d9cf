"""A contestant's device by its name. Both kinds are imported at once: behind the walls there is nothing of this package
to import any more.
"""

from __future__ import annotations

from .allocator import keep_freed_memory
from .cpu_device import CpuDevice
from .cuda_device import CudaDevice


def open_device(device: str, threads: int, flush_mib: int, memory_share: float) -> CpuDevice:
    """``cpu``, ``cuda`` or ``cuda:N``, opened in this process."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        return CudaDevice(threads, int(index or 0), flush_mib, memory_share)
    keep_freed_memory()
    return CpuDevice(threads)
