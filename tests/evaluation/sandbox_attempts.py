"""A candidate that tries what a sandbox should refuse, an honest one, and the level that a test needs."""

from __future__ import annotations

import pytest
from evaluator_settings import sandbox_level
from problems_for_tests import renamed

from cudal1_ray.evaluation.sandbox.walls import LEVELS

HONEST = renamed("chain").replace("torch.relu(self.a(x))", "self.a(x).relu_()")
PROBE = (
    """
import os, sys, socket, ctypes, signal
done = []
def attempt(name, action):
    try:
        action()
    except BaseException:
        return
    done.append(name)
{attempts}
raise RuntimeError("achieved: " + ",".join(done) + ".")
"""
    + HONEST
)


def require_level(level: str) -> None:
    """Skip the test where this machine does not allow the level."""
    if LEVELS.index(sandbox_level()) > LEVELS.index(level):
        pytest.skip(f"this machine allows {sandbox_level()} at most")
