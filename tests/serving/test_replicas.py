"""Two replicas behind Ray Serve's proxy: weights reach both, a new one starts with them, and a signal drains all."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cudal1_ray.serving.access.keys import KeyFile
from tests.family import living_below
from tests.rollout.conftest import MAX_MODEL_LEN, make_tiny_model
from tests.serving.conftest import bearer, start_server
from tests.serving.rolling import LENGTH, Streamers, changed, stream, write_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.long]

PROMPT = "def forward(self, x):"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("replicas")
    keys = KeyFile(folder / "keys.json")
    key, other = keys.add("alice"), keys.add("bob")
    model = make_tiny_model(folder / "tiny", seed=0)
    settings = ["replicas.min=2", "replicas.max=2", "policy.name=tiny", "weights.admin_keys=[alice]"]
    settings += [f"weights.roots=[{folder}]", f"weights.store_dir={folder / 'store'}", "rollout.kv_cache_gib=0.05"]
    settings += [f"rollout.max_model_len={MAX_MODEL_LEN}", "evaluation.required_sandbox=seccomp"]
    server = start_server(folder, model, keys, key, other, *settings)
    yield server, folder
    if server.process.poll() is None:
        server.terminate()
        server.process.wait(timeout=120)


def replicas(server) -> list[dict]:
    return server.get("/v1/weights").json()["replicas"]


def test_replicas_when_weights_come_take_them_and_so_does_one_that_starts_later(pair):
    server, folder = pair
    assert [replica["policy_version"] for replica in replicas(server)] == [1, 1]
    checkpoint = write_checkpoint(folder / "run", "contrastive-000001", changed(server.model, seed=1))
    with Streamers(server, PROMPT) as streamers:
        streamers.wait_for_each(1)
        assert server.post("/v1/weights", json={"path": str(checkpoint)}).status_code == 200
        streamers.wait_for_each(2)
    ends = {(answer.reason, len(answer.token_ids)) for client in streamers.streams for answer in client}
    assert ends == {("length", LENGTH)}
    assert [replica["policy_version"] for replica in replicas(server)] == [2, 2]
    new = {stream(server, PROMPT) for _ in range(8)}
    assert len(new) == 1 and new.pop().version == 2

    cores = [process for process, line in living_below(server.process.pid).items() if "EngineCor" in line]
    assert len(cores) == 2
    os.kill(cores[0].pid, signal.SIGKILL)
    deadline = time.monotonic() + 240
    while True:  # until Ray Serve has replaced the replica whose engine is gone
        ids = {s.labels["replica"] for f in families(server).values() for s in f.samples}
        if len(ids) == 2 and cores[0].pid not in (p.pid for p in psutil.process_iter()):
            answers = []
            for _ in range(8):
                try:
                    answers.append(stream(server, PROMPT))
                except (httpx.HTTPError, AssertionError):
                    break
            if len(answers) == 8 and [replica["policy_version"] for replica in replicas(server)] == [2, 2]:
                break
        assert time.monotonic() < deadline, server.log.read_text()[-2000:]
        time.sleep(1.0)
    assert {answer.version for answer in answers} == {2} and len({answer.token_ids for answer in answers}) == 1


def families(server) -> dict:
    page = httpx.get(f"{server.url}/metrics", timeout=60).text
    return {f.name: f for f in text_string_to_metric_families(page) if f.name == "cudal1_policy_version"}


def test_a_signal_lets_streams_end_and_tells_newcomers_when_to_come_back(pair):
    """The last test: it ends the server."""
    server, _ = pair
    begun = threading.Semaphore(0)

    def long_stream(_: int) -> str:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 120, "stream": True, "ignore_eos": True}
        last = ""
        with httpx.stream(
            "POST", f"{server.url}/v1/completions", json=body, headers=bearer(server.key), timeout=120
        ) as answer:
            for number, line in enumerate(answer.iter_lines()):
                if number == 0:
                    begun.release()
                if line.startswith("data: "):
                    last = line[6:]
        return last

    refused: list[httpx.Response] = []
    with ThreadPoolExecutor(33) as threads:
        streams = threads.map(long_stream, range(32))
        for _ in range(32):
            begun.acquire()
        server.terminate()
        while not refused or refused[-1].status_code == 200:
            refused.append(server.get("/v1/models"))
        assert list(streams) == ["[DONE]"] * 32
    assert server.process.wait(timeout=120) == 0
    assert refused[-1].status_code == 503 and int(refused[-1].headers["retry-after"]) >= 1
