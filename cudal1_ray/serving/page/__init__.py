"""The page on the server's own port: static files, built ahead from `source/` by `make page`.

The page is readable without a key: it holds no user's data. What it then asks of `/v1/optimize` is asked
like any other request.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles

from cudal1_ray.evaluation.reasons import DESCRIPTIONS
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.config import ServingConfig

# Paths that need no key.
OPEN_PATHS = ("/", "/settings.json", "/static/")
# No script, style, font, image or connection but this server's own; nothing inline; no text turned into markup.
POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "font", "img", "connect")),
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
STATIC = Path(__file__).parent / "static"
_FOREVER = "public, max-age=31536000, immutable"
# A name that changes with the contents.
_HASHED = re.compile(r"-[0-9a-f]{12}\.\w+")


def mount_page(app: FastAPI, config: ServingConfig) -> None:
    """Add the page and what it needs to an application. `OPEN_PATHS` are for the middleware in front of it."""
    files, settings = PageFiles(directory=STATIC), page_settings(config)

    async def index(request: Request) -> Response:
        response = await files.get_response("index.html", request.scope)
        response.headers["content-security-policy"] = POLICY
        return response

    async def settings_json() -> dict[str, Any]:
        return settings

    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/settings.json", settings_json, methods=["GET"], include_in_schema=False)
    app.mount("/static", GZipMiddleware(files, minimum_size=1024))


class PageFiles(StaticFiles):
    """Files with an ETag; those whose names change with their contents may be kept for ever."""

    def file_response(self, full_path: Any, *rest: Any, **more: Any) -> Response:
        response = super().file_response(full_path, *rest, **more)
        lasting = _HASHED.search(os.path.basename(full_path))
        response.headers["cache-control"] = _FOREVER if lasting else "no-cache"
        return response


def page_settings(config: ServingConfig) -> dict[str, Any]:
    """Return what the page knows of the server without a key: limits and vocabulary, nothing about this machine."""
    optimize = config.optimize
    return {
        "needs_key": bool(config.security.keys_file),
        "against": scrub(config.evaluation.against),  # a file, where the baseline is of one's own
        "rounds": [optimize.rounds, optimize.max_rounds],
        "samples_per_round": [optimize.samples_per_round, optimize.max_samples_per_round],
        "time_limit_s": [optimize.time_limit_s, optimize.time_limit_s],
        "max_source_kib": optimize.max_source_kib,
        "min_speedup": optimize.min_speedup,
        "reasons": DESCRIPTIONS,
    }
