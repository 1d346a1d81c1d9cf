"""The pairs (prompt, answer) of stage 1, from candidates that the evaluator has accepted and timed.

They teach to read a prompt, to answer in three parts and to write what runs and is right. In the one-shot pairs the
target is any accepted candidate, whatever its speed: which are fast is left for reinforcement learning to find out.
Source: CUDA-L1 (arXiv 2507.14111), stage 1. The contrastive pairs are this project's addition, without which a policy
would meet the prompt of stage 3 for the first time in stage 3. They teach what that prompt asks for: an answer faster
than the candidates it shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cudal1_ray.exemplars import Exemplar, Selection
from cudal1_ray.problems import CorpusEntry, Problem
from cudal1_ray.prompting.answer import render_answer
from cudal1_ray.prompting.builder import Prompt, PromptBuilder, speedup_text
from cudal1_ray.prompting.config import PromptingConfig
from cudal1_ray.source.comments import strip_comments


@dataclass(frozen=True)
class SftPair:
    """One training example: the answer is the text that should continue the prompt's."""

    entry_id: str
    prompt: Prompt
    answer: str


def build_sft_pairs(
    problems: Iterable[Problem],
    entries: Iterable[CorpusEntry],
    speedups: Mapping[str, float],
    builder: PromptBuilder,
    rng: np.random.Generator,
    *,
    one_shot_per_entry: int = 1,
    contrastive_per_entry: int = 1,
    exemplar_count: int = 2,
) -> list[SftPair]:
    """Return the pairs of one epoch in random order, the given number of each kind for every validated entry.

    Args:
        speedups: entry id -> measured speedup; entries absent from it, or with 0.0, were not accepted and are
            neither targets nor exemplars. Problems absent from `problems` are left out.

    Raises:
        PromptTooLong: as `PromptBuilder` does.
    """
    problems, entries = list(problems), list(entries)
    pairs = one_shot_pairs(problems, entries, speedups, builder) * one_shot_per_entry
    for _ in range(contrastive_per_entry):
        pairs += contrastive_pairs(problems, entries, speedups, builder, rng, exemplar_count=exemplar_count)
    return [pairs[i] for i in rng.permutation(len(pairs))]


def one_shot_pairs(
    problems: Iterable[Problem],
    entries: Iterable[CorpusEntry],
    speedups: Mapping[str, float],
    builder: PromptBuilder,
) -> list[SftPair]:
    """Return a pair for each validated entry: reference in, the entry's own analysis, design and code out."""
    pairs = []
    for problem, validated in _by_problem(problems, entries, speedups):
        prompt = builder.one_shot(problem)
        pairs += [_pair(entry, prompt, entry.analysis, builder) for entry in validated]
    return pairs


def contrastive_pairs(
    problems: Iterable[Problem],
    entries: Iterable[CorpusEntry],
    speedups: Mapping[str, float],
    builder: PromptBuilder,
    rng: np.random.Generator,
    *,
    exemplar_count: int = 2,
) -> list[SftPair]:
    """Return a pair for each validated entry that is not its problem's slowest: reference and exemplars in.

    The exemplars are up to `exemplar_count` slower validated entries, drawn uniformly among those whose printed
    speedups differ from all drawn before, shown from slow to fast. The analysis compares those the prompt really shows.

    The target is never among them. With it there, as it was until stage 1 was first seen on KernelBench (H100, 1.5 B,
    367 entries of 118 problems, two or three of each), 92% of the first step's right completions were copies of what
    their prompt showed, and still 83% over 16 steps in which a copy never had a positive advantage.
    """
    pairs = []
    for problem, validated in _by_problem(problems, entries, speedups):
        for target in validated:
            printed = speedup_text(speedups[target.entry_id])
            slower = [
                entry
                for entry in validated
                if speedups[entry.entry_id] < speedups[target.entry_id]
                and speedup_text(speedups[entry.entry_id]) != printed
            ]
            selection, entry_of = _draw(slower, speedups, exemplar_count, rng)
            prompt = builder.contrastive(problem, selection)
            compared = [entry_of[identity] for identity in prompt.exemplar_ids]
            if compared:
                analysis = compare([(speedups[entry.entry_id], entry.reason or entry.analysis) for entry in compared])
                pairs.append(_pair(target, prompt, analysis, builder))
    return pairs


def compare(candidates: Sequence[tuple[float, str]]) -> str:
    """Return the analysis of candidates 1, 2, ...: which is fastest, by measured speedup and the sentence on why.

    It states what was measured and the fastest candidate's sentence, nothing else.
    """
    speeds = [speed for speed, _ in candidates]
    fastest = max(range(len(speeds)), key=speeds.__getitem__)
    printed = [speedup_text(speed) for speed in speeds]
    others = [text for i, text in enumerate(printed) if i != fastest]
    subject = f"Candidate {fastest + 1}"
    if not others:
        measured = f"{subject} runs at {printed[fastest]}"
    else:
        degree = "faster" if len(others) == 1 else "fastest"
        measured = f"{subject} is {degree} ({printed[fastest]} against {' and '.join(others)})"
    why = candidates[fastest][1].strip()
    return f"{measured}: {why[:1].lower()}{why[1:]}" if why else f"{measured}."


def answer_of(entry: CorpusEntry, config: PromptingConfig, analysis: str | None = None) -> str:
    """Return the entry as an answer in its parts, with its own analysis unless another is given."""
    # A policy that only ever reads code without comments is taught to write it so: the same program, fewer
    # tokens.
    code = strip_comments(entry.code) if config.strip_comments else entry.code
    analysis = entry.analysis if analysis is None else analysis
    return render_answer(analysis, entry.design, code, include_analysis=config.include_analysis)


def _pair(entry: CorpusEntry, prompt: Prompt, analysis: str, builder: PromptBuilder) -> SftPair:
    return SftPair(entry.entry_id, prompt, answer_of(entry, builder.config, analysis))


def _by_problem(
    problems: Iterable[Problem], entries: Iterable[CorpusEntry], speedups: Mapping[str, float]
) -> list[tuple[Problem, list[CorpusEntry]]]:
    validated = defaultdict(list)
    for entry in entries:
        if speedups.get(entry.entry_id, 0.0) > 0.0:
            validated[entry.problem_id].append(entry)
    return [(problem, validated[problem.problem_id]) for problem in problems if validated[problem.problem_id]]


def _draw(
    entries: Sequence[CorpusEntry], speedups: Mapping[str, float], count: int, rng: np.random.Generator
) -> tuple[Selection, dict[str, CorpusEntry]]:
    left = list(entries)
    drawn: list[tuple[Exemplar, float, CorpusEntry]] = []
    while left and len(drawn) < count:
        entry, probability = left[rng.integers(len(left))], 1.0 / len(left)
        speed = speedups[entry.entry_id]
        drawn.append((Exemplar.new(entry.problem_id, entry.code, speed), probability, entry))
        left = [e for e in left if speedup_text(speedups[e.entry_id]) != speedup_text(speed)]
    drawn.sort(key=lambda item: item[0].speedup)
    selection = Selection(tuple(d[0] for d in drawn), tuple(d[1] for d in drawn), "uniform_distinct_speeds")
    return selection, {exemplar.exemplar_id: entry for exemplar, _, entry in drawn}
