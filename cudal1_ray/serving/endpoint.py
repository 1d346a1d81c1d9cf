"""The deployments that answer: replicas with an engine each, and the one keeper that counts for all of them."""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Response
from ray import serve
from ray.serve.handle import DeploymentHandle

from cudal1_ray.serving.admission import Admission, Decision
from cudal1_ray.serving.config import SecurityConfig, ServingConfig
from cudal1_ray.serving.guard import Guard
from cudal1_ray.serving.metrics import RequestMetrics
from cudal1_ray.serving.openai_engine import OpenAIEngine, Written
from cudal1_ray.serving.optimize_routes import optimize_router


@serve.deployment
class KeeperDeployment:
    """One `Admission` for the application. Should it die, Ray Serve starts another, which counts from zero."""

    def __init__(self, config: SecurityConfig):
        self._admission = Admission(config)

    async def ask(self, digest: str | None) -> Decision:
        return self._admission.ask(digest, time.monotonic())

    async def release(self, lease: int) -> None:
        self._admission.release(lease)

    async def drain(self) -> None:
        """Lets nobody in any more."""
        self._admission.draining = True

    async def draining(self) -> bool:
        return self._admission.draining

    async def under_way(self) -> int:
        return self._admission.under_way(time.monotonic())


class RemoteKeeper:
    """The keeper as the guard of a replica calls it."""

    def __init__(self, handle: DeploymentHandle):
        self._handle = handle

    async def ask(self, digest: str | None) -> Decision:
        return await self._handle.ask.remote(digest)

    async def release(self, lease: int) -> None:
        await self._handle.release.remote(lease)


@serve.deployment
@serve.ingress()
class Endpoint:
    """One replica: an engine, and the routes on top of it. The proxy streams from here straight to the caller."""

    async def __init__(self, config: ServingConfig, keeper: DeploymentHandle, desk: DeploymentHandle):
        self._config, self._keeper = config, keeper
        self._engine = OpenAIEngine(config)
        await self._engine.start()
        self._metrics = RequestMetrics()
        self._routes = FastAPI(title="cudal1", docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json")
        await self._engine.mount(self._routes)
        self._routes.include_router(optimize_router(desk))
        self._routes.add_api_route("/healthz", self._healthz, methods=["GET"], include_in_schema=False)
        self._routes.add_api_route("/metrics", self._metrics_page, methods=["GET"], include_in_schema=False)

    def __serve_build_asgi_app__(self) -> Any:
        return Guard(self._routes, self._config.security, RemoteKeeper(self._keeper), self._metrics)

    async def check_health(self) -> None:
        """Ray Serve asks; a replica whose engine died is replaced."""
        await self._engine.check()

    async def write(self, prompt: tuple[int, ...], n: int, temperature: float, seed: int) -> list[Written]:
        return await self._engine.write(prompt, n, temperature, seed)

    async def _healthz(self) -> Response:
        """200 where requests are taken; 503 from the moment the server drains."""
        if await self._keeper.draining.remote():
            return Response('{"status":"draining"}', status_code=503, media_type="application/json")
        await self._engine.check()
        return Response('{"status":"ok"}', media_type="application/json")

    async def _metrics_page(self) -> Response:
        page, kind = self._metrics.page()
        return Response(page, headers={"content-type": kind})

    def __del__(self) -> None:
        if engine := getattr(self, "_engine", None):
            engine.close()
