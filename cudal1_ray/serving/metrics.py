"""Prometheus metrics of the endpoint itself; vLLM's own are in the same registry."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

ROUTES = (
    "/v1/models",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/optimize",
    "/v1/evaluate",
    "/v1/weights",
    "/healthz",
    "/health",
    "/metrics",
)
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
        """Count an answered request; status 0 stands for a caller that went away before there was any."""
        route = next((route for route in ROUTES if path == route or path.startswith(route + "/")), "other")
        self._requests.labels(route, str(status or 499)).inc()
        self._seconds.labels(route).observe(seconds)

    def page(self) -> tuple[bytes, str]:
        """Return the text of `/metrics` and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class WeightMetrics:
    """Which weights a replica serves, and how it came by them."""

    def __init__(self, registry: CollectorRegistry = REGISTRY):
        self._version = Gauge("cudal1_policy_version", "Version of the weights being served", registry=registry)
        self._under_way = Gauge("cudal1_requests_under_way", "Generating requests in the engine", registry=registry)
        self._updates = Counter("cudal1_weight_updates", "Weight updates by outcome", ["outcome"], registry=registry)
        self._seconds = Histogram(
            "cudal1_weight_update_seconds",
            "Time of a weight update, waiting for requests to end included",
            buckets=BUCKETS_S,
            registry=registry,
        )
        for outcome in ("loaded", "failed"):
            self._updates.labels(outcome)

    def serves(self, version: int, under_way: int) -> None:
        self._version.set(version)
        self._under_way.set(under_way)

    def updated(self, seconds: float) -> None:
        self._updates.labels("loaded").inc()
        self._seconds.observe(seconds)

    def failed(self) -> None:
        self._updates.labels("failed").inc()


def merged(pages: Mapping[str, bytes]) -> bytes:
    """Merge the pages of several replicas into one, in which the label `replica` names each sample's origin.

    A scrape reaches one replica, whichever; without the others' pages its counters would jump from scrape to scrape.
    """
    families: dict[str, Metric] = {}
    for replica, page in sorted(pages.items()):
        for family in text_string_to_metric_families(page.decode()):
            metric = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                metric.add_sample(sample.name, {**sample.labels, "replica": replica}, sample.value)
    registry = CollectorRegistry()
    registry.register(_Collected(list(families.values())))
    return generate_latest(registry)


class _Collected:
    """Families as a collector, the form in which `generate_latest` takes them."""

    def __init__(self, families: list[Metric]):
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
