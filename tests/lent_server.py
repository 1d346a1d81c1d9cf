"""A fork server that several evaluators use."""

from __future__ import annotations

import os

from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.host.handles import ContestantHandle, ForkServer

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


def lend(server: ForkServer, config: EvaluationConfig) -> ForkServer:
    """Return the server, started, for an evaluator with these settings; another one where they are not its own."""
    if any(getattr(config, name) != getattr(server.config, name) for name in OF_THE_SERVER):
        return ForkServer(config)
    server.start()
    return LentServer(server, config)
