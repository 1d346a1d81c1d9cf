"""A replica that listens at the port itself, as vLLM's own server does: no process between the engine and its callers.

Behind Ray Serve's proxy every piece of a stream crosses from one process into another, which costs more than a small
model takes to make it. Where there is one replica there is nothing to spread, and so no need for a proxy.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

import uvicorn

from cudal1_ray.serving.access.http_protocol import BoundedProtocol

# Seconds of an idle connection: clients give it up after some 5; where both ends do at once, a request is lost.
KEEP_ALIVE_S = 65
# Seconds for which the port may still be held by the replica before this one.
TAKE_OVER_S = 30.0


class Listener:
    """uvicorn on the event loop that it is started on."""

    def __init__(self, app: Any, host: str, port: int):
        self._app, self._host, self._port = app, host, port
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the port; return when it is open.

        Raises:
            OSError: it cannot be had.
        """
        sock = await self._bind()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # hostile requests are answered, not logged
        config = uvicorn.Config(
            self._app,
            http=BoundedProtocol,
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[sock]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise OSError(errno.EADDRINUSE, "the HTTP server ended at once")
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        """Close the port, from any thread; what is under way ends by itself."""
        if self._server is not None:
            self._server.should_exit = True

    async def _bind(self) -> socket.socket:
        deadline = asyncio.get_running_loop().time() + TAKE_OVER_S
        while True:
            sock = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((self._host, self._port))
                return sock
            except OSError as error:
                sock.close()
                if error.errno != errno.EADDRINUSE or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.2)
