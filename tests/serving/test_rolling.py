"""Other weights under the running server, over real connections, while it streams."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.serving.rolling import LENGTH, Streamers, by_transformers, changed, stream, write_checkpoint

pytestmark = pytest.mark.slow

PROMPT = "class ModelNew(nn.Module):"


def run_of(server) -> Path:
    """Return the folder whose checkpoints the server follows, and may be asked to take weights from."""
    return next(Path(s.partition("=")[2]) for s in server.settings if s.startswith("weights.follow="))


def served(server) -> tuple[int, str]:
    (model,) = server.get("/v1/models").json()["data"]
    return model["policy_version"], model["weights"]


def test_weights_when_rolled_in_while_requests_stream_break_none(server):
    old_version, _ = served(server)
    old = stream(server, PROMPT)
    assert old.version == old_version
    other = changed(server.model, seed=1)
    checkpoint = write_checkpoint(run_of(server).with_name("elsewhere"), "contrastive-000001", other)

    with Streamers(server, PROMPT) as streamers:
        streamers.wait_for_each(1)
        answer = server.post("/v1/weights", json={"path": str(checkpoint)})
        assert answer.status_code == 200, answer.text
        streamers.wait_for_each(2)
    state = answer.json()
    assert state["policy_version"] == old_version + 1 and state["weights"] == "contrastive-000001"
    assert served(server) == (old_version + 1, "contrastive-000001")
    assert httpx.get(f"{server.url}/healthz", timeout=60).json()["policy_version"] == old_version + 1

    new = stream(server, PROMPT)
    assert new.token_ids != old.token_ids and new.token_ids[:20] == by_transformers(other, PROMPT, 20)
    all_versions = set()
    for client in streamers.streams:
        versions = [answer.version for answer in client]
        assert versions == sorted(versions)
        all_versions |= set(versions)
        for streamed in client:  # each from its first token to its last by the weights that its header names
            assert (streamed.reason, len(streamed.token_ids)) == ("length", LENGTH)
            assert streamed.token_ids == (old if streamed.version == old_version else new).token_ids
    assert all_versions == {old_version, old_version + 1}


def test_weights_when_damaged_or_forbidden_are_refused_and_the_old_ones_stay(server, tmp_path):
    before = stream(server, PROMPT)
    elsewhere = run_of(server).with_name("elsewhere")
    damaged = write_checkpoint(elsewhere, "contrastive-000002", changed(server.model, seed=2))
    file = damaged / "policy" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    outside = write_checkpoint(tmp_path, "contrastive-000003", server.model)
    for path, key, status, named in (
        (damaged, server.key, 400, "damaged"),
        (outside, server.key, 400, "weights.roots"),
        (elsewhere / "no", server.key, 400, "no such folder"),
        (damaged, server.other_key, 403, "weights.admin_keys"),
        ("", server.key, 400, ""),
        ("a\x00b", server.key, 400, "no folder"),
    ):
        answer = server.post("/v1/weights", key=key, json={"path": str(path)})
        assert (answer.status_code, named in answer.text) == (status, True), answer.text
        assert str(tmp_path) not in answer.text
    assert stream(server, PROMPT) == before
    assert server.get("/v1/weights").json()["turned_away"] >= 2
    assert "last_fault" not in server.get("/v1/weights", key=server.other_key).json()


def test_run_when_it_trains_is_followed(server):
    """The last of this file: it ends with the weights that the server began with, which other tests want."""

    def until(name: str) -> None:
        deadline = time.monotonic() + 300
        while served(server)[1] != name:
            assert time.monotonic() < deadline, server.get("/v1/weights").text
            time.sleep(0.2)

    before = stream(server, PROMPT)
    with Streamers(server, PROMPT, count=3) as streamers:
        write_checkpoint(run_of(server), "contrastive-000008", changed(server.model, seed=3))
        until("contrastive-000008")
        write_checkpoint(run_of(server), "contrastive-000009", server.model)
        until("contrastive-000009")
    after = stream(server, PROMPT)
    assert after.version == before.version + 2
    assert after.token_ids[:20] == by_transformers(server.model, PROMPT, 20)
    ends = {(answer.reason, len(answer.token_ids)) for client in streamers.streams for answer in client}
    assert ends == {("length", LENGTH)}


def test_metrics_when_weights_were_updated_count_them(server):
    page = httpx.get(f"{server.url}/metrics", timeout=60).text
    version, _ = served(server)
    assert f"cudal1_policy_version {float(version)}" in page
    assert 'cudal1_weight_updates_total{outcome="failed"} 0.0' in page
    assert f'cudal1_weight_updates_total{{outcome="loaded"}} {float(version - 1)}' in page
    assert "vllm:time_to_first_token_seconds_count" in page
