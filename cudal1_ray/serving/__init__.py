"""Serving: a Ray Serve application that completes (OpenAI's protocol, on vLLM) and that optimises, verified."""

from __future__ import annotations

from cudal1_ray.serving.config import ServingConfig, load_serving_config

__all__ = ["ServingConfig", "load_serving_config"]
