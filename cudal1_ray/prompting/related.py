"""Kernels of related problems, as worked examples: what a problem without exemplars of its own can be answered from.

Related is a problem whose reference uses the same operators, rare ones counting for more (cosine of TF-IDF vectors over
the names that a reference calls).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy

from cudal1_ray.problems import CorpusEntry, Problem, read_corpus
from cudal1_ray.prompting.config import PromptingConfig
from cudal1_ray.source.comments import strip_comments
from cudal1_ray.source.normal_form import normalise_code
from cudal1_ray.source.operations import operators_of

# Characters of a kernel's code: some 800 tokens, of which a prompt of 3,072 holds two beside a reference.
LONGEST_CODE = 3000


class RelatedKernels:
    """Looks up kernels of the problems nearest to a given problem.

    Args:
        problems: those of the training split, whose kernels may be shown.
        entries: candidates with a measured speedup; of each problem the fastest counts that is faster than its
            reference and not too long.
        count: kernels for each prompt, each of another problem.
    """

    def __init__(self, problems: Iterable[Problem], entries: Iterable[CorpusEntry], count: int):
        self._count = count
        self._problems = {problem.problem_id: problem for problem in problems}
        self._entries = [e for e in entries if e.problem_id in self._problems and 0 < len(e.code) <= LONGEST_CODE]
        self._best = _fastest(self._entries)
        terms = {identity: operators_of(problem.source) for identity, problem in self._problems.items()}
        frequency = Counter(term for operators in terms.values() for term in operators)
        self._weights = {term: math.log((1 + len(terms)) / count) for term, count in frequency.items()}
        identities = {entry.problem_id for entry in self._entries}
        self._vectors = {identity: self._vector(terms[identity]) for identity in identities}
        self._sources = {identity: normalise_code(self._problems[identity].source) for identity in identities}

    def as_measured_on(self, device: str) -> RelatedKernels:
        """Return the same with the speedups that this device measured, and the recorded ones where it measured none."""
        kernels = copy(self)
        kernels._best = _fastest(entry.as_measured_on(device) for entry in self._entries)
        return kernels

    def __call__(self, problem: Problem) -> list[dict[str, str]]:
        """Return title and code of each kernel, the nearest problem's last; none of the problem's own, which a user's
        module may be under another name.
        """
        target = self._vector(operators_of(problem.source))
        ranking = sorted(
            ((_dot(target, self._vectors[identity]), identity) for identity in self._best),
            key=lambda x: (-x[0], x[1]),
        )
        own = normalise_code(problem.source)
        chosen = [identity for likeness, identity in ranking if self._sources[identity] != own and likeness > 0]
        return [self._kernel_section(identity) for identity in chosen[: self._count][::-1]]

    def entries(self) -> list[CorpusEntry]:
        """Return the kernels that prompts may show, the fastest of each problem."""
        return list(self._best.values())

    def _kernel_section(self, identity: str) -> dict[str, str]:
        entry, name = self._best[identity], self._problems[identity].name or identity
        return {
            "title": f"a kernel for another problem, {name}: {entry.speedup:.2f}x there.",
            "code": strip_comments(entry.code).strip("\n"),
        }

    def _vector(self, terms: Sequence[str]) -> dict[str, float]:
        """Return TF-IDF weights of length 1; terms that no training problem has count nothing."""
        counts = Counter(terms)
        vector = {term: (1 + math.log(n)) * self._weights.get(term, 0.0) for term, n in counts.items()}
        norm = math.sqrt(sum(value * value for value in vector.values())) or 1.0
        return {term: value / norm for term, value in vector.items() if value}


def related_kernels(config: PromptingConfig, problems: Iterable[Problem], device: str = "") -> RelatedKernels | None:
    """Return the kernels that the configuration names, of these problems; None where it names none.

    Args:
        device: its name; speedups are those that it measured, and the recorded ones where it measured none.

    Raises:
        UserError: naming `prompting.related_from`, when there is no corpus.
    """
    if not config.related_from:
        return None
    entries = read_corpus(config.related_from, "prompting.related_from")
    return RelatedKernels(problems, entries, config.related_count).as_measured_on(device)


def _fastest(entries: Iterable[CorpusEntry]) -> dict[str, CorpusEntry]:
    """Return the fastest entry of each problem that has one faster than its reference."""
    best: dict[str, CorpusEntry] = {}
    for entry in entries:
        other = best.get(entry.problem_id)
        if entry.speedup > (other.speedup if other else 1.0):
            best[entry.problem_id] = entry
    return best


def _dot(first: dict[str, float], second: dict[str, float]) -> float:
    return sum(value * second.get(term, 0.0) for term, value in first.items())
