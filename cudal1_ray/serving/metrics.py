"""Prometheus metrics of the endpoint itself; vLLM's own are in the same registry."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest

ROUTES = ("/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/optimize", "/healthz", "/metrics")
BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class RequestMetrics:
    """Requests by route and status. A path that is no route counts as "other": callers choose paths, not labels."""

    def __init__(self, registry: CollectorRegistry = REGISTRY):
        self._registry = registry
        self._requests = Counter("cudal1_requests", "Answered requests", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "cudal1_request_seconds", "Time to the end of the answer", ["route"], buckets=BUCKETS_S, registry=registry
        )

    def ended(self, path: str, status: int, seconds: float) -> None:
        """status: 0 where the caller went away before there was any."""
        route = next((route for route in ROUTES if path == route or path.startswith(route + "/")), "other")
        self._requests.labels(route, str(status or 499)).inc()
        self._seconds.labels(route).observe(seconds)

    def page(self) -> tuple[bytes, str]:
        """The text of `/metrics` and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
