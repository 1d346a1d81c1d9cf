"""Kinds of inputs that are made from a problem's own: one row that differs, and other lengths."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.evaluation.inside.input_kinds import varied


@pytest.mark.parametrize("kind", ["one_row", "one_row_scaled", "one_row_sparse"])
def test_varied_rows_when_one_differs_choose_neither_the_first_nor_the_last(kind):
    values = torch.rand(5, 64, generator=torch.Generator().manual_seed(0)) + 1
    mask, tokens, rows = torch.ones(5, 64, dtype=torch.bool), torch.arange(5), set()
    for seed in range(20):
        changed, hidden, same = varied([values, mask, tokens], kind, seed, list)
        (row,) = {int(row) for row in ((changed != values) | ~hidden).nonzero()[:, 0]}
        rows.add(row)
        assert torch.equal(same, tokens) and 0 < int(hidden[row].sum()) < 64
        there = changed[row] != 0
        scale, shift = {"one_row": (2.5, 0.75), "one_row_scaled": (2.5, 0.0), "one_row_sparse": (1.0, 0.0)}[kind]
        assert 0 < int(there.sum()) < 64 and torch.allclose(changed[row][there], scale * values[row][there] - shift)
    assert rows == {1, 2, 3}
    assert varied([tokens], kind, 0, list) is None
    assert varied([values[:2]], kind, 0, list) is None


def test_lengths_when_all_reach_the_end_become_shorter_and_other_integers_stay():
    lengths, tokens, ones = torch.full((64,), 512), torch.arange(64), torch.ones(64, dtype=torch.long)
    shorter, *same = varied([lengths, tokens, ones], "sparse", 0, list)
    assert len(shorter.unique()) > 30 and 1 <= int(shorter.min()) and int(shorter.max()) <= 512
    assert shorter.dtype == lengths.dtype and torch.equal(same[0], tokens) and torch.equal(same[1], ones)
