"""The evaluator's settings for these tests."""

from __future__ import annotations

from functools import cache

from cudal1_ray.evaluation import EvaluationConfig


@cache
def sandbox_level() -> str:
    """Name the strongest level of the sandbox on this machine."""
    from cudal1_ray.evaluation.host.handles import ForkServer  # imports torch, which the owner of a pool does without

    server = ForkServer(EvaluationConfig(required_sandbox="seccomp"))
    try:
        server.start()
        return server.level
    finally:
        server.close()


def quick_config(**changes) -> EvaluationConfig:
    """Return small limits and a coarse measurement: these tests are about verdicts, not about precise speedups."""
    config = EvaluationConfig(**{"required_sandbox": changes.get("sandbox", "landlock"), **changes})
    # Limits are for hangs, of which a test makes its own: a busy machine stops a process for seconds at a time.
    config.limits.load_timeout_s = config.limits.first_call_timeout_s = config.limits.call_timeout_s = 60.0
    config.limits.slowdown_limit = 1e7  # a call of ten microseconds has its 60 seconds, too
    config.limits.memory_mib = 1024
    config.timing.half_width = 0.06
    config.timing.budget_s = 0.4
    config.timing.contestants = 1
    config.timing.min_pairs = 6
    config.timing.remeasure_difference = 1.0  # two measurements agree within a factor of two
    return config


def least_config(**changes) -> EvaluationConfig:
    """Return `quick_config` with the fewest pairs of short batches, where right and wrong are the subject: more than
    half of an evaluation would be its measurement otherwise. These batches compare outputs too, most of them on inputs
    that no earlier call had.
    """
    config = quick_config(**changes)
    config.timing.half_width, config.timing.min_pairs = 0.5, 3
    config.timing.batch_ms, config.timing.max_batch_calls = 2.0, 16
    return config


def ungated_config(*, quick: bool = True) -> EvaluationConfig:
    """Return `quick_config`, or else what `cudal1 evaluate` measures with, without the static gate, for candidates that
    must earn no credit: all are measured, whatever operators they run, and an apparent gain must show in fresh
    processes as well, however small it is.
    """
    config = quick_config() if quick else EvaluationConfig()
    config.check.static_gate = False
    config.rules.same_operations = "measure"
    config.timing.remeasure_above = 1.05
    return config
