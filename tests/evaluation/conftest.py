"""One evaluator for all tests of a kind: starting it costs a second, a candidate a tenth of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from evaluator_settings import quick_config, ungated_config  # noqa: E402

from cudal1_ray.evaluation import EvaluationConfig, Evaluator  # noqa: E402
from cudal1_ray.evaluation.correctness import trials  # noqa: E402
from cudal1_ray.evaluation.host.handles import ContestantHandle, ForkServer  # noqa: E402


@pytest.fixture(scope="session")
def evaluator():
    with Evaluator(quick_config()) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def ungated():
    """Yield an evaluator without the static gate: every other check must hold alone."""
    with Evaluator(ungated_config()) as evaluator:
        yield evaluator


OF_THE_SERVER = ("device", "sandbox", "required_sandbox", "readable_paths", "threads", "cuda_arch_list")


class LentServer(ForkServer):
    """The process of a server that other evaluators use, too, for an evaluator with its own limits; closing it ends
    what that evaluator has started there.
    """

    def __init__(self, server: ForkServer, config: EvaluationConfig) -> None:
        vars(self).update(vars(server))
        self.config, self._lent, self._spawned = config, server.process, set[ContestantHandle]()

    def spawn(self, *, role: str, cores: list[int], streams: bool = False) -> ContestantHandle:
        handle = super().spawn(role=role, cores=cores, streams=streams)
        self._spawned = {each for each in self._spawned if os.path.exists(f"/proc/{each.supervisor}")} | {handle}
        return handle

    def close(self) -> None:
        for handle in self._spawned:
            handle.close()
        if self.process is not self._lent:  # the shared process died, and another was started
            super().close()


@pytest.fixture(scope="session")
def running_server() -> Iterator[ForkServer]:
    server = ForkServer(quick_config())
    yield server
    server.close()


@pytest.fixture(scope="module")
def warm_server(running_server) -> Iterator[None]:
    """Let evaluators that the module makes share a fork server, which imports torch once (1.4 s of CPU time) instead of
    once for each. The server never sees a problem or a candidate, and each contestant is a process of its own anyway.
    """

    def lend(config: EvaluationConfig) -> ForkServer:
        if any(getattr(config, name) != getattr(running_server.config, name) for name in OF_THE_SERVER):
            return ForkServer(config)
        running_server.start()
        return LentServer(running_server, config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cudal1_ray.evaluation.evaluator.ForkServer", lend)
        yield


@pytest.fixture
def brief_ending(monkeypatch) -> None:
    """Wait only one second, not five, for processes that candidates leave behind on purpose and that never end."""
    monkeypatch.setattr(trials, "_ENDING_S", 1.0)
