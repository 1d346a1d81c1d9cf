"""Hundreds of hostile callers leave a server healthy, and its answers reveal nothing about it."""

from __future__ import annotations

import random
import resource
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from cudal1_ray.problems import ProblemsConfig, load_problems
from tests.serving.hostile import ROUTES, SlowCallers, attacks, bodies, strike
from tests.serving.small_server import SmallServer

# Seconds that the small server waits for the rest of a request: attacks that never send it last as long.
PATIENCE_S = 1.0
KINDS = (
    *["application/json"] * 4,
    "text/plain",
    "multipart/form-data",
    "\xff/\xfe",
    "application/json; charset=utf-16",
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    server = SmallServer(tmp_path_factory.mktemp("small"), PATIENCE_S)
    yield server
    server.stop()


def healthy(url: str, headers: dict[str, str]) -> None:
    """Assert that a server answers, and that a job goes from its beginning to its end."""
    assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
    with httpx.Client(base_url=url, headers=headers, timeout=120) as http:
        source = load_problems(ProblemsConfig())[0].source
        job = http.post("/v1/optimize", json={"source": source, "rounds": 1, "fresh": True})
        assert job.status_code == 202, job.text
        with http.stream("GET", f"/v1/optimize/{job.json()['id']}/events") as stream:
            assert any(line == "event: finished" for line in stream.iter_lines())


def ask_all(url: str, headers: dict[str, str], requests: list[tuple[str, bytes, str]]) -> list[httpx.Response]:
    with httpx.Client(base_url=url, timeout=120) as http, ThreadPoolExecutor(8) as threads:

        def ask(case: tuple[str, bytes, str]) -> httpx.Response:
            route, body, kind = case
            all_headers = [*headers.items(), ("content-type", kind.encode("latin-1"))]
            return http.post(route, content=body, headers=all_headers)

        return list(threads.map(ask, requests))


def test_bodies_when_hostile_are_answered_and_never_by_a_fault(small):
    rng = random.Random(1)
    requests = [("/v1/optimize", body, rng.choice(KINDS)) for body in bodies(500)]
    answers = ask_all(small.url, small.headers, requests)
    broken = [
        (a.status_code, body[:99], a.text[:200])
        for (_, body, _), a in zip(requests, answers, strict=True)
        if a.status_code >= 500
    ]
    assert not broken, "\n".join(map(str, broken))
    assert sum(answer.status_code >= 400 for answer in answers) > 400
    assert not any("Traceback" in answer.text or "site-packages" in answer.text for answer in answers)
    healthy(small.url, small.headers)


def test_connections_when_hostile_are_answered_or_ended_and_never_by_a_fault(small):
    struck = list(attacks(small.key))
    assert len(struck) > 120
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(32) as threads:
        heard = list(threads.map(lambda attack: strike(small.port, attack, 30.0), struck))
    broken = [(a.name, statuses) for a, statuses in zip(struck, heard, strict=True) if any(s >= 500 for s in statuses)]
    assert not broken, broken
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mib < 600  # the bombs alone would be 300 MB, unpacked; this process also makes them
    by_name = {attack.name: statuses for attack, statuses in zip(struck, heard, strict=True)}
    assert by_name["a hundred at once"] == [200] * 100
    assert all(by_name[f"bomb {kind!r}"][-1:] in ([415], [413]) for kind in (b"gzip", b"br"))
    assert by_name["a head without an end"] in ([431], []) and by_name["a request line without an end"] in ([431], [])
    assert not any(200 in by_name[name] for name in ("length and chunks", "chunks by another name", "two lengths"))
    assert small.coordinator.admission.under_way(1e12) == 0
    healthy(small.url, small.headers)


def test_callers_when_slow_are_dropped_and_no_other_waits_for_them(small):
    with SlowCallers(small.port, small.key, 80) as callers:
        healthy(small.url, small.headers)
        closed = callers.rid_of(60.0, lambda: None)
    assert closed == 80, f"{80 - closed} of 80 are still there after a minute, {PATIENCE_S:g} s are theirs"
    healthy(small.url, small.headers)


@pytest.mark.long
def test_server_when_all_of_it_comes_works_afterwards(server):
    """Bodies on every route, and every attack; then a real module is made faster by the real engine."""
    from tests.serving.conftest import FAST, problem

    port = int(server.url.rpartition(":")[2])
    headers = {"authorization": f"Bearer {server.other_key}"}
    rng = random.Random(2)
    requests = [(rng.choice(ROUTES), body, rng.choice(KINDS)) for body in bodies(500)]
    answers = ask_all(server.url, headers, requests)
    broken = [
        (answer.status_code, route, body[:200], answer.text[:200])
        for (route, body, _), answer in zip(requests, answers, strict=True)
        if answer.status_code >= 500
    ]
    assert not broken, "\n".join(map(str, broken))
    assert sum(answer.status_code >= 400 for answer in answers) > 250
    for answer in answers:
        assert "Traceback" not in answer.text and "site-packages" not in answer.text
        assert server.model.path not in answer.text
    with SlowCallers(port, server.other_key, 40), ThreadPoolExecutor(32) as threads:
        struck = list(attacks(server.other_key))
        heard = list(threads.map(lambda attack: strike(port, attack, 3.0), struck))
        faults = [(a.name, s) for a, s in zip(struck, heard, strict=True) if any(status >= 500 for status in s)]
        assert not faults, faults
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
        source = {"source": problem().source, "rounds": 1, "samples_per_round": 1, "fresh": True}
        job = httpx.post(f"{server.url}/v1/optimize", headers=headers, json=source, timeout=60).json()
        with httpx.stream(
            "GET", f"{server.url}/v1/optimize/{job['id']}/events", headers=headers, timeout=280
        ) as stream:
            assert any(line == "event: finished" for line in stream.iter_lines())
    result = httpx.get(f"{server.url}/v1/optimize/{job['id']}", headers=headers, timeout=60).json()["result"]
    assert result["found"] and result["code"].strip() == FAST.strip()
    assert result["baselines"][0]["speedup_low"] > 1.0 and result["costs"]["completion_tokens"] > 0
    assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
