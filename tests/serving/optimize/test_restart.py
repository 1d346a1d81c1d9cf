"""The process that works on a job is killed in the middle of it; the next one goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import httpx
import pytest

from cudal1_ray.serving.access.keys import KeyFile
from tests.measured_once import MEASURED_ONCE
from tests.serving.conftest import FAST, MODEL_LEN, Server, bearer, make_skilled_model, problem, start_server

SETTINGS = (
    f"rollout.max_model_len={MODEL_LEN}",
    "optimize.temperature=1.0",
    "optimize.baselines=[eager]",
    "evaluation.required_sandbox=seccomp",
    "rollout.kv_cache_gib=0.05",
    "rollout.log_level=ERROR",
    "policy.name=tiny",
    *MEASURED_ONCE,
)


def job_queue(folder) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.serving.job_queue_process", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_job_queue_when_killed_is_followed_by_one_that_goes_on(tmp_path):
    first, first_events = job_queue(tmp_path), []
    for line in first.stdout:
        first_events.append(json.loads(line))
        if first_events[-1]["type"] == "round":
            first.kill()
            break
    first.wait()
    first.stdout.close()
    second = job_queue(tmp_path)
    events = [json.loads(line) for line in second.stdout]
    assert second.wait() == 0
    assert events[: len(first_events)] == first_events  # events once sent stay
    types = [event["type"] for event in events]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert [types.count(kind) for kind in ("started", "resumed", "module", "finished")] == [1, 1, 1, 1]
    assert [event["round"] for event in events if event["type"] == "round"] == [1, 2, 3]
    assert types.count("candidate") in (3, 4)  # what was being evaluated at the kill is evaluated again
    result = events[-1]["result"]
    assert result["found"] and result["rounds"] == 3 and "d[:, None]" in result["code"]
    assert result["spent_s"] > max(event.get("spent_s", 0.0) for event in first_events)
    (job,) = [folder for folder in tmp_path.iterdir() if folder.is_dir()]
    assert json.loads((job / "job.json").read_text())["status"] == "finished"


def follow(server: Server, job_id: str, until: str, last: int = 0) -> list[dict]:
    """Return events from `last` on, up to one of that type, or to the end of the stream."""
    headers = bearer(server.key) | {"last-event-id": str(last)}
    events = []
    with httpx.stream("GET", f"{server.url}/v1/optimize/{job_id}/events", headers=headers, timeout=280) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if events[-1]["type"] == until:
                    break
    return events


@pytest.mark.long
def test_job_when_the_whole_server_is_killed_goes_on(tmp_path):
    pytest.importorskip("vllm")
    keys = KeyFile(tmp_path / "keys.json")
    key = keys.add("alice")
    model = make_skilled_model(tmp_path / "tiny")
    server = start_server(tmp_path, model, keys, key, key, *SETTINGS)
    body = {"source": problem().source, "rounds": 6, "samples_per_round": 2}
    job = server.post("/v1/optimize", json=body).json()
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
        again = server.post("/v1/optimize", json=body).json()
        assert again["id"] == job["id"] and again["shared"] and again["status"] == "finished"
    finally:
        server.terminate()
        server.process.wait(timeout=120)
