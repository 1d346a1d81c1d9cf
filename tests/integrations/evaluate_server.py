"""`/v1/evaluate` behind a real HTTP server, without Ray: the route itself, over an evaluator of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI

from cudal1_ray.serving.evaluate_routes import evaluate_router


class EvaluateServer:
    """Runs in a thread of its own; a context manager."""

    def __init__(self, evaluator: Any) -> None:
        async def evaluate(problem, code, best_speedup):
            (verdict,) = await asyncio.to_thread(evaluator.evaluate_all, [(problem, code)])
            return verdict

        app = FastAPI()
        app.include_router(evaluate_router(SimpleNamespace(evaluate=SimpleNamespace(remote=evaluate))))
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def __enter__(self) -> EvaluateServer:
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline and self._thread.is_alive(), "the server does not start"
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=60)
