"""A real OpenAI-compatible server in a thread, with whatever manners a test wants of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["ChatHandler", str], None]


class ChatServer(ThreadingHTTPServer):
    """A server whose answers end with it: `over` is set before it closes."""

    daemon_threads = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.over = threading.Event()


class ChatHandler(BaseHTTPRequestHandler):
    server: ChatServer
    behaviour: Behaviour
    requests: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, "body": body, "authorization": self.headers.get("Authorization")})
        try:
            type(self).behaviour(self, body["messages"][0]["content"])
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client gave up, as it should

    def reply(self, status: int, content: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def chat_server(behaviour: Behaviour) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield its base URL, and the requests that it has had so far."""
    requests: list[dict[str, Any]] = []
    handler = type("Handler", (ChatHandler,), {"behaviour": staticmethod(behaviour), "requests": requests})
    server = ChatServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()  # which waits for requests that are being answered: all are in the list then
        thread.join()


def saying(text: str) -> Behaviour:
    """Answer every question with this text."""
    completion = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]})
    return lambda handler, _: handler.reply(200, completion)


def failing(status: int, times: int, then: Behaviour) -> Behaviour:
    """Return a behaviour that fails `times` times, then is another."""
    left = [times]

    def behave(handler: ChatHandler, prompt: str) -> None:
        left[0] -= 1
        handler.reply(status, "not now") if left[0] >= 0 else then(handler, prompt)

    return behave


def silent(handler: ChatHandler, _: str) -> None:
    """Take the question and answer nothing for longer than any client waits, or until the server closes."""
    handler.server.over.wait(60)


def dripping(handler: ChatHandler, _: str) -> None:
    """Send a byte every now and then: no single read ever times out."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(900):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        if handler.server.over.wait(0.05):
            return


def hanging_up(handler: ChatHandler, _: str) -> None:
    """Promise more than is sent."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
