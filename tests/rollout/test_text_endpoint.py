"""A policy behind a real HTTP server: what is asked, what is tried again, and what a message may hold."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.rollout.endpoint import EndpointClient, PolicyEndpointConfig, WrittenText, rough_tokens
from tests.checking.chat_server import chat_server, dripping, hanging_up, saying, silent

KEY = "sk-not-for-logs"


def complete(url: str, **fields) -> WrittenText:
    async def ask() -> WrittenText:
        endpoint = EndpointClient(PolicyEndpointConfig(url=url, model="m", **fields))
        try:
            return await endpoint.complete("hello", temperature=0.5, max_tokens=32, seed=7)
        finally:
            await endpoint.aclose()

    return asyncio.run(ask())


def answer(text: str, **choice) -> str:
    return json.dumps({"choices": [{"message": {"content": text}, **choice}], "usage": {"completion_tokens": 5}})


def refusing(status: int, body: str, times: int, headers: dict[str, str] | None = None):
    """Return a handler that answers the first requests with an error, and the others with "fine"."""
    left = [times]

    def behave(handler, _):
        if left[0] > 0:
            left[0] -= 1
            handler.send_response(status)
            for name, value in (headers or {}).items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body.encode())
        else:
            handler.reply(200, answer("fine", finish_reason="length"))

    return behave


def test_request_and_answer_when_sent_are_those_of_a_chat_completion(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with chat_server(refusing(500, "", 0)) as (url, requests):
        assert complete(url, key_env="MY_KEY") == WrittenText("fine", 5, "length")
    (request,) = requests
    assert request["path"] == "/v1/chat/completions" and request["authorization"] == f"Bearer {KEY}"
    assert request["body"] == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "max_tokens": 32,
        "seed": 7,
    }


def test_tokens_when_the_server_counts_none_are_estimated():
    with chat_server(saying("x" * 30)) as (url, requests):
        assert complete(url) == WrittenText("x" * 30, rough_tokens("x" * 30), "stop")
    assert requests[0]["authorization"] is None


def test_answer_when_it_holds_half_a_character_can_be_written_to_a_file(tmp_path):
    with chat_server(lambda handler, _: handler.reply(200, answer("fast \ud83d kernel \U0001f680"))) as (url, _):
        text = complete(url).text
    assert text == "fast ? kernel \U0001f680" and (tmp_path / "answer").write_text(text)


def test_server_when_overloaded_is_asked_again():
    with chat_server(refusing(429, "slow down", 2, {"Retry-After": "0.01"})) as (url, requests):
        assert complete(url).text == "fine"
    assert len(requests) == 3


def test_field_when_the_server_refuses_it_is_renamed_or_left_out():
    with chat_server(refusing(400, "Unsupported parameter: 'max_tokens'", 1)) as (url, requests):
        assert complete(url).text == "fine"
    assert requests[1]["body"]["max_completion_tokens"] == 32 and "max_tokens" not in requests[1]["body"]
    with chat_server(refusing(400, "temperature must be 1", 1)) as (url, requests):
        assert complete(url).text == "fine"
    assert "temperature" not in requests[1]["body"]


@pytest.mark.parametrize(
    ("status", "body", "fields", "words", "requested"),
    [
        (401, f"Incorrect key {KEY}", {}, r"HTTP 401: Incorrect key \*\*\*", 1),
        (503, "busy", {"attempts": 2}, "HTTP 503: busy", 2),
        (200, "<html>", {}, "not an OpenAI completion: <html>", 1),
    ],
)
def test_server_when_it_does_not_answer_is_named_without_the_key(monkeypatch, status, body, fields, words, requested):
    monkeypatch.setenv("MY_KEY", KEY)
    with chat_server(refusing(status, body, 9, {"Retry-After": "0.01"})) as (url, requests):
        with pytest.raises(UserError, match=f"policy.url={url}: no answer from m: {words}") as caught:
            complete(url, key_env="MY_KEY", **fields)
    assert KEY not in str(caught.value) and len(requests) == requested


@pytest.mark.parametrize("manners", [silent, dripping, hanging_up])
def test_server_when_it_never_finishes_its_answer_is_given_up(manners):
    with chat_server(manners) as (url, requests):
        with pytest.raises(UserError, match="no answer from m"):
            complete(url, timeout_s=0.3, attempts=2)
        deadline = time.monotonic() + 60
        while len(requests) < 2:  # the client may have given up before the server reads what it asked
            assert time.monotonic() < deadline, requests
            time.sleep(0.01)
    assert len(requests) == 2


def test_server_when_it_is_not_there_is_named():
    with pytest.raises(UserError, match="policy.url=http://127.0.0.1:9/v1: no answer from m: ConnectError"):
        complete("http://127.0.0.1:9/v1", attempts=1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": "localhost:8000"}, "policy.url='localhost:8000'"),
        *(
            ({"url": f"http://{host}/v1", "model": "m"}, r"policy\.url='http://.*give the server's address")
            for host in ("localhost:abc", "localhost:99999", "[::1", "☃.local", "a" * 300, "")
        ),
        ({"url": "http://x", "model": ""}, "policy.model is empty"),
        ({"url": "http://x", "model": "m", "key_env": "NOT_SET_ANYWHERE"}, "policy.key_env=NOT_SET_ANYWHERE"),
    ],
)
def test_endpoint_policy_setting_when_it_cannot_work_is_named(fields, words):
    with pytest.raises(UserError, match=words):
        EndpointClient(PolicyEndpointConfig(**fields))


@pytest.mark.parametrize("key", ["schlüssel", "a\nb"])
def test_key_when_no_header_can_hold_it_is_refused_without_naming_it(key, monkeypatch):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(UserError, match="policy.key_env=MY_KEY: .* is no key") as refusal:
        EndpointClient(PolicyEndpointConfig(url="http://x/v1", model="m", key_env="MY_KEY"))
    assert key not in str(refusal.value)


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://[::1]/v1", "http://bücher.example/v1"])
def test_address_when_it_names_a_server_is_taken(url):
    PolicyEndpointConfig(url=url, model="m").require_server()
