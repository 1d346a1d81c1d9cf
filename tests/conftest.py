"""Shared by all tests: where things are, and what only some machines have."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cudal1_ray.uncollected import uncollected

# Of OpenMP, here and in every process that tests start, unless the environment sets it: the suite's workers
# share two cores, where threads that wait for each other's cores take several times the CPU time of one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a shell starts in the background ignores Ctrl-C, and so does what that starts: tests interrupt both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files whose tests use one server that takes half a minute to start: one worker runs them all, its end last.
SERVED = {f"tests/serving/test_{name}.py" for name in ("page_server", "rolling", "server")}
# Files of nearly half a minute that would be started last, when the other worker has nothing left to do.
EARLY = {f"tests/training/test_{name}.py" for name in ("reviewing", "stopping")}


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests, and import what they test, without garbage collections: 11 CPU seconds instead of 19, in each
    worker. What is there by then stays, so no later collection looks through it.
    """
    with uncollected():
        yield
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take long first, so that no worker ends long after the others; skip GPU tests without a GPU."""
    early = {item.path for item in items if item.get_closest_marker("slow") or item.nodeid.partition("::")[0] in EARLY}
    items.sort(key=lambda item: item.path not in early)
    needing_one = [item for item in items if item.get_closest_marker("gpu")]  # keywords hold ids of parameters, too
    if not needing_one:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in needing_one:
        item.add_marker(pytest.mark.skip(reason="no CUDA device"))


# Reasons of tests that need a sandbox level which this machine lacks: elsewhere they skip, in CI they fail.
NO_SANDBOX = re.compile(r"this machine allows|hides no files|keeps no files|nothing keeps them")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Make a missing sandbox level a failure with CI in the environment: a run without a sandbox must not be green."""
    report = (yield).get_result()
    if report.skipped and os.environ.get("CI") and NO_SANDBOX.search(str(report.longrepr)):
        report.outcome, report.longrepr = "failed", f"CI needs the sandbox: {report.longrepr}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file with one worker, since its tests share what was slow to start."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "served" if file in SERVED else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="module", autouse=True)
def earlier_objects_frozen() -> None:
    """Leave what earlier files import and share out of garbage collections. Engines and DeepSpeed ask for dozens, and
    each would look through all of it: 0.25 s in a worker that is half through.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def ray_cluster():
    """Yield one Ray for all tests that only need actors."""
    import ray

    from cudal1_ray.actors.config import ClusterConfig
    from cudal1_ray.actors.placement import connect

    connect(ClusterConfig(num_cpus=8, object_store_mib=128))
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def running_server() -> Iterator[Any]:
    """Yield the fork server that `warm_server` lends."""
    from cudal1_ray.evaluation import EvaluationConfig
    from cudal1_ray.evaluation.host.handles import ForkServer

    server = ForkServer(EvaluationConfig(required_sandbox="landlock"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def warm_server(running_server: Any) -> Iterator[None]:
    """Let evaluators that the module makes in this process share a fork server, which imports torch once (1.4 s of CPU
    time) instead of once for each. The server never sees a problem or a candidate, and each contestant is a process of
    its own anyway.
    """
    from tests.lent_server import lend

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cudal1_ray.evaluation.evaluator.ForkServer", partial(lend, running_server))
        yield
