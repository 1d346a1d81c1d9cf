"""The coordinator: the one place of an application where requests are counted and weights are rolled from.

Where a single replica serves, the coordinator lives in it; where there may be several, it is a deployment of its own.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from cudal1_ray.errors import UserError
from cudal1_ray.serving.access.admission import Admission, Decision
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.weights.rolling_update import Busy, Prepare, RollingUpdate
from cudal1_ray.serving.weights.versions import Weights


class Coordinator:
    """Admission and weights. Should its process die, another one counts requests from zero, and knows the weights."""

    def __init__(self, config: ServingConfig, prepare: Prepare):
        self._admission = Admission(config.security)
        start, store = Path(config.policy.path), Path(config.weights.store_dir)
        self._roll = RollingUpdate(config.weights, start, store, config.server_id, prepare)
        self._following: asyncio.Task[None] | None = None
        self._follows = bool(config.weights.follow)
        self._pages: dict[str, bytes] = {}

    def begin(self) -> None:
        """Start to follow a run, where one is configured. Needs a running event loop; idempotent."""
        if self._follows and self._following is None:
            self._following = asyncio.create_task(self._roll.follow())

    async def ask(self, digest: str | None) -> Decision:
        return self._admission.ask(digest, time.monotonic())

    async def release(self, lease: int) -> None:
        self._admission.release(lease)

    async def drain(self) -> None:
        """Stop admitting requests and rolling weights in."""
        self._admission.draining = True
        if self._following is not None:
            self._following.cancel()

    async def draining(self) -> bool:
        return self._admission.draining

    async def under_way(self) -> int:
        return self._admission.under_way(time.monotonic())

    async def current(self) -> Weights:
        """Return the weights that a replica which starts now serves."""
        return self._roll.current

    async def turn(self, replica_id: str, version: int, page: bytes = b"") -> Weights | None:
        """See `RollingUpdate.turn`; `page`: the replica's metrics, kept for whichever replica is asked for them."""
        self._pages[replica_id] = page
        return await self._roll.turn(replica_id, version)

    async def report_loading(self, replica_id: str) -> None:
        await self._roll.report_loading(replica_id)

    async def report_loaded(self, replica_id: str, version: int, fault: str) -> None:
        await self._roll.report_loaded(replica_id, version, fault)

    async def pages(self) -> dict[str, bytes]:
        """Return each replica's last page of metrics; of those that are there."""
        replica_ids = self._roll.replica_ids()
        self._pages = {name: page for name, page in self._pages.items() if name in replica_ids}
        return self._pages

    async def change(self, path: str) -> dict[str, Any]:
        """Roll weights in. Refusals cross between processes as data: an exception would arrive wrapped in another."""
        try:
            return await self._roll.change(path)
        except Busy:
            return {"refused": 409, "message": "other weights are being rolled in; try again when that is done"}
        except UserError as error:
            return {"refused": 400, "message": str(error)}

    async def roll_state(self) -> dict[str, Any]:
        return self._roll.state()


@serve.deployment
class CoordinatorDeployment(Coordinator):
    """The coordinator as a deployment. Folders are checked in a replica of the endpoint, where torch is loaded."""

    def __init__(self, config: ServingConfig):
        super().__init__(config, self._prepare)
        self._app_name = config.name
        self._endpoint: DeploymentHandle | None = None

    async def check_health(self) -> None:
        """Begin to follow a run: Ray Serve calls this at once and then again and again, and there is an event loop."""
        self.begin()

    async def _prepare(self, folder: str, version: int, served: str) -> Weights:
        if self._endpoint is None:  # the endpoint holds a handle to this one, so this one cannot be given one to it
            self._endpoint = serve.get_deployment_handle("endpoint", self._app_name)
        prepared = await self._endpoint.prepare.remote(folder, version, served)
        if isinstance(prepared, str):
            raise UserError(prepared)
        return prepared


class RemoteCoordinator:
    """The coordinator's methods as a replica calls them, over a handle."""

    def __init__(self, handle: DeploymentHandle):
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name).remote
