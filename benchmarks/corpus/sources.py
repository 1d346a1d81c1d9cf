"""All candidates of the corpus, with their level and key."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import benchmarks.corpus as corpus
from benchmarks.corpus.record import Draft
from cudal1_ray.problems.kernelbench import kernelbench_id
from cudal1_ray.problems.splits import kernelbench_split


@dataclass(frozen=True)
class Source:
    """A draft with its level.

    Attributes:
        key: `l1-019-float4`: level, problem and member.
        problem_id: as `load_problems` has it.
    """

    key: str
    level: int
    problem_id: str
    draft: Draft


def levels() -> list[int]:
    """Return the levels that have a package here."""
    names = [module.name for module in pkgutil.iter_modules(corpus.__path__)]
    return sorted(int(name.removeprefix("level")) for name in names if re.fullmatch(r"level\d", name))


def all_sources(patterns: Sequence[str] = ()) -> Iterator[Source]:
    """Yield every candidate whose key contains a match of any of the patterns; all of them without patterns.

    Raises ValueError for a candidate of a held-out problem, or a key that comes twice.
    """
    split, keys = kernelbench_split(), set()
    for level in levels():
        for draft in importlib.import_module(f"benchmarks.corpus.level{level}").drafts():
            key, problem_id = f"l{level}-{draft.problem:03d}-{draft.member}", kernelbench_id(level, draft.problem)
            if split[problem_id] != "train":
                raise ValueError(f"{key}: {problem_id} is held out; write candidates for training problems only")
            if key in keys:
                raise ValueError(f"{key}: two candidates have this key; name one member differently")
            keys.add(key)
            if not patterns or any(re.search(pattern, key) for pattern in patterns):
                yield Source(key, level, problem_id, draft)
