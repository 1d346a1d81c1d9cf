"""The evaluator as these tests want it."""

from __future__ import annotations

from cudal1_ray.evaluation import EvaluationConfig


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
