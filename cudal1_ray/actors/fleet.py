"""A fleet: identical actors that survive the death of any of them.

Membership and health are RLlib's `FaultTolerantActorManager`; added here is what it leaves to its caller: a dead or
hung member is replaced by a new one, the new one is brought up to date, and the caller that waited for the old one gets
an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from cudal1_ray.actors.causes import cause_of
from cudal1_ray.actors.config import RoleConfig
from cudal1_ray.actors.member import ActorsLost, MethodCall, Timed
from cudal1_ray.wording import counted

logging.getLogger("ray.rllib.utils.actor_manager").setLevel(logging.CRITICAL)  # the fleet reports it in one line


CLOSE_TIMEOUT_S = 5.0


class FleetLost(ActorsLost):
    """A fleet cannot go on: members do not start, or die faster than they are worth replacing."""


@dataclass(frozen=True)
class MemberReply:
    """Answer of one member to one call: `value`, or `error` with the cause when the member was lost."""

    member: int
    call_id: str
    value: Any = None
    busy_s: float = 0.0
    error: str = ""


class Fleet:
    """Members of one role.

    Args:
        name: the role, as errors and progress name it.
        start: starts member number i and returns its handle; called again for every replacement.
        role: count, timeouts.
        max_replacements: members that may be replaced over the life of the fleet.
        bring_up: calls that a replacement answers before it gets work (an engine loads the current weights).

    Raises:
        FleetLost: when a member does not start, with the cause that its process gave.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[int], ActorHandle],
        role: RoleConfig,
        max_replacements: int,
        bring_up: Callable[[], Sequence[MethodCall]] = tuple,
    ):
        self.name, self.role = name, role
        self.replacements: list[str] = []
        self._start, self._bring_up, self._max_replacements = start, bring_up, max_replacements
        self._started = 0
        self._running: dict[int, tuple[str, float]] = {}  # member -> (call id, when it was sent)
        self._manager = FaultTolerantActorManager(
            [self._new() for _ in range(role.count)], max_remote_requests_in_flight_per_actor=1
        )

    def wait_until_ready(self) -> None:
        """Block until every member has started. Apart from the constructor, so that fleets start side by side."""
        for member in self.members:
            self._check(self._manager.actors()[member])

    @property
    def members(self) -> list[int]:
        return self._manager.actor_ids()

    @property
    def idle(self) -> list[int]:
        """Return the members without a call."""
        return [m for m in self.members if m not in self._running]

    def handle(self, member: int) -> ActorHandle:
        return self._manager.actors()[member]

    def send(self, member: int, call_id: str, method: str, *args: Any) -> None:
        """Send one call to an idle member; its answer comes out of `replies`."""
        self._running[member] = (call_id, time.monotonic())
        self._manager.foreach_actor_async(MethodCall(method, args), tag=call_id, remote_actor_ids=[member])

    def replies(self, timeout_s: float = 0.02) -> list[MemberReply]:
        """Return answers that came in, lost members (already replaced) included. Waits at most `timeout_s`."""
        answers = []
        for result in self._manager.fetch_ready_async_reqs(timeout_seconds=timeout_s):
            call_id, _ = self._running.pop(result.actor_id, (result.tag, 0.0))
            if result.ok:
                timed: Timed = result.get()
                answers.append(MemberReply(result.actor_id, call_id, timed.value, timed.busy_s))
            else:
                answers.append(
                    MemberReply(result.actor_id, call_id, error=self._replace(result.actor_id, result.get()))
                )
        for member, (call_id, sent) in list(self._running.items()):
            if time.monotonic() - sent > self.role.call_timeout_s:
                del self._running[member]
                cause = TimeoutError(f"no answer within call_timeout_s={self.role.call_timeout_s:g}")
                answers.append(MemberReply(member, call_id, error=self._replace(member, cause)))
        return answers

    def call_all(self, method: str, *args: Any) -> list[Any]:
        """Call every member and wait. A member that fails is replaced, and the replacement is brought up instead.

        The values of the members that answered; fewer than the fleet when some were replaced.

        Raises:
            RuntimeError: while a call of `send` is unanswered: its reply could be taken for this one's.
        """
        if self._running:
            raise RuntimeError(f"{self.name}: {len(self._running)} calls are unanswered, collect them first")
        for member in self.members:
            self.send(member, f"{method}@{member}", method, *args)
        values = []
        while self._running:
            values += [reply.value for reply in self.replies() if not reply.error]
        return values

    def stop(self) -> None:
        """End every member; those that are idle get to tidy up first."""
        closing = [actor.close.remote() for actor in self._manager.actors().values()]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_TIMEOUT_S)
        self._running.clear()
        self._manager.clear()

    def _new(self) -> ActorHandle:
        self._started += 1
        return self._start(self._started - 1)

    def _check(self, actor: ActorHandle) -> None:
        try:
            ray.get(actor.ping.remote(), timeout=self.role.start_timeout_s)
            for call in self._bring_up():
                ray.get(actor.apply.remote(call), timeout=self.role.call_timeout_s)
        except Exception as error:
            raise FleetLost(f"{self.name}: a member did not start: {cause_of(error)}") from error

    def _replace(self, member: int, error: Exception) -> str:
        """Kill what is left of a member and start another in its place; return the cause in one line."""
        cause = cause_of(error)
        self.replacements.append(cause)
        if len(self.replacements) > self._max_replacements:
            raise FleetLost(
                f"{self.name}: {counted(len(self.replacements), 'member')} lost (cluster.max_replacements="
                f"{self._max_replacements}); the last one: {cause}"
            )
        ray.kill(self._manager.remove_actor(member))
        fresh = self._new()
        self._check(fresh)
        self._manager.add_actors([fresh])
        return cause
