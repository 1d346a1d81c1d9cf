"""The OpenAPI document: every route, with what the middleware in front of all of them may answer."""

from __future__ import annotations

import functools
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from cudal1_ray import __version__
from cudal1_ray.serving.optimize.forms import ErrorForm
from cudal1_ray.serving.weights.request_barrier import GENERATING

# What the middleware answers by itself, and to which requests.
ALWAYS = {
    "403": "Without keys: the request comes from a page of another site.",
    "415": "The body is encoded; bodies are taken as they are.",
    "421": "Without keys: the request was meant for another host.",
    "500": "A fault of the server; the message has the number of its entry in the log.",
    "504": "No answer within the server's time limit.",
}
WITH_KEY = {
    "401": "No valid API key.",
    "429": "The key has used up its rate, or has too many requests under way; Retry-After says when to come back.",
    "503": "The server is stopping; Retry-After says when to come back.",
}
WITH_BODY = {
    "400": "The body is no such request.",
    "408": "The body did not arrive in time.",
    "413": "The body, or what it asks for, is too large.",
}
HEALTH = ("Whether requests are taken", {"200": "They are.", "503": "The server stops, or its engine died."})
OPEN = {
    "/healthz": HEALTH,
    "/health": HEALTH,
    "/metrics": ("Prometheus metrics, with vLLM's own", {"200": "Text in Prometheus' format."}),
}
# Routes of vLLM's own, which documents neither of these.
MODEL = "/v1/models/{name}"
NO_MODEL = "No model of that name is served."
_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorForm"}}}


def describe(app: FastAPI) -> None:
    """Replace `app.openapi` by one that describes every route and refusal; to be called when all routes are there.

    FastAPI knows of bodies that do not validate as 422; here they are 400, as OpenAI's clients expect.
    """
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path in OPEN:
            route.include_in_schema = True
    app.openapi = functools.cache(lambda: document(app))  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document as JSON data, made anew."""
    openapi = get_openapi(
        title=app.title,
        version=__version__,
        description="OpenAI's protocol on vLLM; `/v1/optimize`: modules made faster; `/v1/evaluate`: verdicts.",
        routes=app.routes,
    )
    components = openapi.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schema = ErrorForm.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}) | {"ErrorForm": schema})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, methods in openapi["paths"].items():
        for operation in methods.values():
            _complete(path, operation)
    return openapi


def _complete(path: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation.setdefault("responses", {})
    responses.pop("422", None)
    expected = dict(ALWAYS)
    if path in OPEN:
        summary, answers = OPEN[path]
        operation["summary"] = summary
        kind = "text/plain" if path == "/metrics" else "application/json"
        for status, description in answers.items():
            responses[status] = {"description": description, "content": {kind: {"schema": {}}}}
    else:
        operation["security"] = [{"key": []}]
        expected |= WITH_KEY
    if path in GENERATING:
        responses.setdefault("200", {"description": "A completion"})
        responses["200"].setdefault("content", {})["text/event-stream"] = {"schema": {"type": "string"}}
    if path in (*GENERATING, MODEL):
        expected["404"] = NO_MODEL
    if "requestBody" in operation or operation.get("parameters"):
        expected["400"] = WITH_BODY["400"]
    if "requestBody" in operation:
        expected |= WITH_BODY
    for status, description in expected.items():
        response = responses.setdefault(status, {"description": description})
        response.setdefault("content", _ERROR)
    operation["responses"] = dict(sorted(responses.items()))
