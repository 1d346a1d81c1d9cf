"""The pairs of stage 1: truthful, from validated candidates only, over the bundled corpus."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest

from cudal1_ray.exemplars import exemplar_id
from cudal1_ray.problems import ProblemsConfig, load_corpus, load_problems
from cudal1_ray.prompting import (
    PromptBuilder,
    PromptingConfig,
    build_sft_pairs,
    contrastive_pairs,
    one_shot_pairs,
    parse_answer,
)
from cudal1_ray.prompting.sft import compare

PROBLEMS = load_problems(ProblemsConfig())
ENTRIES = [entry for entry in load_corpus() if entry.problem_id in {p.problem_id for p in PROBLEMS}]


@pytest.fixture
def speedups():
    """Return speedups as an evaluator could have measured them: a few equal when printed, some candidates
    rejected.
    """
    rng = np.random.default_rng(4)
    measured = {}
    for entry in ENTRIES:
        if entry.expected == "accepted":
            measured[entry.entry_id] = float(rng.choice([0.0, 0.501, 0.999, 1.0, 1.001, 2.345, 7.0]))
    return measured


def builder(**fields) -> PromptBuilder:
    return PromptBuilder(PromptingConfig(max_prompt_tokens=100_000, **fields), len)


def test_one_shot_pairs_when_built_are_the_validated_entries(speedups):
    pairs = one_shot_pairs(PROBLEMS, ENTRIES, speedups, builder())
    by_id = {entry.entry_id: entry for entry in ENTRIES}
    assert {pair.entry_id for pair in pairs} == {key for key, s in speedups.items() if s > 0}
    assert len(pairs) == len({pair.entry_id for pair in pairs}) > 10
    source = {p.problem_id: p.source for p in PROBLEMS}
    for pair in pairs:
        entry, answer = by_id[pair.entry_id], parse_answer(pair.answer)
        assert answer.error == "" and answer.code == entry.code.strip("\n")
        assert (answer.analysis, answer.design) == (entry.analysis, entry.design)
        assert source[entry.problem_id].strip() in pair.prompt.text and pair.prompt.exemplar_ids == ()


def test_contrastive_pairs_when_built_state_what_was_measured(speedups):
    build = builder()
    by_exemplar = {exemplar_id(e.problem_id, e.code): e for e in ENTRIES}
    targets = set()
    for seed in range(3):
        pairs = contrastive_pairs(PROBLEMS, ENTRIES, speedups, build, np.random.default_rng(seed))
        for pair in pairs:
            exemplars = [by_exemplar[identity] for identity in pair.prompt.exemplar_ids]
            speeds = [speedups[entry.entry_id] for entry in exemplars]
            assert 1 <= len(exemplars) <= 2 and min(speeds) > 0 and speeds == sorted(speeds)
            assert len({f"{s:.2f}" for s in speeds}) == len(speeds), "equal speeds are no contrast"
            assert pair.entry_id not in {entry.entry_id for entry in exemplars}, (
                "a policy learns to copy what it is shown"
            )
            printed = re.findall(r"^## Candidate (\d): (.*)x$", pair.prompt.text, re.MULTILINE)
            assert printed == [(str(i), f"{s:.2f}") for i, s in enumerate(speeds, 1)]
            analysis = parse_answer(pair.answer).analysis
            why = exemplars[-1].analysis
            assert analysis.endswith(why[0].lower() + why[1:])
            if len(exemplars) == 2:
                assert analysis.startswith(f"Candidate 2 is faster ({speeds[1]:.2f}x against {speeds[0]:.2f}x): ")
            targets.add(pair.entry_id)
            assert speedups[pair.entry_id] > max(speeds), "the answer is faster than what the prompt shows"
    problem_of = {entry.entry_id: entry.problem_id for entry in ENTRIES}
    validated = defaultdict(set)
    for key, speed in speedups.items():
        if speed > 0:
            validated[problem_of[key]].add(key)
    slowest = {problem: min(speedups[key] for key in keys) for problem, keys in validated.items()}
    assert targets == {
        key
        for problem, keys in validated.items()
        for key in keys
        if speedups[key] > slowest[problem] and f"{speedups[key]:.2f}" != f"{slowest[problem]:.2f}"
    }


def test_the_analysis_follows_the_prompt_when_exemplars_are_dropped(speedups):
    tight = PromptBuilder(PromptingConfig(max_prompt_tokens=900), len)
    counts = set()
    problems = [p for p in PROBLEMS if len(p.source) < 850]
    assert problems
    for pair in contrastive_pairs(problems, ENTRIES, speedups, tight, np.random.default_rng(0)):
        count = len(pair.prompt.exemplar_ids)
        counts.add(count)
        assert len(pair.prompt.text) <= 900
        assert max(int(n) for n in re.findall(r"Candidate (\d)", pair.answer.split("\n")[1])) <= count
    assert 1 in counts


def test_compare_when_candidates_differ_names_the_fastest_in_any_place():
    assert compare([(3.1, "It is fused."), (1.05, "x")]) == "Candidate 1 is faster (3.10x against 1.05x): it is fused."
    assert compare([(0.5, "x"), (3.1, "It is fused."), (2.0, "y")]) == (
        "Candidate 2 is fastest (3.10x against 0.50x and 2.00x): it is fused."
    )
    assert compare([(0.8, "It copies.")]) == "Candidate 1 runs at 0.80x: it copies."
    assert compare([(0.8, "")]) == "Candidate 1 runs at 0.80x."


def test_epoch_when_seeded_has_the_set_number_of_pairs_and_is_reproducible(speedups):
    def epoch(seed):
        return build_sft_pairs(
            PROBLEMS,
            ENTRIES,
            speedups,
            builder(),
            np.random.default_rng(seed),
            one_shot_per_entry=2,
            contrastive_per_entry=3,
        )

    pairs = epoch(0)
    validated = sum(s > 0 for s in speedups.values())
    assert sum(not pair.prompt.exemplar_ids for pair in pairs) == 2 * validated
    contrastive = sum(bool(pair.prompt.exemplar_ids) for pair in pairs)
    assert validated < contrastive < 3 * validated and contrastive % 3 == 0
    assert pairs == epoch(0) and pairs != epoch(1)


def test_answers_when_analysis_is_left_out_have_none(speedups):
    build = builder(include_analysis=False)
    pairs = build_sft_pairs(PROBLEMS, ENTRIES, speedups, build, np.random.default_rng(0))
    assert pairs
    for pair in pairs:
        assert pair.answer.startswith("## Algorithm Design\n")
        assert parse_answer(pair.answer, require_analysis=False).error == ""


def test_answers_when_comments_are_stripped_keep_the_program(speedups):
    source = {entry.entry_id: entry for entry in ENTRIES}
    pairs = one_shot_pairs(PROBLEMS, ENTRIES, speedups, builder(strip_comments=True))
    assert pairs
    for pair in pairs:
        code, entry = parse_answer(pair.answer).code, source[pair.entry_id]
        assert "\n\n" not in code
        assert exemplar_id(entry.problem_id, code) == exemplar_id(entry.problem_id, entry.code)


def test_sft_pairs_when_no_candidate_is_validated_are_none():
    assert build_sft_pairs(PROBLEMS, ENTRIES, {}, builder(), np.random.default_rng(0)) == []
