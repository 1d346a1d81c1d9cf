"""Draws members of a family: what one of its problems computes, with other numbers, inputs, parameters and last line.

A policy made from scratch sees two problems of each family and learns them by heart: asked for the third, it wrote the
family's work with names, numbers and a last line of the two that it knew, and 0 of 96 samples were right. Where they
are drawn anew they have to be read. What is drawn is right by construction: the same change is made in a problem and in
candidates that an evaluator has accepted (`tests/problems/members/test_members.py` runs them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from cudal1_ray.problems.corpus import CorpusEntry
from cudal1_ray.problems.members.changes import (
    Change,
    with_argument,
    with_ending,
    with_input,
    with_number,
    with_parameter,
    word,
)
from cudal1_ray.problems.members.text import ModuleText, ReturnLine
from cudal1_ray.problems.problem import Problem

if TYPE_CHECKING:
    import numpy as np

FUNCTIONS = ("relu", "tanh", "sigmoid", "abs")
OF_POSITIVE = ("log", "sqrt")
# Below 1.25 where exponentials are taken: some candidates do so without subtracting the maximum first.
SMALL = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.25", "0.3", "0.4", "0.5", "0.6", "0.75", "0.8", "1.0")
NUMBERS = (*SMALL, "1.25", "1.5", "2.0", "2.5", "3.0", "4.0", "6.0", "8.0", "16.0", "32.0", "64.0")
EPSILONS = ("1e-06", "1e-05", "1e-04", "1e-03")
POSITIVE_INPUTS = ("torch.abs({x})", "torch.relu({x})", "torch.sigmoid({x})", "{x} * {x}")
INPUTS = ("{x} * {number}", "{x} + {number}", "torch.tanh({x})", *POSITIVE_INPUTS)


@dataclass(frozen=True)
class Facts:
    """What a family's changes have to know of it.

    Attributes:
        terms: arguments of the results' shape, which a last line may add.
        row_means: arguments whose mean over the second axis it may add.
        inputs: by problem, the argument that another input may stand for.
        indexed: by problem, how its loop reads that argument, where it does so once.
        positive: problems whose results are never negative, so that a logarithm of them and a number is one.
        numbers: which numbers stand for others before the last line.
    """

    terms: str = ""
    row_means: str = ""
    inputs: str = "- -"
    indexed: str = ""
    positive: str = ""
    numbers: tuple[str, ...] = NUMBERS


FACTS = {
    "assoc_order": Facts("v", inputs="v q"),
    "diag_matmul": Facts("x", "x", inputs="x x"),
    "double_norm": Facts("x"),
    "fold_linear": Facts("x", inputs="x -"),
    "head_loop": Facts("qkv", inputs="v v", numbers=SMALL),
    "loop_scan": Facts("x", "x", inputs="x -", indexed="x[:, t]", positive="2"),
    "onehot_gather": Facts("x"),
    "outer_sum": Facts(row_means="ax", inputs="b x"),
    "repeat_softmax": Facts(inputs="x -", numbers=SMALL),
    "row_loop": Facts("x", "x", inputs="x x", indexed="x[i]", positive="1", numbers=SMALL),
    "swish_chain": Facts("xy", inputs="x -", numbers=()),  # its numbers are those of the operation that fuses it
    "unfold_pool": Facts(inputs="x -"),
}

Choice = TypeVar("Choice")


class MemberDraw:
    """Draws members of the families of bundled problems.

    Args:
        problems: those that members are made of; others than the bundled ones have none.
        entries: candidates for them.
        avoided: problems whose last line no member gets: those held out.
    """

    def __init__(self, problems: Iterable[Problem], entries: Iterable[CorpusEntry], avoided: Iterable[Problem] = ()):
        self._problems = {p.problem_id: p for p in problems if p.family in FACTS and ModuleText.read(p.source)}
        self._entries: dict[str, list[tuple[CorpusEntry, ModuleText]]] = {name: [] for name in self._problems}
        for entry in entries:
            module = ModuleText.read(entry.code)
            if entry.problem_id in self._problems and module is not None:
                self._entries[entry.problem_id].append((entry, module))
        self._avoided = {module.body[-1] for p in avoided if (module := ModuleText.read(p.source)) is not None}

    @property
    def problem_ids(self) -> list[str]:
        """Return the ids of the problems that members are made of."""
        return list(self._problems)

    def draw(self, problem_id: str, rng: np.random.Generator) -> tuple[Problem, list[CorpusEntry]]:
        """Return a member made of a problem, and those of the candidates that have all that was changed.

        They keep the ids of what they were made of, so that a candidate's measured speedup is found for them.
        """
        problem, entries = self._problems[problem_id], self._entries[problem_id]
        module = ModuleText.read(problem.source)
        assert module is not None
        changed, changes = module, []
        for draw in (_numbers, _state, _input, self._ending):
            change = draw(problem, changed, [text for _, text in entries], rng)
            if change is not None and (after := change(changed, True)) is not None:
                changed = after
                changes.append(change)
        kept = []
        for entry, text in entries:
            of_candidate: ModuleText | None = text
            for change in changes:
                of_candidate = of_candidate and change(of_candidate, False)
            if of_candidate is not None:
                kept.append(replace(entry, code=of_candidate.write()))
        return replace(problem, source=_other_sizes(changed.write(), rng)), kept

    def _ending(
        self, problem: Problem, module: ModuleText, candidates: Sequence[ModuleText], rng: np.random.Generator
    ) -> Change:
        old = ReturnLine.read(module.body[-1])
        while True:
            new = _sum_of_results(module, rng) if old is None else _ending_like(old, problem, module, rng)
            line = new.line() if isinstance(new, ReturnLine) else new
            if line not in self._avoided:
                return with_ending(module.body[-1], new)


def _number_of(problem: Problem) -> str:
    return problem.problem_id.rpartition("_")[2]


def _of_member(facts: str, problem: Problem) -> str:
    """Return the part of "first second" that is about this problem of its family."""
    return facts.split()[int(_number_of(problem)) - 1]


def _one_of(options: Sequence[Choice], rng: np.random.Generator) -> Choice:
    return options[int(rng.integers(len(options)))]


def _numbers(
    problem: Problem, module: ModuleText, candidates: Sequence[ModuleText], rng: np.random.Generator
) -> Change | None:
    """Draw another number in the work, such as a scale, an epsilon, or a window's size and stride, or None."""
    work = "\n".join(module.work)
    if rng.random() < 0.3:
        return None
    if problem.family == "unfold_pool":
        window = re.search(r"\d+, \d+(?=\))", work)
        size = int(_one_of((4, 5, 6, 8, 10), rng))
        return with_number(window[0], f"{size}, {rng.integers(2, size)}") if window else None
    written = re.findall(r"1e-\d+|\d+\.\d+", work)
    numbers = FACTS[problem.family].numbers
    if not written or not numbers:
        return None
    return with_number(written[0], _one_of(EPSILONS if "e" in written[0] else numbers, rng))


