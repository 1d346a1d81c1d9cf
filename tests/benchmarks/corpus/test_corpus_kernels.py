"""The corpus of own kernels: what every candidate must be before any GPU sees it."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from benchmarks.corpus.sources import all_sources, levels
from cudal1_ray.evaluation.screening.static_check import check_static
from cudal1_ray.problems.splits import kernelbench_split

SOURCES = list(all_sources())


def test_corpus_sources_when_of_one_problem_have_different_codes():
    assert {source.level for source in SOURCES} == set(levels())
    assert {kernelbench_split()[source.problem_id] for source in SOURCES} == {"train"}
    assert Counter((source.problem_id, source.draft.code) for source in SOURCES).most_common(1)[0][1] == 1


def test_corpus_sources_when_counted_have_several_members_for_most_problems():
    members = Counter(source.problem_id for source in SOURCES)
    assert sum(count >= 2 for count in members.values()) >= 0.9 * len(members)


@pytest.mark.parametrize("source", SOURCES[::40], ids=lambda source: source.key)
def test_source_when_checked_statically_has_no_finding(source):
    assert check_static(source.draft.code).refusal is None


@pytest.mark.parametrize("level", levels())
def test_corpus_sources_when_of_a_language_hold_its_kernels_and_texts(level):
    sources = [source for source in SOURCES if source.level == level]
    assert sources
    for source in sources:
        names = {node.name for node in ast.walk(ast.parse(source.draft.code)) if isinstance(node, ast.ClassDef)}
        kernel = {"triton": "@triton.jit", "cuda": "__global__"}[source.draft.language]
        assert "ModelNew" in names and kernel in source.draft.code, source.key
        assert len(source.draft.analysis.split()) >= 40 and len(source.draft.design.split()) >= 40, source.key
        assert source.draft.techniques, source.key


def test_all_sources_when_given_patterns_yields_matching_keys_only():
    assert {source.draft.problem for source in all_sources(["l1-019"])} == {19}
