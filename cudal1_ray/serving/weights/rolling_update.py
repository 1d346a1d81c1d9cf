"""New weights over all replicas of a server: one after the other, and back again when one cannot take them.

Replicas ask for their turn: so a new one learns what the others serve, a dead one is not waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.config import WeightsConfig
from cudal1_ray.serving.served_policy import newest_policy_files, run_of
from cudal1_ray.serving.weights.versions import (
    Weights,
    allowed_folder,
    drop_copies,
    link_files,
    read_current,
    remember_current,
    source_name,
)

# Seconds after which a replica that has not asked is gone.
SILENT_S = 15.0
# Seconds for which a replica that has nothing to do is kept waiting for an answer.
ASK_AGAIN_S = 5.0
_logger = logging.getLogger("cudal1.serving")

# Copies a folder for a version and checks it against what is served; raises UserError. Runs where torch is.
Prepare = Callable[[str, int, str], Awaitable[Weights]]


class Busy(Exception):
    """Weights are being rolled in already."""


@dataclass
class Replica:
    """What the roll knows of one replica. `last_contact`: when it asked last, or began to load."""

    version: int
    last_contact: float
    loading: bool = False


class RollingUpdate:
    """The versions of one server. One event loop; on disk, in `store`, what a successor of this object must know.

    Args:
        start: the model folder that the server was started with; version 1 is a copy of it where it is a run's.
        store: where copies are kept; of this server alone.
        server_id: differs from start to start: what an earlier server had rolled in is forgotten.
    """

    def __init__(self, config: WeightsConfig, start: Path, store: Path, server_id: str, prepare: Prepare):
        self._config, self._store, self._server_id, self._prepare = config, store, server_id, prepare
        self._start = start
        self.last_fault = ""
        self.current = read_current(store, server_id) or self._first_weights()  # what a replica serves that starts now
        self._target = self.current
        self._highest = self.current.version  # no number is given twice, not even that of weights that went back out
        self._replicas: dict[str, Replica] = {}
        self._news = asyncio.Condition()
        self._rolling = asyncio.Lock()
        self._tasks: set[asyncio.Task[dict[str, Any]]] = set()  # an event loop itself holds them weakly
        self._fault = ""  # of the roll under way
        self.outcomes = {"rolled_in": 0, "turned_away": 0}

    async def turn(self, replica_id: str, version: int) -> Weights | None:
        """Return the weights that a replica is to load now, or None: nothing to do, ask again. Every replica asks in
        turn.
        """
        async with self._news:
            self._replicas[replica_id] = Replica(version, time.monotonic())
            self._highest = max(self._highest, version)  # a record of it may be lost
            self._news.notify_all()
            try:
                async with asyncio.timeout(ASK_AGAIN_S):
                    await self._news.wait_for(lambda: self._may_load(replica_id))
            except TimeoutError:
                pass
            replica = self._replicas.get(replica_id)
            if replica is None or not self._may_load(replica_id):
                if replica is not None:
                    replica.last_contact = time.monotonic()
                return None
            replica.loading, replica.last_contact = True, time.monotonic()
            return self._target

    async def report_loaded(self, replica_id: str, version: int, fault: str) -> None:
        """Record that a replica had its turn; `fault`: why it could not load, and is going down; empty: it has."""
        async with self._news:
            if fault:
                self._replicas.pop(replica_id, None)
                if version == self._target.version and self._target != self.current:
                    self._fault = fault
            else:
                self._replicas[replica_id] = Replica(version, time.monotonic())
            self._news.notify_all()

    async def report_loading(self, replica_id: str) -> None:
        """Record that a replica still loads, which it reports now and then."""
        if replica := self._replicas.get(replica_id):
            replica.last_contact = time.monotonic()

    async def change(self, path: str) -> dict[str, Any]:
        """Roll the weights at `path` in; return when all replicas serve them. The roll ends even if its caller is
        cancelled.

        Raises:
            Busy: another roll is under way.
            UserError: the weights are no good, or a replica could not load them; the old ones are served on.
        """
        return await self._to_its_end(self._change(path))

    async def _change(self, path: str) -> dict[str, Any]:
        if self._rolling.locked():
            raise Busy
        async with self._rolling:
            try:
                roots = self._config.roots or [str(run_of(self._start) or self._start)]
                folder = await asyncio.to_thread(allowed_folder, path, roots)
                return await self._roll(str(folder))
            except UserError as error:
                self.last_fault = str(error)
                self.outcomes["turned_away"] += 1
                raise

    async def follow(self) -> None:
        """Roll in every policy that the followed run finishes, for ever; try again after unexpected errors."""
        done: tuple[int, Path] | None = None
        while True:
            try:
                done = await self._follow_once(Path(self._config.follow), done)
            except Exception as error:
                _logger.warning("%s: trying again to roll its policy in", self._config.follow, exc_info=error)
            await asyncio.sleep(self._config.follow_every_s)

    async def _follow_once(self, run: Path, done: tuple[int, Path] | None) -> tuple[int, Path] | None:
        """Roll in the newest policy unless it is `done` or served; return the policy that is done by then."""
        policy = await asyncio.to_thread(newest_policy_files, run)
        if policy is None or policy == done:
            return done
        _, place = policy
        if done is None and self._serves(place):
            return policy
        try:
            await self._to_its_end(self._roll_in_turn(str(place)))
        except UserError as error:
            if not place.exists():
                return done  # deleted by the run while it was copied: there is a newer one
            self.last_fault = str(error)
            self.outcomes["turned_away"] += 1
            _logger.warning("%s is not rolled in: %s", place, error)
        return policy

    def replica_ids(self) -> set[str]:
        """Return the replicas that reported lately."""
        self._forget_silent()
        return set(self._replicas)

    def state(self) -> dict[str, Any]:
        """Return the state for people and scripts; no paths."""
        self._forget_silent()
        return {
            "policy_version": self.current.version,
            "weights": self.current.source,
            "rolling_in": self._target.source if self._target != self.current else None,
            "replicas": [{"policy_version": r.version, "loading": r.loading} for r in self._replicas.values()],
            "rolled_in": self.outcomes["rolled_in"],
            "turned_away": self.outcomes["turned_away"],
            "last_fault": scrub(self.last_fault) or None,
        }

    async def _to_its_end(self, roll: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Return what a roll returns; it ends even if its caller is cancelled, since replicas may have loaded."""
        task = asyncio.create_task(roll)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _roll_in_turn(self, folder: str) -> dict[str, Any]:
        async with self._rolling:
            return await self._roll(folder)

    async def _roll(self, folder: str) -> dict[str, Any]:
        started, before = time.monotonic(), self.current
        weights = await self._prepare(folder, self._highest + 1, before.folder)
        self._highest = weights.version
        async with self._news:
            self._target, self._fault = weights, ""
            self._news.notify_all()
            while not self._fault and not self._all_have(weights.version):
                try:
                    async with asyncio.timeout(1.0):
                        await self._news.wait()
                except TimeoutError:
                    pass
                self._forget_silent()
            if self._fault:
                self._target = before
                self._news.notify_all()
                raise UserError(f"{weights.source}: a replica could not load it ({self._fault}); the old weights stay")
            self.current = weights
            self.outcomes["rolled_in"] += 1
            self._remember(weights)
        await asyncio.to_thread(drop_copies, self._store, (before.folder, weights.folder))
        return self.state() | {"seconds": round(time.monotonic() - started, 3)}

    def _may_load(self, replica_id: str) -> bool:
        """Return whether the replica has another version than it should and no other replica is loading."""
        self._forget_silent()
        mine = self._replicas.get(replica_id)
        if mine is None or mine.version == self._target.version:
            return False
        return not any(other.loading for name, other in self._replicas.items() if name != replica_id)

    def _all_have(self, version: int) -> bool:
        """Return whether every replica has a version; where none is left, the next one starts with what is current."""
        return all(r.version == version for r in self._replicas.values())

    def _serves(self, place: Path) -> bool:
        """Return whether the weights at `place` are those that are served: a copy has the time of its file."""
        try:
            served, there = ((folder / "config.json").stat() for folder in (Path(self.current.folder), place))
        except OSError:
            return False
        return self.current.source == source_name(place) and served.st_mtime_ns == there.st_mtime_ns

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for name, replica in list(self._replicas.items()):
            if now - replica.last_contact > SILENT_S:
                del self._replicas[name]

    def _first_weights(self) -> Weights:
        """Return version 1. A run may delete the checkpoint that it was started on, so that one is copied."""
        drop_copies(self._store, ())
        if run_of(self._start) is None:
            return Weights(1, str(self._start), source_name(self._start))
        weights = link_files(self._start, self._store, 1)
        self._remember(weights)
        return weights

    def _remember(self, weights: Weights) -> None:
        """Record what is served. Where that cannot be written it is served all the same: to fail would be to load it
        again and again. A successor then begins with what was recorded before.
        """
        try:
            remember_current(self._store, self._server_id, weights)
        except OSError as error:
            self.last_fault = f"version {weights.version} is served, but not recorded ({error.strerror}); make room"
            _logger.warning("%s: %s", self._store, self.last_fault)
