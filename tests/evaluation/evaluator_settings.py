"""The evaluator as these tests want it."""

from __future__ import annotations

from functools import cache

from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.host.handles import ForkServer


@cache
def sandbox_level() -> str:
    """Name of the strongest level of the sandbox on this machine."""
    server = ForkServer(EvaluationConfig(required_sandbox="seccomp"))
    try:
        server.start()
        return server.level
    finally:
        server.close()


def quick_config(**changes) -> EvaluationConfig:
    """Small limits and a coarse measurement: these tests are about verdicts, not about the last percent."""
    config = EvaluationConfig(**{"required_sandbox": changes.get("sandbox", "landlock"), **changes})
    config.limits.load_timeout_s = 20.0
    config.limits.first_call_timeout_s = 1.5
    config.limits.call_timeout_s = 1.5
    config.limits.memory_mib = 1024
    config.timing.half_width = 0.06
    config.timing.budget_s = 0.4
    config.timing.contestants = 1
    config.timing.min_pairs = 6
    return config
