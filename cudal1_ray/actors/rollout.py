"""Rollout actors: one inference engine each, driven in short turns so that completions leave as they finish."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ray

from cudal1_ray.actors.fleet import Fleet
from cudal1_ray.actors.member import FleetMember, MethodCall
from cudal1_ray.rollout import Completion, GenerationRequest, RolloutConfig, SamplingParameters, build_engine

if TYPE_CHECKING:
    from cudal1_ray.rollout.transports import WeightOffer

    Weights = ray.ObjectRef | Callable[[str, int], WeightOffer]  # what `LearnerGroup.publish` returns


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
        self._channel = ""

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

    def load_weights(self, weights: ray.ObjectRef | WeightOffer, policy_version: int) -> dict[str, float]:
        """Replaces the engine's weights; seconds of each phase, and `total` from pause to resume."""
        if isinstance(weights, ray.ObjectRef):
            weights = ray.get(weights)
        else:
            self._channel = weights.channel.rpartition("/")[2]  # as the fleet named it
        self._engine.load_weights(weights, policy_version)
        return self._engine.last_sync_s

    def channel(self) -> str:
        """The channel through which weights reach this engine; empty before the first."""
        return self._channel

    def policy_version(self) -> int:
        return self._engine.policy_version

    def sleep(self) -> None:
        """Hands device memory back until there is something to do again."""
        self._engine.sleep()

    def score(self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Log-probabilities of given completions under the engine: [(prompt ids, completion ids)] -> per token."""
        return self._engine.score(sequences)


class RolloutFleet:
    """All engines as one: requests in, completions out, whoever dies in between.

    A request is one completion; the seed of the sampling and the request's id decide what it says, not the engine it
    lands on, so a request issued again after a death is the same draw.

    Args:
        workers: tensor-parallel workers of each engine.
        sleeps: engines hand device memory back whenever nothing is outstanding.
    """

    def __init__(self, fleet: Fleet, turn_s: float = 0.25, workers: int = 1, sleeps: bool = False):
        self.fleet, self.busy_s, self.policy_version = fleet, 0.0, 0
        self.sync_phases_s: list[dict[str, float]] = []  # of the last weight sync, one per engine that did not fail
        self._turn_s, self._workers, self._sleeps = turn_s, workers, sleeps
        self._shares: deque[tuple[GenerationRequest, ...]] = deque()
        self._held: dict[int, tuple[GenerationRequest, ...]] = {}
        self._open: dict[str, GenerationRequest] = {}
        self._sampling: SamplingParameters | None = None
        self._weights: Weights | None = None
        self._channels: dict[int, str] = {}

    def bring_up(self) -> tuple[MethodCall, ...]:
        """What a replacement must do before it generates: load the weights that the others already have."""
        if self._weights is None:
            return ()
        weights = self._weights
        if not isinstance(weights, ray.ObjectRef):
            weights = weights(uuid.uuid4().hex, self._workers)
        return (MethodCall("load_weights", (weights, self.policy_version)),)

    def load_weights(self, weights: Weights, policy_version: int) -> float:
        """Publishes new weights to every engine; seconds it took. Nothing may be generating.

        An engine that fails at it is replaced, and its replacement loads the same weights.

        Raises:
            RuntimeError: while completions are outstanding: their tokens would come from two policies.
        """
        if self._open:
            raise RuntimeError(f"{len(self._open)} completions are outstanding: collect them before a weight sync")
        self._settle()
        started = time.perf_counter()
        self._weights, self.policy_version = weights, policy_version
        for member in self.fleet.members:
            self.fleet.send(member, "load_weights", "load_weights", self._handed_to(member), policy_version)
        self.sync_phases_s = self._settle()
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
        if self._sleeps and completions and not self._open:
            self._settle()
            self.fleet.call_all("sleep")
        return completions

    def _handed_to(self, member: int) -> ray.ObjectRef | WeightOffer:
        """The current weights as one engine takes them."""
        if isinstance(self._weights, ray.ObjectRef):
            return self._weights
        if member not in self._channels:  # a replacement has a channel already
            try:
                channel = ray.get(self.fleet.handle(member).channel.remote(), timeout=self.fleet.role.call_timeout_s)
            except ray.exceptions.RayError:  # it died: the call that follows says so, and it is replaced
                channel = ""
            self._channels[member] = channel or uuid.uuid4().hex
        return self._weights(self._channels[member], self._workers)

    def _settle(self) -> list:
        """Waits until no call is unanswered; the answers of those that did not fail."""
        values = []
        while len(self.fleet.idle) < len(self.fleet.members):
            values += [reply.value for reply in self.fleet.replies() if not reply.error]
        return values

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
