"""The deployment that answers: replicas with an engine each, and the routes on top of it."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from ray import serve
from ray.serve.handle import DeploymentHandle

import cudal1_ray
from cudal1_ray.errors import UserError
from cudal1_ray.serving.access.middleware import HEALTH_PATHS, AccessMiddleware
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.coordinator import Coordinator, RemoteCoordinator
from cudal1_ray.serving.evaluate_routes import evaluate_router
from cudal1_ray.serving.listener import Listener
from cudal1_ray.serving.metrics import RequestMetrics, WeightMetrics, merged
from cudal1_ray.serving.openai.engine import GeneratedText, OpenAIEngine
from cudal1_ray.serving.openapi_document import describe
from cudal1_ray.serving.optimize.routes import optimize_router
from cudal1_ray.serving.page import OPEN_PATHS, mount_page
from cudal1_ray.serving.weights.request_barrier import VersionHeader
from cudal1_ray.serving.weights.routes import weights_router
from cudal1_ray.serving.weights.versions import Weights, take_copy

# Seconds between lines of a replica that loads.
REPORT_EVERY_S = 5.0
# Seconds after which an engine without an answer is not ready.
ANSWER_S = 5.0
# Seconds after which it is not alive; Ray Serve waits for 30 s, and asks three times.
SILENCE_S = 25.0
_logger = logging.getLogger("cudal1.serving")


@serve.deployment
@serve.ingress()
class EndpointDeployment:
    """One replica: an engine, the routes on top of it, and a task that asks the coordinator for newer weights.

    Args:
        coordinator: None for a single replica, in which the coordinator lives and which listens at the port.
    """

    async def __init__(
        self,
        config: ServingConfig,
        coordinator: DeploymentHandle | None,
        job_queue: DeploymentHandle,
        evaluator: DeploymentHandle,
    ) -> None:
        self._config = config
        self._coordinator: Any = RemoteCoordinator(coordinator) if coordinator else Coordinator(config, self._prepared)
        self._replica_id = uuid.uuid4().hex[:8]
        self._engine = OpenAIEngine(config, await self._coordinator.current())
        await self._engine.start()
        self._metrics, self._weight_metrics = RequestMetrics(), WeightMetrics()
        self._routes = FastAPI(title="cudal1", docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json")
        await self._engine.mount(self._routes)
        self._routes.include_router(optimize_router(job_queue))
        self._routes.include_router(evaluate_router(evaluator))
        self._routes.include_router(weights_router(self._coordinator, config.weights))
        for path in HEALTH_PATHS:
            self._routes.add_api_route(path, self._health, methods=["GET", "HEAD"], include_in_schema=False)
        self._routes.add_api_route("/metrics", self._metrics_page, methods=["GET"], include_in_schema=False)
        mount_page(self._routes, config)
        describe(self._routes)
        routes = VersionHeader(self._routes, self._engine.barrier)
        self._guarded = AccessMiddleware(routes, config.security, self._coordinator, self._metrics, OPEN_PATHS)
        self._updating = asyncio.create_task(self._keep_up_to_date())
        self._listener: Listener | None = None
        if coordinator is None:
            self._coordinator.begin()
            self._listener = Listener(self._guarded, config.host, config.port)
            await self._listener.start()

    def __serve_build_asgi_app__(self) -> Any:
        return self._guarded

    async def check_health(self) -> None:
        """Ask the engine for an answer, for Ray Serve, which replaces a replica whose engine died."""
        await self._engine.check(SILENCE_S)

    async def write(self, prompt: tuple[int, ...], n: int, temperature: float, seed: int) -> list[GeneratedText]:
        return await self._engine.write(prompt, n, temperature, seed)

    async def prepare(self, folder: str, version: int, served: str) -> Weights | str:
        """Copy and check weights for the coordinator; a text names why they are refused."""
        try:
            return await self._prepared(folder, version, served)
        except UserError as error:
            return str(error)

    async def drain(self) -> None:
        await self._coordinator.drain()

    async def under_way(self) -> int:
        return await self._coordinator.under_way()

    async def _prepared(self, folder: str, version: int, served: str) -> Weights:
        store = Path(self._config.weights.store_dir)
        return await asyncio.to_thread(take_copy, Path(folder), store, version, Path(served))

    async def _keep_up_to_date(self) -> None:
        """Ask for a turn, for ever, and load weights when it is this replica's."""
        while True:
            try:
                self._weight_metrics.serves(self._engine.barrier.weights.version, self._engine.barrier.under_way)
                page = self._metrics.page()[0] if isinstance(self._coordinator, RemoteCoordinator) else b""
                weights = await self._coordinator.turn(self._replica_id, self._engine.barrier.weights.version, page)
                if weights is not None:
                    await self._change_weights(weights)
                if self._engine.barrier.broken:
                    return
            except Exception:  # the coordinator is being replaced
                _logger.debug("the coordinator does not answer", exc_info=True)
                await asyncio.sleep(1.0)

    async def _change_weights(self, weights: Weights) -> None:
        reporting = asyncio.create_task(self._report_loading())
        fault = ""
        try:
            self._weight_metrics.updated(await self._engine.change_weights(weights))
        except Exception as error:
            fault = str(error) or type(error).__name__
            self._weight_metrics.failed()
            _logger.error("weights %s could not be loaded; this replica is replaced", weights.source, exc_info=error)
        finally:
            reporting.cancel()
        await self._coordinator.report_loaded(self._replica_id, weights.version, fault)

    async def _report_loading(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            await self._coordinator.report_loading(self._replica_id)

    async def _health(self) -> Response:
        """Return 200 where requests are taken and the engine answers, 503 from the moment the server drains."""
        state = {"status": "ok", "version": cudal1_ray.__version__}
        state["policy_version"] = self._engine.barrier.weights.version
        if await self._coordinator.draining():
            return _unwell(state, "draining")
        try:
            await self._engine.check(ANSWER_S)
        except Exception as error:
            _logger.error("the engine is not well: %s", error)
            return _unwell(state, "the engine does not answer")
        return Response(json.dumps(state), media_type="application/json")

    async def _metrics_page(self) -> Response:
        self._weight_metrics.serves(self._engine.barrier.weights.version, self._engine.barrier.under_way)
        page, kind = self._metrics.page()
        if isinstance(self._coordinator, RemoteCoordinator):
            page = merged({**await self._coordinator.pages(), self._replica_id: page})
        return Response(page, headers={"content-type": kind})

    def __del__(self) -> None:
        if listener := getattr(self, "_listener", None):
            listener.stop()
        if engine := getattr(self, "_engine", None):
            engine.close()


def _unwell(details: dict[str, Any], status: str) -> Response:
    body = json.dumps(details | {"status": status})
    return Response(body, status_code=503, media_type="application/json", headers={"retry-after": "5"})
