"""The whole endpoint, by OpenAI's own client, by hostile callers, and to its end by a signal."""

from __future__ import annotations

import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.serving.conftest import FAST, problem
from tests.serving.hostile import ROUTES, bodies

openai = pytest.importorskip("openai")
pytestmark = pytest.mark.slow

PROMPT = "class ModelNew(nn.Module):"


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0, timeout=300)


def expected(server, prompt: str, count: int) -> tuple[int, str]:
    """Return greedy tokens by plain transformers, as (how many the prompt has, text)."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(server.model.path)
    ids = tuple(tokenizer(prompt)["input_ids"])
    return len(ids), tokenizer.decode(server.model.greedy(ids, count, end=2), skip_special_tokens=True)


def test_model_when_listed_has_its_name_without_its_path(server, client):
    (model,) = client.models.list().data
    assert model.id == "tiny" and server.model.path not in server.get("/v1/models").text


def test_model_when_asked_for_by_name_is_the_listed_one_and_another_is_not_found(server, client):
    (listed,), model = client.models.list().data, client.models.retrieve("tiny")
    assert (model.id, model.object, model.policy_version) == ("tiny", "model", listed.policy_version)
    for name in ("other", "org/other", ""):
        answer = server.get(f"/v1/models/{name}")
        assert answer.status_code == 404 and f"{name!r} is not served" in answer.json()["error"]["message"]


def test_completions_when_greedy_are_the_models_own_with_usage(server, client):
    prompt_tokens, text = expected(server, PROMPT, 20)
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=20, temperature=0)
    assert answer.choices[0].text == text
    assert answer.usage.prompt_tokens == prompt_tokens
    assert answer.usage.total_tokens == prompt_tokens + answer.usage.completion_tokens


def test_stream_when_read_to_its_end_has_the_same_text_and_usage(server, client):
    _, text = expected(server, PROMPT, 20)
    usage = {"include_usage": True}
    chunks = list(
        client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=20, temperature=0, stream=True, stream_options=usage
        )
    )
    pieces = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(pieces) == text
    assert chunks[-1].usage.completion_tokens > 3
    # Tokens that are ready together come as one piece; on busy cores twenty may be, four hundred never are.
    more = {"extra_body": {"ignore_eos": True}, "max_tokens": 400}
    assert sum(1 for _ in client.completions.create(model="tiny", prompt=PROMPT, stream=True, **more)) > 3


def test_chat_when_a_policy_has_no_template_adds_nothing_to_the_message(server, client):
    _, text = expected(server, f"<bos>{PROMPT}", 12)
    messages = [{"role": "user", "content": PROMPT}]
    arguments = {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0}
    answer = client.chat.completions.create(**arguments)
    assert answer.choices[0].message.content == text and answer.usage.completion_tokens > 0
    streamed = client.chat.completions.create(**arguments, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in streamed if c.choices) == text


def test_mistakes_when_sent_become_the_exceptions_that_clients_know(server, client):
    stranger = openai.OpenAI(base_url=f"{server.url}/v1", api_key="cudal1-guess", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-9", prompt="x")
    with pytest.raises(openai.BadRequestError, match="1024"):
        client.completions.create(model="tiny", prompt="x " * 3000)


def test_policy_when_an_error_or_a_metric_names_it_has_its_name(server):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    for stream in (False, True):
        body = {"model": "tiny", "messages": [{"role": "user", "content": [image]}], "stream": stream}
        answer = server.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"] == "tiny is not a multimodal model"
    page = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert 'model_name="tiny"' in page and server.model.path not in page


@pytest.mark.parametrize(
    ("structure", "form"),
    [
        ({"regex": "[0-9]{3}"}, "[0-9]{3}"),
        ({"regex": r"\p{Lu}"}, r"\w"),
        ({"grammar": 'root ::= "ab" | "ba"'}, "ab|ba"),
        ({"grammar": "root ::= "}, ""),
        ({"json": {"type": "integer", "multipleOf": 5, "minimum": 5, "maximum": 5}}, r"\s*5"),
    ],
)
def test_structure_when_it_can_be_built_is_kept(server, structure, form):
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 6, "structured_outputs": structure}
    assert re.fullmatch(form, server.post("/v1/completions", json=body).json()["choices"][0]["text"])


@pytest.mark.parametrize(
    ("structure", "named"),
    [
        ({"regex": "["}, "unclosed character class"),
        ({"regex": "(?<=a)b"}, "look-around"),
        ({"grammar": "%%%"}, "GBNF"),
        ({"json": "{"}, "line 1 column 1"),
        ({"json": {"type": "foo"}}, "foo"),
        ({"json": {"$ref": "#/nope"}}, "/nope"),
        ({"json": {"type": "array", "items": {"enum": []}, "minItems": 1}}, "Unsatisfiable"),
        ({"choice": []}, "empty list"),
    ],
)
def test_structure_when_it_cannot_be_built_is_refused_with_its_mistake(server, client, structure, named):
    for stream in (False, True):
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 4, "stream": stream, "structured_outputs": structure}
        answer = server.post("/v1/completions", json=body)
        assert answer.status_code == 400 and named in answer.json()["error"]["message"]
    assert client.completions.create(model="tiny", prompt=PROMPT, max_tokens=1).choices


@pytest.mark.parametrize(
    ("choice", "status"), [({}, 400), ({"tool_choice": "required"}, 400), ({"tool_choice": "none"}, 200)]
)
def test_tools_when_given_are_refused_unless_none_is_to_be_called(server, choice, status):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": PROMPT}]
    answer = server.post(
        "/v1/chat/completions", json={"model": "tiny", "messages": messages, "max_tokens": 2, "tools": [tool], **choice}
    )
    assert answer.status_code == status
    assert ("tools cannot be called here" in answer.text) == (status == 400)


def test_errors_when_of_any_route_have_openais_form(server):
    answers = [server.get(path) for path in ("/v1/models/other", "/v1/embeddings", "/healthy", "/nowhere")]
    answers += [server.post("/v1/completions", json=body) for body in ({}, {"prompt": 3}, {"prompt": "x", "n": 0})]
    for answer in answers:
        error = answer.json()["error"]
        assert answer.status_code in (400, 404) and error["message"] and error["code"] == answer.status_code


def test_routes_when_not_promised_are_not_there(server):
    for path in ("/docs", "/tokenize", "/v1/load_lora_adapter", "/invocations", "/ping", "/sleep", "/v1/responses"):
        assert server.get(path).status_code == 404, path
        assert server.post(path, json={}).status_code == 404, path
    assert server.get("/v1/completions").status_code == 405
    assert httpx.get(f"{server.url}/v1/models", timeout=60).status_code == 401


def test_health_and_metrics_when_asked_for_are_there(server, client):
    client.completions.create(model="tiny", prompt=PROMPT, max_tokens=2)
    for path in ("/healthz", "/health"):
        answer = httpx.get(server.url + path, timeout=60)
        assert answer.status_code == 200 and answer.json()["status"] == "ok", path
        assert httpx.head(server.url + path, timeout=60).status_code == 200, path
    page = httpx.get(f"{server.url}/metrics", timeout=60).text
    assert 'cudal1_requests_total{route="/v1/completions",status="200"}' in page
    assert "vllm:generation_tokens_total" in page


def test_server_when_bodies_are_hostile_stays_healthy(server, client):
    types = (*["application/json"] * 4, "text/plain", "multipart/form-data", "\xff/\xfe")
    rng = random.Random(1)
    requests = [(rng.choice(ROUTES), body, rng.choice(types)) for body in bodies(500)]
    with httpx.Client(base_url=server.url, timeout=400) as http:

        def ask(case):
            route, body, kind = case
            headers = [("authorization", f"Bearer {server.other_key}"), ("content-type", kind.encode("latin-1"))]
            return http.post(route, content=body, headers=headers)

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, requests))
    pairs = zip(requests, answers, strict=True)
    broken = [(a.status_code, route, body[:200], a.text[:200]) for (route, body, _), a in pairs if a.status_code >= 500]
    assert not broken, "\n".join(map(str, broken))
    assert sum(answer.status_code >= 400 for answer in answers) > 250
    for answer in answers:
        assert "Traceback" not in answer.text and "site-packages" not in answer.text
        assert server.model.path not in answer.text
    assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
    assert client.completions.create(model="tiny", prompt=PROMPT, max_tokens=3, temperature=0).choices[0].text


def events_of(server, job_id: str, key: str, last: int = 0) -> list[dict]:
    headers = {"authorization": f"Bearer {key}", "last-event-id": str(last)}
    with httpx.stream("GET", f"{server.url}/v1/optimize/{job_id}/events", headers=headers, timeout=600) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]


def test_optimize_when_a_module_is_posted_returns_a_faster_verified_one(server):
    body = {"source": problem().source, "rounds": 1, "samples_per_round": 2}
    answer = server.post("/v1/optimize", json=body)
    job = answer.json()
    assert answer.status_code == 202 and job["status"] in ("queued", "running") and job["shared"] is False
    assert server.get(f"/v1/optimize/{job['id']}", key=server.other_key).status_code == 404
    again = server.post(
        "/v1/optimize", key=server.other_key, json=body | {"source": "# mine\n" + body["source"]}
    ).json()
    assert again["id"] == job["id"] and again["shared"] is True

    events = events_of(server, job["id"], server.key)
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert {"queued", "started", "candidate", "round", "confirmation", "finished"} <= {e["type"] for e in events}
    assert events_of(server, job["id"], server.other_key, last=len(events) - 1) == events[-1:]

    done = server.get(f"/v1/optimize/{job['id']}").json()
    result = done["result"]
    assert done["status"] == "finished" and result["found"], done
    assert result["code"].strip() == FAST.strip() and result["speedup_low"] > 1.0
    assert result["analysis"] == "A diagonal scales rows."
    assert [entry["id"] for entry in server.get("/v1/optimize").json()["data"]] == [job["id"]]
    assert server.post("/v1/optimize", json=body).json()["status"] == "finished"  # kept, not worked out again


def test_optimize_command_when_given_a_server_saves_the_winner(server, tmp_path, capsys):
    from cudal1_ray.cli import main

    (tmp_path / "key").write_text(server.key)
    (tmp_path / "module.py").write_text(problem().source)
    settings = ["optimize.rounds=1", "optimize.samples_per_round=2"]  # as in the test before: one job for both
    module, key_file = str(tmp_path / "module.py"), str(tmp_path / "key")
    arguments = ["optimize", module, *settings, "--server", server.url, "--key-file"]
    assert main([*arguments, key_file]) == 0
    assert (tmp_path / "module_fast.py").read_text().strip() == FAST.strip()
    assert "module_fast" in capsys.readouterr().out
    assert main([*arguments, module]) == 2  # a wrong key is a line, not a traceback
    assert "API key" in capsys.readouterr().err


def test_optimize_job_when_it_fails_or_is_cancelled_states_it(server):
    broken = problem().source.replace("torch.diag(d)", "torch.no_such(d)")
    job = server.post("/v1/optimize", json={"source": broken, "rounds": 1, "samples_per_round": 1}).json()
    assert events_of(server, job["id"], server.key)[-1]["type"] in ("failed", "finished")
    long = server.post("/v1/optimize", json={"source": problem().source, "rounds": 32}).json()
    cancelled = httpx.delete(
        f"{server.url}/v1/optimize/{long['id']}", headers={"authorization": f"Bearer {server.key}"}, timeout=300
    )
    assert cancelled.json()["status"] == "cancelled"
    assert events_of(server, long["id"], server.key)[-1]["type"] == "cancelled"


def test_server_when_signalled_lets_streams_end_and_no_new_request_in(server, client):
    """The last test: it ends the server."""
    started, count = threading.Semaphore(0), 12

    def stream(_):
        reason = None
        chunks = client.completions.create(
            model="tiny", prompt="x", max_tokens=100, stream=True, extra_body={"ignore_eos": True}
        )
        for number, chunk in enumerate(chunks):
            if number == 0:
                started.release()
            reason = chunk.choices[0].finish_reason
        return reason

    with ThreadPoolExecutor(count) as threads:
        streams = threads.map(stream, range(count))
        for _ in range(count):
            started.acquire()
        server.terminate()
        assert list(streams) == ["length"] * count
    assert server.process.wait(timeout=400) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/healthz", timeout=60)
    log = server.log.read_text()
    assert log.rstrip().endswith("stopped") and "Traceback" not in log
