"""Regions of memory that processes share."""

from __future__ import annotations

import os

from cudal1_ray.evaluation.exchange.channel import SharedRegion


def allocated(region: SharedRegion) -> int:
    """Return the bytes of memory that a region takes."""
    return os.fstat(region.fd).st_blocks * 512


def test_region_when_it_takes_another_holds_its_bytes_instead_of_it() -> None:
    content = os.urandom((40 << 20) + 5)
    weights = SharedRegion(1 << 30, others_read_only=False)
    pool = SharedRegion(64 << 20, others_read_only=True)
    weights.memory[: len(content)] = content
    assert allocated(weights) >= len(content)
    pool.take(weights, len(content))
    assert pool.memory[: len(content)] == content
    assert allocated(weights) == 0
    assert len(content) <= allocated(pool) < len(content) + (1 << 20)
    weights.close()
    pool.close()
