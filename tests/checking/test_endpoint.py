"""The judge's endpoint, before a real server that answers well, badly, late or not at all."""

from __future__ import annotations

import asyncio

import pytest
from chat_server import chat_server, dripping, failing, hanging_up, saying, silent

from cudal1_ray.checking import JudgeEndpointConfig
from cudal1_ray.checking.endpoint import JudgeClient
from cudal1_ray.errors import UserError


def endpoint(url: str, **fields) -> JudgeClient:
    config = JudgeEndpointConfig(**{"base_url": url, "model": "judge-1", "timeout_s": 60.0, **fields})
    return JudgeClient(config, max_tokens=77)


def test_endpoint_when_asked_returns_the_answers_text():
    with chat_server(saying("it is honest")) as (url, requests):
        replies = endpoint(f"{url}/").ask(["first?", "second?"])
    assert [(reply.text, reply.error) for reply in replies] == [("it is honest", "")] * 2
    assert {request["path"] for request in requests} == {"/v1/chat/completions"}
    assert sorted(request["body"]["messages"][0]["content"] for request in requests) == ["first?", "second?"]
    assert all(request["body"]["model"] == "judge-1" for request in requests)
    assert all((r["body"]["temperature"], r["body"]["max_tokens"]) == (0.0, 77) for r in requests)
    assert all(request["authorization"] is None for request in requests)


def test_endpoint_when_asked_within_an_event_loop_answers():
    async def cell_of_a_notebook(url):
        return endpoint(url).ask(["?"])

    with chat_server(saying("it is honest")) as (url, _):
        (reply,) = asyncio.run(cell_of_a_notebook(url))
    assert reply.text == "it is honest"


def test_replies_when_asked_concurrently_keep_the_order_of_the_questions():
    def echo(handler, prompt):
        saying(prompt.upper())(handler, prompt)

    with chat_server(echo) as (url, _):
        replies = endpoint(url, concurrency=3).ask([f"question {i}" for i in range(9)])
    assert [reply.text for reply in replies] == [f"QUESTION {i}" for i in range(9)]


def test_key_when_a_variable_is_named_is_read_from_it(monkeypatch):
    monkeypatch.setenv("A_JUDGES_KEY", "sesame")
    with chat_server(saying("yes")) as (url, requests):
        endpoint(url, api_key_variable="A_JUDGES_KEY").ask(["?"])
    assert requests[0]["authorization"] == "Bearer sesame"


def test_key_when_its_variable_is_missing_names_the_variable(monkeypatch):
    monkeypatch.delenv("A_JUDGES_KEY", raising=False)
    with pytest.raises(UserError, match="rewards.checker.endpoint.api_key_variable=A_JUDGES_KEY"):
        endpoint("http://localhost:1/v1", api_key_variable="A_JUDGES_KEY")


def test_endpoint_when_the_server_is_busy_asks_again():
    with chat_server(failing(503, 1, saying("at last"))) as (url, requests):
        (reply,) = endpoint(url).ask(["?"])
    assert reply.text == "at last" and len(requests) == 2


@pytest.mark.parametrize(
    ("behaviour", "fields", "message", "attempts"),
    [
        (failing(500, 9, saying("")), {"attempts": 2}, "HTTP 500: not now", 2),
        (failing(503, 9, saying("")), {"attempts": 3, "timeout_s": 0.9}, "HTTP 503: not now", 1),
        (failing(401, 9, saying("")), {"attempts": 3}, "HTTP 401", 1),
        (lambda handler, _: handler.reply(200, "<html>welcome</html>"), {}, "not an OpenAI completion: <html>", 1),
        (lambda handler, _: handler.reply(200, '{"choices": []}'), {}, "not an OpenAI completion", 1),
        (saying("  "), {}, "an empty answer", 1),
        (silent, {"timeout_s": 0.2}, "timed out", 1),
        (dripping, {"timeout_s": 0.3}, "timed out", 1),
        (hanging_up, {"attempts": 2}, "RemoteProtocolError", 2),
        (saying("x" * (5 << 20)), {}, "more than 4 MiB of answer", 1),
        (lambda handler, _: handler.reply(200, "[" * 100_000), {}, "not an OpenAI completion", 1),
    ],
    ids="failing busy refusing not-json no-choice empty silent dripping hanging-up long nested".split(),
)
def test_reply_when_there_is_no_answer_states_the_error_and_the_address(behaviour, fields, message, attempts):
    with chat_server(behaviour) as (url, requests):
        (reply,) = endpoint(url, **fields).ask(["?"])
    assert reply.text == "" and message in reply.error and url in reply.error
    # A stopped machine may use a fraction of a second up before the client has asked at all.
    assert len(requests) == attempts or ("timeout_s" in fields and not requests)


def test_key_when_the_server_redirects_is_not_sent_on(monkeypatch):
    monkeypatch.setenv("A_JUDGES_KEY", "sesame")
    with chat_server(saying("mine now")) as (elsewhere, stolen):

        def redirect(handler, _):
            handler.send_response(302)
            handler.send_header("Location", f"{elsewhere}/chat/completions")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        with chat_server(redirect) as (url, _):
            (reply,) = endpoint(url, api_key_variable="A_JUDGES_KEY").ask(["?"])
    assert "HTTP 302" in reply.error and not stolen


def test_endpoint_when_nothing_listens_is_named():
    with chat_server(saying("")) as (url, _):
        pass  # closed again: its port refuses
    (reply,) = endpoint(url, attempts=1).ask(["?"])
    assert "ConnectError" in reply.error and url in reply.error


@pytest.mark.parametrize(
    ("field", "value"),
    [("base_url", "localhost:8000"), ("model", ""), ("timeout_s", 0.0), ("attempts", 0), ("concurrency", 0)],
)
def test_endpoint_config_when_a_value_is_wrong_names_its_field(field, value):
    with pytest.raises(UserError, match=f"rewards.checker.endpoint.{field}"):
        endpoint("http://localhost:1/v1", **{field: value})
