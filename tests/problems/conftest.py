"""Running a bundled file, which only tests do in their own process."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def namespace_of() -> Callable[[str], dict]:
    """Return the names that a source defines when it is run."""

    def run(source: str) -> dict:
        namespace: dict = {}
        exec(compile(source, "bundled", "exec"), namespace)
        return namespace

    return run
