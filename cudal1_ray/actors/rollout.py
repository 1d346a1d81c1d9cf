"""All rollout actors as one: requests in, completions out."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import ray

from cudal1_ray.actors.fleet import Fleet, MemberReply
from cudal1_ray.actors.member import MethodCall
from cudal1_ray.actors.rollout_member import Turn
from cudal1_ray.rollout import Completion, GenerationRequest, SamplingParameters

if TYPE_CHECKING:
    from cudal1_ray.rollout.transports import WeightOffer

    Weights = ray.ObjectRef | Callable[[str, int], WeightOffer]  # what `LearnerGroup.publish` returns


class RolloutFleet:
    """All engines as one: requests in, completions out, whichever engine dies in between.

    A request is one completion. Where completions have seeds of their own, the seed of the sampling and the request's
    id decide its text, not the engine it is sent to, so a request issued again after a death is the same draw.

    Args:
        workers: tensor-parallel workers of each engine.
        sleeps: engines hand device memory back whenever nothing is outstanding.
    """

    def __init__(self, fleet: Fleet, turn_s: float = 0.25, workers: int = 1, sleeps: bool = False):
        self.fleet, self.busy_s, self.policy_version = fleet, 0.0, 0
        self.sync_phases_s: list[dict[str, float]] = []  # of the last weight sync, one per engine that did not fail
        self._turn_s, self._workers, self._sleeps = turn_s, workers, sleeps
        self._awake = True  # as engines are when they have started
        self._shares: deque[tuple[GenerationRequest, ...]] = deque()
        self._held: dict[int, tuple[GenerationRequest, ...]] = {}
        self._given_up: dict[int, set[str]] = {}  # engine -> requests not yet sent to it
        self._open: dict[str, GenerationRequest] = {}
        self._finished: list[Completion] = []
        self._sampling: SamplingParameters | None = None
        self._weights: Weights | None = None
        self._channels: dict[int, str] = {}

    def bring_up(self) -> tuple[MethodCall, ...]:
        """Return the calls that a replacement needs before it generates: load the weights that the others have."""
        if self._weights is None:
            return ()
        weights = self._weights
        if not isinstance(weights, ray.ObjectRef):
            weights = weights(uuid.uuid4().hex, self._workers)
        return (MethodCall("load_weights", (weights, self.policy_version)),)

    def load_weights(self, weights: Weights, policy_version: int, during_generation: bool = False) -> float:
        """Publish new weights to every engine; return the seconds it took.

        An engine that fails at it is replaced, and its replacement loads the same weights.

        Args:
            during_generation: completions under way go on under the new weights, and record it in their segments.

        Raises:
            RuntimeError: while completions are outstanding, unless `during_generation`: their tokens would come from
                two policies.
        """
        if self._open and not during_generation:
            raise RuntimeError(f"{len(self._open)} completions are outstanding: collect them before a weight sync")
        self.settle()
        started = time.perf_counter()
        self._weights, self.policy_version = weights, policy_version
        self._awake = True  # an engine that slept wakes for its weights, and stays so for the prompts that follow
        for member in self.fleet.members:
            self.fleet.send(member, "load_weights", "load_weights", self._handed_to(member), policy_version)
        self.sync_phases_s = self._answers()
        return time.perf_counter() - started

    def start(self, requests: Sequence[GenerationRequest], sampling: SamplingParameters) -> None:
        """Split requests among the engines. `sampling.n` is 1: every request is one completion.

        Raises:
            RuntimeError: there is no engine, and the completions would never come.
        """
        if requests and not self.fleet.members:
            raise RuntimeError(f"{len(requests)} completions are asked for, and no rollout engine was started")
        self._sampling, self._awake = sampling, self._awake or bool(requests)
        self._open.update({request.request_id: request for request in requests})
        engines = len(self.fleet.members)
        self._shares.extend(share for i in range(engines) if (share := tuple(requests[i::engines])))

    def abort(self, request_ids: Collection[str]) -> int:
        """Give up requests that are outstanding, wherever they are; return how many were."""
        aborted_ids = {request_id for request_id in request_ids if self._open.pop(request_id, None) is not None}
        if aborted_ids:
            left = (tuple(r for r in share if r.request_id not in aborted_ids) for share in self._shares)
            self._shares = deque(share for share in left if share)
            for member, share in self._held.items():
                if mine := {request.request_id for request in share} & aborted_ids:
                    self._given_up.setdefault(member, set()).update(mine)
                    # Its completion may be on the way, and is none of a request that is issued again under that name.
                    self._held[member] = tuple(request for request in share if request.request_id not in mine)
            self._hand_out()
            self.rest()
        return len(aborted_ids)

    @property
    def outstanding(self) -> int:
        return len(self._open)

    def collect(self, timeout_s: float = 0.02) -> list[Completion]:
        """Return the completions finished since the last call; wait at most `timeout_s` when there are none."""
        self._hand_out()
        for reply in self.fleet.replies(timeout_s) if self._open or self._given_up else []:
            self._take(reply)
        self._hand_out()
        completions, self._finished = self._finished, []
        self.rest()
        return completions

    def settle(self) -> None:
        """Wait until no call is unanswered and engines know what was given up. What they finished is kept."""
        self._answers()
        if self._given_up:
            self._hand_out()
            self._answers()

    def score(self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
        """Return log-probabilities of given completions under the first engine that answers, one tuple per sequence.

        Args:
            sequences: (prompt token ids, completion token ids).
        """
        self.settle()
        self._awake = True
        scores = next(iter(self.fleet.call_all("score", sequences)), [])
        self.rest()
        return scores

    def rest(self) -> None:
        """Put engines that sleep to sleep, unless completions are outstanding."""
        if self._sleeps and self._awake and not self._open:
            self._awake = False
            self.settle()
            self.fleet.call_all("sleep")

    def _take(self, reply: MemberReply) -> None:
        """Take completions out of an engine's answer; queue again what a lost engine had not delivered."""
        if reply.error:
            self._given_up.pop(reply.member, None)
            left = tuple(r for r in self._held.pop(reply.member, ()) if r.request_id in self._open)
            self._shares.extend([left] if left else [])
            return
        if not isinstance(turn := reply.value, Turn):
            return
        self.busy_s += turn.busy_s
        open_ids = {request.request_id for request in self._held.get(reply.member, ())}
        for completion in turn.completions:
            if completion.request_id in open_ids and self._open.pop(completion.request_id, None) is not None:
                self._finished.append(completion)
        if turn.finished:
            self._held.pop(reply.member, None)
            self._given_up.pop(reply.member, None)

    def _handed_to(self, member: int) -> ray.ObjectRef | WeightOffer:
        """Return the current weights as one engine takes them."""
        if isinstance(self._weights, ray.ObjectRef):
            return self._weights
        if member not in self._channels:  # a replacement has a channel already
            try:
                channel = ray.get(self.fleet.handle(member).channel.remote(), timeout=self.fleet.role.call_timeout_s)
            except ray.exceptions.RayError:  # it died: the call that follows reports it, and it is replaced
                channel = ""
            self._channels[member] = channel or uuid.uuid4().hex
        return self._weights(self._channels[member], self._workers)

    def _answers(self) -> list:
        """Wait until no call is unanswered; return the answers of those that did not fail, except completions."""
        values = []
        while len(self.fleet.idle) < len(self.fleet.members):
            for reply in self.fleet.replies():
                self._take(reply)
                if not reply.error and not isinstance(reply.value, Turn):
                    values.append(reply.value)
        return values

    def _hand_out(self) -> None:
        for member in self.fleet.idle:
            share = self._held.get(member, ())
            if member in self._given_up or any(request.request_id in self._open for request in share):
                given_up = tuple(self._given_up.pop(member, ()))
                self.fleet.send(member, "advance", "advance", self._turn_s, given_up)
                continue
            self._held.pop(member, None)  # it delivered its last completion
            if self._shares:
                self._held[member] = self._shares.popleft()
                self.fleet.send(member, "begin", "begin", self._held[member], self._sampling)
