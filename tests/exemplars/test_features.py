"""What is measured of a code: the same for the same program, near for near ones, and never other than it was."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import cudal1_ray.problems
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.exemplars.features import OPERATIONS, CodeFeatures, code_features, similarity, sketch
from cudal1_ray.source.normal_form import normalise_code

CORPUS = Path(cudal1_ray.problems.__file__).parent / "corpus"
CODES = [normalise_code(path.read_text()) for path in sorted(CORPUS.glob("*/*.py"))]

SOFTMAX = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range(2):
            x = torch.softmax(x @ x.transpose(0, 1).contiguous(), dim=-1)
        return x.half()
"""


def cosine(first: str, second: str) -> float:
    """Return the cosine of the counts of all runs of eight characters, straight from the definition."""
    a, b = (Counter(text[i : i + 8] for i in range(len(text) - 7)) for text in (first, second))
    lengths = (sum(n * n for n in counts.values()) for counts in (a, b))
    return sum(a[shingle] * b[shingle] for shingle in a) / float(np.sqrt(np.prod(list(lengths))))


def test_features_when_formatting_differs_are_the_same():
    dressed = SOFTMAX.replace("import torch\n", '"""A module."""\nimport torch  # the library\n')
    features = Exemplar.new("p", dressed, 1.0).features
    assert features == Exemplar.new("q", SOFTMAX, 2.0).features == code_features(normalise_code(SOFTMAX))
    assert features.length == len(normalise_code(SOFTMAX))


def test_operations_when_code_is_read_are_those_its_text_shows():
    mask = code_features(normalise_code(SOFTMAX)).operations
    names = {name for i, name in enumerate(OPERATIONS) if mask >> i & 1}
    assert names == {"matrix product", "reduction", "memory layout", "reduced precision", "loop"}
    assert code_features("").operations == 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_when_a_mark_of_it_is_there_sets_its_bit(name):
    bit = list(OPERATIONS).index(name)
    for mark in OPERATIONS[name]:
        assert code_features(f"y = {mark}").operations >> bit & 1


def test_features_when_stored_keep_their_values():
    """Files hold these figures: a change of one needs another column name."""
    assert code_features("return torch.relu(x) @ w") == CodeFeatures(24, 1 << 5, 0x1C9D8ADD5579977)


def test_sketches_when_codes_are_similar_are_similar():
    pairs = [(a, b) for a, b in itertools.combinations(CODES, 2)][::37]
    exact = np.array([cosine(a, b) for a, b in pairs])
    estimated = np.array([similarity(np.array([sketch(a)], np.uint64), sketch(b))[0] for a, b in pairs])
    assert len(pairs) > 300 and exact.min() < 0.4 and exact.max() > 0.9
    assert np.corrcoef(exact, estimated)[0, 1] > 0.6
    assert np.abs(estimated - exact)[exact > 0.9].mean() < 0.1
    assert estimated[exact > 0.95].min() > estimated[exact < 0.4].max()


def test_similarity_when_bits_differ_follows_their_number():
    sketches = np.array([0, 1, (1 << 32) - 1, (1 << 64) - 1], np.uint64)
    assert similarity(sketches, 0) == pytest.approx([1.0, np.cos(np.pi / 64), 0.0, -1.0], abs=1e-12)
    assert similarity(sketches, (1 << 64) - 1)[3] == 1.0


def test_features_when_text_is_arbitrary_exist():
    for text in ("x", "é\ud800" * 5, "class (:", " " * 100):
        features = Exemplar.new("p", text, 0.0).features
        assert 0 <= features.sketch < 1 << 64 and features.length == len(normalise_code(text))
