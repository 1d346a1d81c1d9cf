"""The Python API: `cudal1_ray.evaluate`, with the defaults of the command `cudal1 evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Evaluator, Verdict
from cudal1_ray.problems import Problem, parse_problem


def evaluate(
    candidate: str | Path,
    problem: str | Path | Problem,
    *,
    device: str = "cpu",
    against: str = "",
    settings: Sequence[str] = (),
) -> Verdict:
    """Measure whether a candidate is right, and how much faster than its reference it is.

    The processes that run the candidate end before this returns. For many candidates use an
    `cudal1_ray.evaluation.Evaluator`, which keeps references running from one to the next.

    Args:
        candidate: a Python file that defines `ModelNew`, or its text.
        problem: a KernelBench file or its text, the id of a bundled problem, or a `Problem`.
        device: "cpu" or "cuda".
        against: the baseline: eager, tuned_eager, compile, compile_reduce_overhead, cuda_graph or a file; empty: the
            configured one, eager.
        settings: overrides as on the command line, for example `["evaluation.timing.budget_s=5"]`.

    Returns:
        The verdict, whatever the candidate does: `accepted`, `speedup` with its 95% interval [`speedup_low`,
        `speedup_high`], `reasons` and `detail` of a rejection.

    Raises:
        UserError: for a missing file, a text that is no problem, a setting or a device that does not exist.
    """
    config = evaluation_config(device, settings)
    timing = replace(config.timing, device_alone=True)  # one candidate has the time for it, as in the command
    with Evaluator(replace(config, against=against or config.against, timing=timing)) as evaluator:
        return evaluator.evaluate(_as_problem(problem), _as_code(candidate))


def evaluation_config(device: str = "cpu", settings: Sequence[str] = ()) -> EvaluationConfig:
    """Return the configuration that `cudal1 evaluate CANDIDATE` uses on a device, with overrides.

    Raises:
        UserError: for a device or a setting that does not exist.
    """
    presets = {"cpu": "cpu", "cuda": "cuda_certain"}
    if device not in presets:
        raise UserError(f"device={device!r}: must be one of {', '.join(presets)}")
    from cudal1_ray.config import load_config  # Hydra, which few imports of this package need

    return load_config([f"evaluation={presets[device]}", *settings]).evaluation


def _as_code(candidate: str | Path) -> str:
    if isinstance(candidate, str) and _is_text(candidate):
        return candidate
    from cudal1_ray.commands.evaluate import read_candidate

    return read_candidate(Path(candidate))


def _as_problem(problem: str | Path | Problem) -> Problem:
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, str) and _is_text(problem):
        return parse_problem(problem, "problem", origin="problem")
    from cudal1_ray.commands.evaluate import read_problem

    return read_problem(str(problem))


def _is_text(text_or_path: str) -> bool:
    """Return whether a string is source code rather than a path: no path of ours has a line break."""
    return "\n" in text_or_path
