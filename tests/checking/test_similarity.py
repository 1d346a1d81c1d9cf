"""Similarity is about what a candidate does to its reference, not about names or about the problem."""

from __future__ import annotations

from collections import Counter

import pytest

from cudal1_ray.checking.similarity import NOTHING, SimilarityIndex, features, shingles

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(n, n), nn.Linear(n, n)

    def forward(self, x):
        return torch.tanh(self.b(torch.relu(self.a(x))))


def get_inputs():
    return [torch.randn(192, 320)]


def get_init_inputs():
    return [320]
"""
CANDIDATE = REFERENCE.partition("\n\ndef get_inputs")[0].replace("class Model(", "class ModelNew(")
BODY = "return torch.tanh(self.b(torch.relu(self.a(x))))"
CACHE = CANDIDATE.replace(
    BODY,
    f"if self.kept is None:\n            {BODY.replace('return', 'self.kept =')}\n        return self.kept",
)
CACHE_ELSEWHERE = """
import torch as t


class ModelNew(t.nn.Module):
    def forward(self, left, right):
        if self.answer is None:
            self.answer = left @ right
        return self.answer
"""
PRODUCT = """
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
"""


def test_shingles_when_tokens_repeat_count_runs():
    assert shingles(["a", "b", "a"], 2) == Counter({"a": 2, "b": 1, "a b": 1, "b a": 1})


def test_features_when_a_candidate_only_renames_are_none():
    assert features(CANDIDATE, REFERENCE) == Counter({NOTHING: 1})
    assert features(CANDIDATE.replace("(n, n)", "(m, m)").replace("self, n", "self, m"), REFERENCE) == {NOTHING: 1}


def test_features_when_work_is_left_out_name_it():
    names = features(CANDIDATE.replace("torch.relu(self.a(x))", "self.a(x)"), REFERENCE)
    assert "-relu" in names and not any("tanh" == name.strip("+-") for name in names)


def test_similarity_when_a_trick_is_the_same_exceeds_that_of_one_problem():
    index = SimilarityIndex()
    honest = CANDIDATE.replace(BODY, "return self.b(self.a(x).relu_()).tanh_()")
    for code in (honest, CACHE):
        index.add(features(code, REFERENCE))
    index.add(features("import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, a, b):\n"
                       "        return torch.mm(a, b)\n", PRODUCT))  # fmt: skip
    nearest = index.nearest(features(CACHE_ELSEWHERE, PRODUCT), 3)
    assert nearest[0][0] == 1 and 0.2 < nearest[0][1] <= 1.0
    assert [s for _, s in nearest] == sorted((s for _, s in nearest), reverse=True)
    assert index.nearest(features(CACHE_ELSEWHERE, PRODUCT), 3, lambda number: number != 1)[0][0] != 1


def test_cosines_when_computed_by_hand_are_these():
    index = SimilarityIndex()
    index.add(Counter({"a": 1}))
    index.add(Counter({"a": 1, "b": 1}))
    index.add(Counter({"c": 1}))
    # idf = 1 + ln(4 / (1 + df)): a is in two of three, b in one.
    a, b = 1.2876820724517808, 1.6931471805599454
    (first, greatest), (second, less) = index.nearest(Counter({"a": 3}), 5)
    assert (first, second) == (0, 1)
    assert greatest == pytest.approx(1.0) and less == pytest.approx(a / (a * a + b * b) ** 0.5)
    assert index.nearest(Counter({"unheard of": 1}), 5) == []
