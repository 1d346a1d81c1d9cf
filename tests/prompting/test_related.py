"""Kernels of related problems in prompts: whose they are, and where they stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_corpus, load_problems
from cudal1_ray.prompting import PromptBuilder, PromptingConfig
from cudal1_ray.prompting.related import RelatedKernels, related_kernels
from cudal1_ray.source.comments import strip_comments

PROBLEMS = load_problems(ProblemsConfig())
TRAIN = [problem for problem in PROBLEMS if problem.split == "train"]
ENTRIES = [
    replace(entry, speedup=1.0 + 0.1 * (1 + place % 5))
    for place, entry in enumerate(e for e in load_corpus() if e.expected == "accepted")
]


def test_related_kernels_when_looked_up_are_of_the_nearest_other_training_problems():
    related = RelatedKernels(TRAIN, ENTRIES, count=2)
    names = {problem.problem_id: problem.name or problem.problem_id for problem in PROBLEMS}
    for problem in PROBLEMS:
        exemplars = related(problem)
        assert 1 <= len(exemplars) <= 2 and all("class ModelNew" in kernel["code"] for kernel in exemplars)
        titles = [kernel["title"] for kernel in exemplars]
        assert not any(f", {names[problem.problem_id]}:" in title for title in titles)
    held_out = next(problem for problem in PROBLEMS if problem.problem_id == "diag_matmul_3")
    assert "diag_matmul" in related(held_out)[-1]["title"]


def test_related_kernels_when_none_is_faster_than_its_reference_are_none():
    assert RelatedKernels(TRAIN, [replace(entry, speedup=0.9) for entry in ENTRIES], 2)(TRAIN[0]) == []


def test_related_kernels_when_a_device_measured_them_are_the_fastest_there():
    entries = [entry for entry in ENTRIES if entry.problem_id == TRAIN[1].problem_id][:2]
    fast, slow = replace(entries[0], speedup=3.0, speedups={"B": 1.25}), replace(entries[1], speedup=2.0)
    related = RelatedKernels(TRAIN, [fast, slow, replace(ENTRIES[-1], speedup=1.5, speedups={"B": 0.9})], count=2)
    assert [entry.speedup for entry in related.as_measured_on("A").entries()] == [3.0, 1.5]
    assert [entry.code for entry in related.as_measured_on("B").entries()] == [slow.code]
    both = replace(slow, speedups={"B": 1.125})
    (kernel,) = RelatedKernels(TRAIN, [fast, both], count=2).as_measured_on("B")(TRAIN[0])
    assert kernel["title"].endswith(": 1.25x there.") and kernel["code"] == strip_comments(fast.code).strip("\n")


def test_prompt_when_related_kernels_are_known_shows_them_instead_of_worked_examples():
    config = PromptingConfig(style="full", examples=["triton"], max_prompt_tokens=100_000)
    related = RelatedKernels(TRAIN, ENTRIES, count=2)
    builder = PromptBuilder(config, len, related=related)
    text = builder.one_shot(TRAIN[0]).text
    assert all(kernel["code"] in text and kernel["title"] in text for kernel in related(TRAIN[0]))
    assert "@triton.jit" not in text
    without = PromptBuilder(config, len, related=lambda problem: []).one_shot(TRAIN[0]).text
    assert "@triton.jit" in without
    bare = PromptBuilder(replace(config, examples=[]), len).one_shot(TRAIN[0]).text
    tight = replace(config, max_prompt_tokens=len(bare))
    assert "another problem" not in PromptBuilder(tight, len, related=related).one_shot(TRAIN[0]).text


def test_related_kernels_when_there_is_no_corpus_name_the_setting():
    assert related_kernels(PromptingConfig(), TRAIN) is None
    with pytest.raises(UserError, match="prompting.related_from=nowhere"):
        related_kernels(PromptingConfig(related_from="nowhere"), TRAIN)