def _state(
    problem: Problem, module: ModuleText, candidates: Sequence[ModuleText], rng: np.random.Generator
) -> Change | None:
    """Draw an argument where there was a parameter, the other way round, or None."""
    if rng.random() < 0.6:
        return None
    if module.state:
        return with_argument(module, "\n".join(line for text in (module, *candidates) for line in text.body))
    if len(module.arguments) < 2 or problem.family in ("head_loop", "swish_chain"):
        return None  # there each of them may be a term of the last line
    of_work = [name for name in module.arguments if not re.search(word(name), module.body[-1])]
    argument = _one_of(of_work, rng)
    return with_parameter(module, argument, _one_of((argument, "w"), rng))


def _input(
    problem: Problem, module: ModuleText, candidates: Sequence[ModuleText], rng: np.random.Generator
) -> Change | None:
    """Draw an elementwise function of an argument in its place, or None."""
    facts = FACTS[problem.family]
    argument = _of_member(facts.inputs, problem)
    if argument not in module.arguments or rng.random() < 0.5:
        return None
    form = _one_of(INPUTS, rng).replace("{number}", _one_of(facts.numbers or NUMBERS, rng))
    lines = "\n".join(line for text in (module, *candidates) for line in text.body)
    name = next(name for name in ("z", "g", "u") if not re.search(word(name), lines))
    once = facts.indexed and "\n".join(module.work).count(facts.indexed) == 1
    return with_input(argument, name, form, facts.indexed if once and rng.random() < 0.7 else "")


def _sum_of_results(module: ModuleText, rng: np.random.Generator) -> str:
    """Return a last line of all results that the work has, each a vector."""
    names = [name for line in module.work for name in re.findall(r"^([a-z]) = .*(?:sum|max)\(", line)]
    first, *others = [names[i] for i in rng.permutation(len(names))]
    text = f"torch.{_one_of(FUNCTIONS, rng)}({first})" if rng.random() < 0.5 else first
    return f"return {text}" + "".join(f" {_one_of('+-*', rng)} {name}" for name in others)


def _ending_like(old: ReturnLine, problem: Problem, module: ModuleText, rng: np.random.Generator) -> ReturnLine:
    """Draw another last line of the same core."""
    facts = FACTS[problem.family]
    terms = [name for name in facts.terms if name in module.arguments] * 2
    terms += [f"{name}.mean(1, keepdim=True)" for name in facts.row_means if name in module.arguments]
    functions = (*FUNCTIONS, *FUNCTIONS, "", *(OF_POSITIVE * 3 if _is_positive(problem, module) else ()))
    function = _one_of(functions, rng)
    inner_sign = inner = scale = sign = term = ""
    if function in OF_POSITIVE:
        inner_sign, inner = "+", _one_of(NUMBERS, rng)
    elif function and rng.random() < 0.35:
        inner_sign, inner = _one_of("**+-", rng), _one_of(NUMBERS, rng)
    if rng.random() < 0.55:
        scale = _one_of(NUMBERS, rng)
    if rng.random() < 0.6 or not (function or scale):
        sign, term = _one_of("+-", rng), _one_of([*terms * 2, _one_of(NUMBERS, rng)], rng)
    return ReturnLine(old.core, function, inner_sign, inner, scale, sign, term)


def _is_positive(problem: Problem, module: ModuleText) -> bool:
    facts = FACTS[problem.family]
    if not facts.positive:
        return False
    element = re.escape(facts.indexed)
    forms = "|".join(re.escape(form.format(x="@")).replace("@", element) for form in POSITIVE_INPUTS)
    return _number_of(problem) in facts.positive or (
        problem.family == "loop_scan" and re.search(forms, "\n".join(module.work)) is not None
    )


def _other_sizes(source: str, rng: np.random.Generator) -> str:
    """Return the problem's text with sizes between 0.7 and 1.3 times what they were, as round as before."""

    def other(match: re.Match) -> str:
        size = int(match[2])
        step = 16 if size >= 96 else 4 if size >= 16 else 1
        return f"{match[1]} = {max(2, round(size * rng.uniform(0.7, 1.3) / step)) * step}"

    return re.sub(r"^([A-Z]) = (\d+)$", other, source, flags=re.MULTILINE)
