"""Requests made from the OpenAPI document, right ones and wrong ones: none may bring a server error, and every answer
must be one that the document promises.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from tests.serving.small_server import SmallServer

schemathesis = pytest.importorskip("schemathesis")

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
OPERATIONS = [
    ("/v1/optimize", "post"),
    ("/v1/optimize", "get"),
    ("/v1/optimize/{job_id}", "get"),
    ("/v1/optimize/{job_id}", "delete"),
    ("/v1/optimize/{job_id}/events", "get"),
]
QUICK = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def checks():
    from schemathesis.checks import CHECKS as known

    return [known.get_one(name) for name in CHECKS]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    server = SmallServer(tmp_path_factory.mktemp("small"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def api(small):
    return schemathesis.openapi.from_url(f"{small.url}/v1/openapi.json", headers=small.headers)


@pytest.mark.parametrize("path, method", OPERATIONS)
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_requests_when_generated_from_the_document_break_neither_server_nor_promise(api, small, path, method, mode):
    """POSITIVE: requests that the document allows; NEGATIVE: such that it forbids."""
    strategy = api[path][method].as_strategy(generation_mode=getattr(schemathesis.GenerationMode, mode))

    @QUICK
    @given(strategy)
    def ask(case):
        case.call_and_validate(headers=small.headers, checks=checks(), timeout=60)

    ask()


def test_document_when_read_covers_every_route_and_refusal(small):
    import httpx

    schema = httpx.get(f"{small.url}/v1/openapi.json", headers=small.headers, timeout=60).json()
    assert set(schema["paths"]) == {"/v1/optimize", "/v1/optimize/{job_id}", "/v1/optimize/{job_id}/events", "/healthz"}
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            answers = set(operation["responses"])
            assert {"415", "500", "504"} <= answers and "422" not in answers
            assert path == "/healthz" or {"401", "429", "503"} <= answers
            assert path == "/healthz" or operation["security"] == [{"key": []}]
    assert {"202", "400", "408", "413"} <= set(schema["paths"]["/v1/optimize"]["post"]["responses"])
    assert "404" in schema["paths"]["/v1/optimize/{job_id}"]["delete"]["responses"]
    assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert httpx.get(f"{small.url}/v1/openapi.json", timeout=60).status_code == 401


@pytest.mark.long
def test_requests_when_generated_break_no_whole_server(server):
    """Every route of the document, vLLM's included, by the real engine."""
    headers = {"authorization": f"Bearer {server.other_key}"}
    document = schemathesis.openapi.from_url(f"{server.url}/v1/openapi.json", headers=headers)
    (no_fault,) = checks()[:1]
    labels, faults = set(), []
    for result in document.get_all_operations():
        operation = result.ok()
        labels.add(operation.label)
        for mode in schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE:

            @settings(QUICK, max_examples=60)
            @given(operation.as_strategy(generation_mode=mode))
            def ask(case):
                case.call_and_validate(headers=headers, checks=[no_fault], timeout=120)

            try:
                ask()
            except Unsatisfiable:  # without parameters and body there is no request that the document forbids
                assert not (operation.body or list(operation.iter_parameters())), operation.label
            except Exception as error:  # the others are asked, too
                faults.append(f"{operation.label}: {error}")
    assert {"POST /v1/completions", "POST /v1/chat/completions", "POST /v1/optimize", "GET /metrics"} <= labels
    assert not faults, "\n\n".join(faults)
    assert server.get("/healthz").status_code == 200
