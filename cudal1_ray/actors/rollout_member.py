"""The rollout actor: one inference engine, asked in short turns so that completions leave as they finish.

Apart from the fleet of them, whose imports (RLlib) its process need not wait for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ray

from cudal1_ray.actors.member import FleetMember
from cudal1_ray.rollout import (
    AdapterShape,
    Completion,
    GenerationRequest,
    RolloutConfig,
    SamplingParameters,
    build_engine,
)

if TYPE_CHECKING:
    from cudal1_ray.rollout.transports import WeightOffer


@dataclass(frozen=True)
class Turn:
    """What an engine finished since the last turn, and whether anything is left of what it was given.

    `busy_s`: seconds since then in which it had something to generate.
    """

    completions: tuple[Completion, ...]
    finished: bool
    busy_s: float


class RolloutActor(FleetMember):
    """Owns one `RolloutEngine`, which generates in a thread of its own: it never waits for the caller that collects."""

    def __init__(self, config: RolloutConfig, model_path: str, adapter: AdapterShape | None = None):
        self._thread = ThreadPoolExecutor(1, "generation")
        self._engine = self._thread.submit(build_engine, config, model_path, adapter).result()
        self._request_ids: tuple[str, ...] = ()
        self._share: Future[float] | None = None  # when it was done
        self._finished: deque[Completion] = deque()
        self._counted_until = 0.0
        self._channel = ""

    def begin(self, requests: Sequence[GenerationRequest], sampling: SamplingParameters) -> None:
        """Begin to generate a share of requests; `advance` hands out what is finished. An older share is given up."""
        if self._share is not None and not self._share.done():
            self._engine.abort(self._request_ids)
            wait([self._share])
        self._finished.clear()
        self._request_ids = tuple(request.request_id for request in requests)
        self._counted_until = time.perf_counter()
        self._share = self._thread.submit(self._generate, tuple(requests), sampling)

    def advance(self, wait_s: float, given_up: Collection[str] = ()) -> Turn:
        """Return the completions of the share that were finished within `wait_s` seconds; sooner when it is all done.

        Args:
            given_up: requests whose completions are not wanted any more.
        """
        if given_up and not self._share.done():
            self._engine.abort(given_up)
        wait([self._share], timeout=wait_s)
        finished = self._share.done()
        until = self._share.result() if finished else time.perf_counter()  # raises what the engine raised
        busy_s, self._counted_until = max(0.0, until - self._counted_until), until
        completions = tuple(self._finished.popleft() for _ in range(len(self._finished)))
        return Turn(completions, finished, busy_s)

    def _generate(self, requests: tuple[GenerationRequest, ...], sampling: SamplingParameters) -> float:
        for completion in self._engine.generate(requests, sampling):
            self._finished.append(completion)
        return time.perf_counter()

    def load_weights(self, weights: ray.ObjectRef | WeightOffer, policy_version: int) -> dict[str, float]:
        """Replace the engine's weights; return the seconds of each phase, and `total` from pause to resume."""
        if isinstance(weights, ray.ObjectRef):
            weights = ray.get(weights)
        else:
            self._channel = weights.channel.rpartition("/")[2]  # as the fleet named it
        self._engine.load_weights(weights, policy_version)
        return self._engine.last_sync_s

    def serves_adapters(self) -> tuple[bool, str]:
        """Return whether weight updates are adapters alone; else why not, where adapters were asked for."""
        return self._engine.adapter is not None, self._engine.no_adapter_reason

    def channel(self) -> str:
        """Return the channel through which weights reach this engine; empty before the first."""
        return self._channel

    def policy_version(self) -> int:
        return self._engine.policy_version

    def sleep(self) -> None:
        """Hand device memory back until there is something to do again."""
        self._engine.sleep()

    def score(self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Return log-probabilities per token of given completions under the engine: [(prompt ids, completion ids)]."""
        return self._engine.score(sequences)
