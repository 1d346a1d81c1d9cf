"""The application as Ray Serve's own configuration files name it: `import_path: cudal1_ray.serving.service:build`.

`serve run`, `serve deploy` and KubeRay's RayService take such a file; launch/kuberay-service.yaml is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from ray.serve import Application

from cudal1_ray.errors import UserError
from cudal1_ray.serving.application import application
from cudal1_ray.serving.config import load_serving_config

# Settings of `cudal1 serve` that mean nothing in such a file, and why.
RUNS_ALREADY = "the cluster runs already"
ELSEWHERE = {
    "host": "http_options.host sets it",
    "port": "http_options.port sets it",
    "front": "Ray Serve's own proxies listen",
    "address": RUNS_ALREADY,
    "num_cpus": RUNS_ALREADY,
    "object_store_mib": RUNS_ALREADY,
}


def build(args: dict[str, Any]) -> Application:
    """Return the application of `cudal1 serve`, for a file's `args`: the same settings, dotted or nested.

    Paths are those of the cluster's nodes. Every client that reaches the port may send requests:
    set `security.keys_file`.
    `name` must be the application's in the file, where that is not `cudal1`.

    Raises:
        UserError: naming the setting at fault.
    """
    overrides = list(overrides_of(args))
    for override in overrides:
        if why := ELSEWHERE.get(override.partition("=")[0]):
            raise UserError(f"args: {override}: leave it out, {why}")
    return application(load_serving_config([*overrides, "host=0.0.0.0"]))


def overrides_of(args: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield settings as on the command line, from a mapping as YAML has it: {a: {b: 1}} is a.b=1, as {a.b: 1} is."""
    for key, value in args.items():
        if isinstance(value, Mapping) and value:
            yield from overrides_of(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={_text(value, quoted=f'{prefix}{key}' != 'policy')}"


def _text(value: Any, quoted: bool = True) -> str:
    """Return a value in Hydra's grammar; `load_serving_config` puts a policy into quotes itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return "{}"
    if not isinstance(value, str) or not quoted or _reads_back(value):
        return str(value)
    return QuotedString(value, Quote.single).with_quotes()


def _reads_back(text: str) -> bool:
    """Return whether Hydra takes a text without quotes, in a list too, for this text and not for a number or null."""
    try:
        return bool(OverridesParser.create().parse_override(f"key=[{text}]").value() == [text])
    except HydraException:
        return False
