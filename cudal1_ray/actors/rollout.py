"""Rollout actors: one inference engine each, driven in short turns so that completions leave as they finish."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ray

from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.member import FleetMember, MethodCall
from cudal1_ray.rollout import Completion, GenerationRequest, RolloutConfig, SamplingParameters, build_engine


@dataclass(frozen=True)
class Turn:
    """What an engine finished since the last turn, and whether anything is left of what it was given."""

    completions: tuple[Completion, ...]
    finished: bool


class RolloutActor(FleetMember):
    """Owns one `RolloutEngine`."""

    def __init__(self, config: RolloutConfig, model_path: str):
        self._engine = build_engine(config, model_path)
        self._stream: Iterator[Completion] = iter(())

    def begin(self, requests: Sequence[GenerationRequest], sampling: SamplingParameters) -> None:
        """Takes over a share of requests; `advance` generates them."""
        self._stream = iter(self._engine.generate(requests, sampling))

    def advance(self, budget_s: float) -> Turn:
        """Generates for about `budget_s` seconds, at least until one completion is finished."""
        completions, deadline = [], time.monotonic() + budget_s
        for completion in self._stream:
            completions.append(completion)
            if time.monotonic() >= deadline:
                return Turn(tuple(completions), finished=False)
        return Turn(tuple(completions), finished=True)

    def load_weights(self, weights: ray.ObjectRef, policy_version: int) -> int:
        """Replaces the engine's weights by those of the object store; every phase has the engine's own timeout."""
        self._engine.load_weights(ray.get(weights), policy_version)
        return policy_version

    def score(self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Log-probabilities of given completions under the engine: [(prompt ids, completion ids)] -> per token."""
        return self._engine.score(sequences)


class RolloutFleet:
    """All engines as one: requests in, completions out, whoever dies in between.

    A request is one completion; the seed of the sampling and the request's id decide what it says, not the engine it
    lands on, so a request issued again after a death is the same draw.
    """

    def __init__(self, fleet: Fleet, turn_s: float = 0.25):
        self.fleet, self.busy_s, self.policy_version = fleet, 0.0, 0
        self._turn_s = turn_s
        self._shares: deque[tuple[GenerationRequest, ...]] = deque()
        self._held: dict[int, tuple[GenerationRequest, ...]] = {}
        self._open: dict[str, GenerationRequest] = {}
        self._sampling: SamplingParameters | None = None
        self._weights: ray.ObjectRef | None = None

    def bring_up(self) -> tuple[MethodCall, ...]:
        """What a replacement must do before it generates: load the weights that the others already have."""
        if self._weights is None:
            return ()
        return (MethodCall("load_weights", (self._weights, self.policy_version)),)

    def load_weights(self, weights: ray.ObjectRef, policy_version: int) -> float:
        """Publishes new weights to every engine; seconds it took. Nothing may be generating.

        Raises:
            RuntimeError: while completions are outstanding: their tokens would come from two policies.
        """
        if self._open:
            raise RuntimeError(f"{len(self._open)} completions are outstanding: collect them before a weight sync")
        started = time.perf_counter()
        self._weights, self.policy_version = weights, policy_version
        self.fleet.call_all("load_weights", weights, policy_version)
        return time.perf_counter() - started

    def start(self, requests: Sequence[GenerationRequest], sampling: SamplingParameters) -> None:
        """Splits requests among the engines. `sampling.n` is 1: every request is one completion."""
        self._sampling = sampling
        self._open.update({request.request_id: request for request in requests})
        engines = max(1, len(self.fleet.members))
        self._shares.extend(share for i in range(engines) if (share := tuple(requests[i::engines])))

    @property
    def outstanding(self) -> int:
        return len(self._open)

    def collect(self, timeout_s: float = 0.02) -> list[Completion]:
        """Completions finished since the last call; waits at most `timeout_s` when there are none."""
        self._hand_out()
        completions = []
        for reply in self.fleet.replies(timeout_s) if self._open else []:
            self.busy_s += reply.busy_s
            if reply.error:  # what the lost member had not delivered goes back, to be drawn again
                left = tuple(r for r in self._held.pop(reply.member, ()) if r.request_id in self._open)
                self._shares.extend([left] if left else [])
                continue
            turn: Turn | None = reply.value
            for completion in turn.completions if turn else ():
                if self._open.pop(completion.request_id, None) is not None:
                    completions.append(completion)
            if turn and turn.finished:
                self._held.pop(reply.member, None)
        self._hand_out()
        return completions

    def _hand_out(self) -> None:
        if not self._open:  # an engine that delivered its last completion has nothing left to advance
            self._held.clear()
            return
        for member in self.fleet.idle:
            if member in self._held:
                self.fleet.send(member, "advance", "advance", self._turn_s)
            elif self._shares:
                self._held[member] = self._shares.popleft()
                self.fleet.send(member, "begin", "begin", self._held[member], self._sampling)
