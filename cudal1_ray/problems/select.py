"""From a ProblemsConfig to the problems of a run: load, split, filter, resize."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from cudal1_ray.errors import UserError
from cudal1_ray.problems.bundled import load_bundled
from cudal1_ray.problems.config import ProblemsConfig
from cudal1_ray.problems.kernelbench import load_folder, load_hub, load_parquet
from cudal1_ray.problems.problem import HELD_OUT, SPLITS, TRAIN, Problem, sorted_by_id
from cudal1_ray.problems.sizes import with_sizes
from cudal1_ray.problems.splits import kernelbench_split
from cudal1_ray.settings.suggestions import nearest, question

Loader = Callable[[ProblemsConfig], list[Problem]]

_sources: dict[str, Loader] = {
    "bundled": lambda config: load_bundled(),
    "folder": lambda config: load_folder(config.path or "", config.levels),
    "parquet": lambda config: load_parquet(config.path or "", config.levels),
    "hub": lambda config: load_hub(config.hub_name, config.hub_revision, config.levels),
}

# Share of the problems that no committed split names which is held out unless `held_out_fraction` is set.
DEFAULT_FRACTION = 0.1
# Seed of the draw of `fixed_problems`.
PROBLEM_DRAW = 1


def register_source(name: str, load: Loader) -> None:
    """Make a source of problems selectable by `problems.source=<name>`; list the module that calls this in `plugins`.

    Args:
        load: configuration -> problems. `config.path` is what the user gave as `problems.path`; split, ids and limit
            are applied afterwards.

    Raises:
        ValueError: when the name is taken.
    """
    if _sources.setdefault(name, load) is not load:
        raise ValueError(f"there is already a source of problems named {name!r}")


def source_names() -> tuple[str, ...]:
    """Return the names that `problems.source` accepts."""
    return tuple(sorted(_sources))


def load_problems(config: ProblemsConfig | None = None) -> list[Problem]:
    """Return the problems that a configuration names (None: the bundled ones) in the order of their ids.

    Raises:
        UserError: on a wrong field, a missing file, a file that is no problem, or when nothing is left.
    """
    if config is not None and type(config) is not ProblemsConfig:
        advice = "a ProblemsConfig, such as ProblemsConfig(source='folder', path='problems')"
        raise UserError(f"load_problems: {config!r:.60} is no configuration; give {advice}")
    config = config or ProblemsConfig()
    config.validate()
    config.require_paths()
    problems = _sources[config.source](config)
    if not isinstance(problems, list) or not all(isinstance(problem, Problem) for problem in problems):
        raise UserError(f"problems.source={config.source}: gives {problems!r:.60}; it must give a list of Problem")
    problems = sorted_by_id(problems, f"problems.source={config.source}")
    if config.source != "bundled":
        problems = _split(problems, config.held_out_fraction)
    if config.split != "all":
        problems = [problem for problem in problems if problem.split == config.split]
    problems = [problem for problem in problems if problem.level is None or problem.level in config.levels]
    problems = _keep(problems, "ids", config.ids, "problem_id")
    problems = _keep(problems, "families", config.families, "family")
    if config.limit is not None:
        of_split = {split: [p for p in problems if p.split == split][: config.limit] for split in SPLITS}
        problems = [problem for problem in problems if problem in of_split[problem.split]]
    if not problems:
        raise UserError(
            f"problems: nothing is left of source={config.source} with split={config.split}, "
            f"levels={list(config.levels)}, ids={list(config.ids)}, families={list(config.families)}; widen one of them"
        )
    return with_sizes(problems, config.sizes, config.paper_path)


def fixed_problems(problems: Sequence[Problem], count: int | None) -> list[Problem]:
    """Return the same `count` of the problems whatever their order; all where it is None or there are no more.

    A smaller count's are among a larger one's. A run's seed has no part in it, so that runs of several seeds are asked
    the same problems: of 152 problems, two draws of 40 would share some 10.
    """
    import numpy as np  # which no command loads at its start

    ordered = sorted(problems, key=lambda problem: problem.problem_id)
    chosen = np.random.default_rng(PROBLEM_DRAW).permutation(len(ordered))[:count]
    return [ordered[i] for i in sorted(chosen)]


def hashed_split(problem: Problem, held_out_fraction: float) -> str:
    """Return "held_out" for about this share of ids, else "train".

    It follows from SHA-256 of the id alone, and so depends on no order, machine or other problem.
    """
    digest = hashlib.sha256(problem.problem_id.encode()).digest()
    return HELD_OUT if int.from_bytes(digest[:8], "big") / 2**64 < held_out_fraction else TRAIN


def _split(problems: list[Problem], held_out_fraction: float | None) -> list[Problem]:
    """Give every problem its side: by the committed split where it names the problem and no fraction is set."""
    committed = kernelbench_split() if held_out_fraction is None else {}
    fraction = DEFAULT_FRACTION if held_out_fraction is None else held_out_fraction
    return [
        replace(problem, split=committed.get(problem.problem_id) or hashed_split(problem, fraction))
        for problem in problems
    ]


def _keep(problems: list[Problem], field: str, allowed: list[str], attribute: str) -> list[Problem]:
    """Return the problems whose attribute is among `allowed`; all when it is empty."""
    if not allowed:
        return problems
    present = {getattr(problem, attribute) for problem in problems}
    for value in allowed:
        if value not in present:
            near = question(nearest(value, sorted(present))) or f"for example {', '.join(sorted(present)[:3])}"
            raise UserError(f"problems.{field}: {value!r} is not among the {len(present)} loaded; {near}")
    return [problem for problem in problems if getattr(problem, attribute) in set(allowed)]
