"""A whole server for the tests of this folder: `cudal1 serve`, Ray Serve, vLLM, keys, over real connections."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from cudal1_ray.serving.keys import KeyFile
from tests.rollout.conftest import MAX_MODEL_LEN, TinyModel, make_tiny_model

START_TIMEOUT_S = 280.0


@dataclass
class Server:
    """A running server; `settings` are the overrides it was started with."""

    process: subprocess.Popen
    url: str
    key: str
    other_key: str
    model: TinyModel
    log: Path
    settings: list[str] = field(default_factory=list)

    def get(self, path: str, key: str | None = None, **more) -> httpx.Response:
        return httpx.get(self.url + path, headers=bearer(key or self.key), timeout=60, **more)

    def post(self, path: str, key: str | None = None, **more) -> httpx.Response:
        return httpx.post(self.url + path, headers=bearer(key or self.key), timeout=60, **more)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def start_server(folder: Path, model: TinyModel, keys: KeyFile, key: str, other_key: str, *settings: str) -> Server:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    command = [sys.executable, "-m", "cudal1_ray.cli", "serve", f"policy={model.path}", f"port={port}"]
    command += [f"security.keys_file={keys.path}", f"optimize.jobs_dir={folder / 'jobs'}", "num_cpus=8", *settings]
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=dict(os.environ))
    deadline = time.monotonic() + START_TIMEOUT_S
    while "answers at" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"the server did not start:\n{log.read_text()[-4000:]}")
        time.sleep(0.2)
    return Server(process, f"http://127.0.0.1:{port}", key, other_key, model, log, list(settings))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server for all tests. The last of them ends it."""
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("serving")
    keys = KeyFile(folder / "keys.json")
    key, other_key = keys.add("alice"), keys.add("bob")
    server = start_server(
        folder,
        make_tiny_model(folder / "tiny", seed=0),
        keys,
        key,
        other_key,
        f"rollout.max_model_len={MAX_MODEL_LEN}",
        "rollout.kv_cache_gib=0.05",
        "rollout.log_level=ERROR",
        "security.max_body_kib=64",
        "policy.name=tiny",
    )
    yield server
    if server.process.poll() is None:
        server.terminate()
        server.process.wait(timeout=120)
