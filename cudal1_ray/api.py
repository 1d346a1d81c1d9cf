"""The Python API: `cudal1_ray.evaluate`, with the defaults of the command `cudal1 evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Evaluator, Verdict
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.problems.files import read_problem_file
from cudal1_ray.settings.suggestions import nearest, question
from cudal1_ray.source.text import clean_text


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
        UserError: for a device or a setting that does not exist, and for one that is not read here.
    """
    if isinstance(settings, str):
        raise UserError(f"settings={settings!r:.60}: give a list of overrides, [{settings!r:.60}]")
    if unusable := [setting for setting in settings if not isinstance(setting, str)]:
        raise UserError(f"settings: {unusable[0]!r:.60} is no text; an override is, for example 'evaluation.threads=4'")
    presets = {"cpu": "cpu", "cuda": "cuda_certain"}
    if device not in presets:
        raise UserError(f"device={device!r}: must be one of {', '.join(presets)}")
    from cudal1_ray.commands.evaluate import check_read
    from cudal1_ray.config import load_config  # Hydra, which few imports of this package need

    config = load_config([f"evaluation={presets[device]}", *settings]).evaluation
    check_read(settings)
    return config


def _as_code(candidate: str | Path) -> str:
    """Return the source code of a candidate.

    Raises:
        UserError: when `candidate` is neither a file nor a text.
    """
    if _is_text(candidate):
        return clean_text(str(candidate))
    if not _is_file(candidate):
        raise UserError(
            f"candidate={_quoted(candidate)}: no such file; give the path of a Python file that defines ModelNew, or "
            "its text (taken as a text where it has a line break)"
        )
    from cudal1_ray.commands.evaluate import read_candidate

    return read_candidate(Path(candidate))


def _as_problem(problem: str | Path | Problem) -> Problem:
    """Return the problem that a file, a text or an id of a bundled problem names.

    Raises:
        UserError: when `problem` is none of these.
    """
    if isinstance(problem, Problem):
        return problem
    if _is_text(problem):
        return parse_problem(str(problem), "problem", origin="problem")
    if _is_file(problem):
        return read_problem_file(Path(problem))
    from cudal1_ray.commands.evaluate import bundled_problems

    bundled = bundled_problems()
    if str(problem) not in bundled:
        meant = question(nearest(str(problem), bundled)) or f"for example {min(bundled)}"
        raise UserError(
            f"problem={_quoted(problem)}: no such file or bundled problem ({meant}); "
            "give the path of a KernelBench file, its text (taken as a text where it has a line break), a bundled "
            "problem's id, or a Problem"
        )
    return bundled[str(problem)]


def _is_text(text_or_path: object) -> bool:
    """Return whether an argument is source code rather than a path: a path has no line break."""
    return isinstance(text_or_path, str) and ("\n" in text_or_path or "\r" in text_or_path)


def _is_file(path: object) -> bool:
    with suppress(OSError):  # a text of one long line is longer than a name may be
        return isinstance(path, str | Path) and Path(path).is_file()
    return False


def _quoted(argument: object) -> str:
    """Return an argument as a message quotes it: a path as text, anything else with its type."""
    return repr(str(argument)) if isinstance(argument, str | Path) else f"{argument!r:.60} ({type(argument).__name__})"
