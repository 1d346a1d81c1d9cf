"""Which sequences go together: all of them, once, within the budget, and every rank in step."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from cudal1_ray.learning.batching import (
    LENGTH_STEP,
    Share,
    collate,
    group_parts,
    minibatches,
    plan,
    plan_rank,
    rounded,
)
from cudal1_ray.learning.types import TrainingSequence

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


@given(LENGTHS, st.integers(1, 200), st.booleans())
def test_plan_when_there_is_a_budget_takes_all_within_it(lengths, budget, packing):
    groups = plan(lengths, budget, packing)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        used = [lengths[i] for i in group]
        cost = rounded(sum(used)) if packing else rounded(max(used)) * len(group)
        assert cost <= max(budget, LENGTH_STEP) or len(group) == 1
    assert groups == plan(list(lengths), budget, packing)


@given(LENGTHS, st.integers(10, 200), st.booleans(), st.integers(1, 5))
def test_ranks_when_they_share_a_batch_take_all_and_stay_in_step(lengths, budget, packing, world_size):
    shares = [plan_rank(lengths, budget, packing, rank, world_size) for rank in range(world_size)]
    taken = [i for rank in shares for share in rank if not share.spare for i in share.indices]
    assert sorted(taken) == list(range(len(lengths)))
    assert len({len(rank) for rank in shares}) == 1


@given(LENGTHS, st.integers(10, 200), st.integers(1, 5))
def test_packed_rows_when_planned_fit_and_are_no_more_than_first_fit_needs(lengths, budget, world_size):
    shares = [plan_rank(lengths, budget, True, rank, world_size) for rank in range(world_size)]
    for share in (share for rank in shares for share in rank if not share.spare):
        assert rounded(sum(lengths[i] for i in share.indices)) <= max(budget, LENGTH_STEP) or len(share.indices) == 1
    needed = len(plan(lengths, budget, packing=True))
    assert len(shares[0]) == -(-needed // world_size)


def test_ranks_when_rows_differ_in_length_compute_equal_ones_together():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(256, 4097, (256,), generator=generator).tolist()
    shares = [plan_rank(lengths, 16384, True, rank, 4) for rank in range(4)]
    steps = list(zip(*[[sum(lengths[i] for i in share.indices) for share in rank] for rank in shares], strict=True))
    together = sum(max(step) for step in steps)  # all wait for the longest
    assert together < 1.02 * sum(lengths) / 4
    assert together < 1.1 * 16384 * len(steps)
    assert sum(lengths) / 16384 / 4 <= len(steps) <= sum(lengths) / 16384 / 4 * 1.15 + 1


def test_collate_when_padded_or_packed_has_these_tensors():
    sequences = [
        TrainingSequence((5, 6), (7, 8), (-0.1, -0.2), advantage=2.0),
        TrainingSequence((9,), (10, 11, 12, 13), (-1.0, -2.0, -3.0, -4.0), weight=0.5),
    ]
    padded = collate(sequences, Share((1, 0)), packing=False, pad_token_id=0)
    assert padded.input_ids.shape == (2, 32) and not padded.input_ids[:, 5:].any()
    assert padded.input_ids[:, :5].tolist() == [[9, 10, 11, 12, 13], [5, 6, 7, 8, 0]]
    assert padded.select.tolist() == [0, 1, 2, 3, 33, 34]
    assert padded.targets.tolist() == [10, 11, 12, 13, 7, 8]
    assert padded.segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert padded.weights.tolist() == [0.5, 1.0] and padded.advantages.tolist() == [1.0, 2.0]
    assert padded.position_ids is None and padded.bounds is None
    packed = collate(sequences, Share((1, 0)), packing=True, pad_token_id=0)
    assert packed.input_ids.tolist() == [[9, 10, 11, 12, 13, 5, 6, 7, 8] + [0] * 23]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, *range(23)]]
    assert packed.bounds.tolist() == [0, 5, 9, 32] and packed.bounds.dtype == torch.int32 and packed.longest == 23
    full = collate([TrainingSequence((1,) * 20, (2,) * 12)], Share((0,)), packing=True, pad_token_id=0)
    assert full.bounds.tolist() == [0, 32] and full.longest == 32
    assert packed.select.tolist() == [0, 1, 2, 3, 6, 7]
    assert packed.targets.tolist() == padded.targets.tolist()
    spare = collate(sequences, Share((0,), spare=True), packing=False, pad_token_id=0)
    assert spare.weights.tolist() == [0.0]


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=40), st.integers(1, 9), st.integers(0, 99))
def test_minibatches_when_cut_take_every_sequence_once_and_keep_groups_whole(groups, parts, seed):
    batches = minibatches(groups, parts, torch.Generator().manual_seed(seed))
    assert sorted(i for batch in batches for i in batch) == list(range(len(groups)))
    assert len(batches) == group_parts(groups, parts) <= parts and all(batches)
    for group in set(groups) - {-1}:
        assert sum(any(groups[i] == group for i in batch) for batch in batches) == 1


def test_minibatches_when_there_is_one_keep_the_order_and_draw_nothing():
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    assert minibatches([2, 0, 2], 1, generator) == [[0, 1, 2]] and torch.equal(before, generator.get_state())
