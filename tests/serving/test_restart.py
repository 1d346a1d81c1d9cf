"""A server that is killed in the middle of a job; the next one goes on with it. Two whole servers, so long."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from cudal1_ray.serving.keys import KeyFile
from tests.serving.conftest import FAST, MODEL_LEN, Server, bearer, make_skilled_model, problem, start_server

pytestmark = pytest.mark.long
SETTINGS = (
    f"rollout.max_model_len={MODEL_LEN}",
    "optimize.temperature=1.0",
    "optimize.baselines=[eager]",
    "evaluation.required_sandbox=process",
    "rollout.kv_cache_gib=0.05",
    "rollout.log_level=ERROR",
    "policy.name=tiny",
)


def follow(server: Server, job_id: str, until: str, last: int = 0) -> list[dict]:
    """Events from `last` on, up to one of that type, or to the end of the stream."""
    headers = bearer(server.key) | {"last-event-id": str(last)}
    told = []
    with httpx.stream("GET", f"{server.url}/v1/optimize/{job_id}/events", headers=headers, timeout=280) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                told.append(json.loads(line[6:]))
                if told[-1]["type"] == until:
                    break
    return told


def test_a_job_outlives_a_kill(tmp_path):
    pytest.importorskip("vllm")
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.add("alice")
    model = make_skilled_model(tmp_path / "tiny")
    server = start_server(tmp_path, model, keys, key, key, *SETTINGS)
    asked = {"source": problem().source, "rounds": 6, "samples_per_round": 2}
    job = server.post("/v1/optimize", json=asked).json()
    before = follow(server, job["id"], "round")
    server.process.kill()
    server.process.wait()
    for _ in range(600):  # Ray's own processes notice
        try:
            httpx.get(f"{server.url}/healthz", timeout=2)
        except httpx.HTTPError:
            break
        time.sleep(0.1)
    server = start_server(tmp_path, model, keys, key, key, *SETTINGS)
    try:
        after = follow(server, job["id"], "finished", before[-1]["number"])
        types = [event["type"] for event in (*before, *after)]
        assert types.count("resumed") == 1 and types.count("started") == 1 and types.count("module") == 1
        assert [event["number"] for event in (*before, *after)] == list(range(1, len(types) + 1))
        assert [e["round"] for e in (*before, *after) if e["type"] == "round"] == [1, 2, 3, 4, 5, 6]
        done = server.get(f"/v1/optimize/{job['id']}").json()
        assert done["status"] == "finished" and done["result"]["rounds"] == 6
        assert done["result"]["found"] and done["result"]["code"].strip() == FAST.strip()
        assert done["result"]["spent_s"] >= after[-2].get("spent_s", 0.0)
        again = server.post("/v1/optimize", json=asked).json()
        assert again["id"] == job["id"] and again["shared"] and again["status"] == "finished"
    finally:
        server.terminate()
        server.process.wait(timeout=120)
