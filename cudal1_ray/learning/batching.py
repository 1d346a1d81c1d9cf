"""From sequences of many lengths to micro-batches: which sequences go together, and their tensors."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cudal1_ray.learning.types import TrainingSequence

# Rows are padded to a multiple of it. Matrix products are compiled for each new size (oneDNN, bfloat16: 15 ms and
# 0.6 MB apiece), so sizes must come again.
LENGTH_STEP = 32


@dataclass(frozen=True)
class MicroBatch:
    """Sequences that go through the model together, as tensors.

    Attributes:
        input_ids: [R, T] int64; one sequence a row, padded on the right; or, packed, one row of sequences end to end.
        position_ids: [1, T] when packed, where it starts at 0 anew for each sequence; else None. Padding on the right
            needs no attention mask: causal attention never looks there.
        bounds: [S + 1] int32 when packed: where each sequence begins, and T; else None. Padding at the end of the row
            counts as one more sequence.
        longest: tokens of the longest sequence, that padding included.
        select: [N] int64, places in the flattened [R * T] whose *next* token is a completion token.
        targets: [N] int64, those tokens.
        segments: [N] int64, to which sequence of the micro-batch each belongs.
        sampling_logprobs: [N] fp32; 0 for sequences that have none.
        advantages, weights: [S] fp32.
    """

    input_ids: Tensor
    position_ids: Tensor | None
    bounds: Tensor | None
    longest: int
    select: Tensor
    targets: Tensor
    segments: Tensor
    sampling_logprobs: Tensor
    advantages: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> MicroBatch:
        tensors = {k: v for k, v in self.__dict__.items() if isinstance(v, Tensor)}
        if device.type == "cuda":  # out of pinned memory, so that the host can go on with the next one
            return replace(self, **{k: v.pin_memory().to(device, non_blocking=True) for k, v in tensors.items()})
        return replace(self, **{k: v.to(device) for k, v in tensors.items()})


@dataclass(frozen=True)
class Share:
    """Sequences of one micro-batch, by index. A spare one only keeps a rank in step with the others: it counts 0."""

    indices: tuple[int, ...]
    spare: bool = False


def rounded(length: int) -> int:
    return -(-length // LENGTH_STEP) * LENGTH_STEP


def plan(lengths: Sequence[int], token_budget: int, packing: bool) -> list[tuple[int, ...]]:
    """Group indices so that each group fits the budget, long ones first; equal lengths give equal groups.

    Args:
        lengths: tokens of each sequence.
        token_budget: tokens of a group, padding included; a longer sequence makes a group of its own, padded too.
        packing: sequences are laid end to end, else padded to the longest of their group.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    token_budget = max(token_budget, LENGTH_STEP)
    groups: list[list[int]] = []
    if packing:
        room: list[int] = []
        for index in order:  # first fit, decreasing
            spot = next((g for g, left in enumerate(room) if left >= lengths[index]), None)
            if spot is None:
                groups.append([])
                room.append(token_budget // LENGTH_STEP * LENGTH_STEP)
                spot = len(groups) - 1
            groups[spot].append(index)
            room[spot] -= lengths[index]
    else:
        for index in order:
            if not groups or rounded(lengths[groups[-1][0]]) * (len(groups[-1]) + 1) > token_budget:
                groups.append([])
            groups[-1].append(index)
    return [tuple(group) for group in groups]


def plan_rank(lengths: Sequence[int], token_budget: int, packing: bool, rank: int, world_size: int) -> list[Share]:
    """Return what one rank takes of a batch that all ranks know: about the same tokens, exactly as many micro-batches.

    Every rank must run as many micro-batches as the others, or collectives would wait for ever: spares fill up.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    if packing:
        rows = _balanced_rows(lengths, token_budget, world_size)
        plans = [[Share(row) for row in rows[member::world_size] if row] for member in range(world_size)]
    else:
        plans = []
        for member in range(world_size):
            turn = [member, 2 * world_size - 1 - member]  # there and back, so that none always gets the longest
            mine = [index for place, index in enumerate(order) if place % (2 * world_size) in turn]
            groups = plan([lengths[index] for index in mine], token_budget, packing)
            plans.append([Share(tuple(mine[i] for i in group)) for group in groups])
    spare = Share((order[-1],), spare=True)
    return plans[rank] + [spare] * (max(map(len, plans)) - len(plans[rank]))


def _balanced_rows(lengths: Sequence[int], token_budget: int, world_size: int) -> list[tuple[int, ...]]:
    """Pack rows for all ranks, as few as first fit needs, rounded up to a multiple of the ranks; fullest first.

    The rows that ranks compute at the same time are neighbours in it, and so of about the same length: under ZeRO-3
    they wait for one another in every layer. Longest sequence first, into the emptiest row (Graham 1969).
    """
    tight = plan(lengths, token_budget, packing=True)
    count = -(-len(tight) // world_size) * world_size
    room = max(token_budget, LENGTH_STEP) // LENGTH_STEP * LENGTH_STEP
    rows: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, row) for row in range(count)]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        filled, row = heapq.heappop(heap)
        if rows[row] and filled + lengths[index] > room:  # what is tight cannot always be even
            return sorted(tight, key=lambda group: -sum(lengths[i] for i in group))
        rows[row].append(index)
        heapq.heappush(heap, (filled + lengths[index], row))
    return [tuple(row) for row in sorted(rows, key=lambda row: -sum(lengths[i] for i in row))]


def collate(sequences: Sequence[TrainingSequence], share: Share, packing: bool, pad_token_id: int) -> MicroBatch:
    """Return the tensors of one share, on the CPU."""
    chosen = [sequences[index] for index in share.indices]
    rows = [torch.tensor(s.prompt_token_ids + s.completion_token_ids, dtype=torch.int64) for s in chosen]
    lengths = [len(row) for row in rows]
    if packing:
        starts = list(itertools.accumulate(lengths[:-1], initial=0))
        if spare := rounded(sum(lengths)) - sum(lengths):  # as if one more sequence
            rows_and_tail, spans = [*rows, torch.full((spare,), pad_token_id)], [*lengths, spare]
        else:
            rows_and_tail, spans = rows, lengths
        input_ids = torch.cat(rows_and_tail)[None]
        position_ids = torch.cat([torch.arange(length) for length in spans])[None]
        bounds = torch.tensor(list(itertools.accumulate(spans, initial=0)), dtype=torch.int32)
        longest = max(spans)
    else:
        input_ids = torch.full((len(rows), rounded(max(lengths))), pad_token_id)
        for target, row in zip(input_ids, rows, strict=True):
            target[: len(row)] = row
        position_ids, bounds, longest = None, None, max(lengths)
        starts = [i * input_ids.shape[1] for i in range(len(rows))]
    select, targets, segments = [], [], []
    sampling: list[float] = []
    for segment, (sequence, row, start) in enumerate(zip(chosen, rows, starts, strict=True)):
        first = len(sequence.prompt_token_ids)
        select.append(torch.arange(first - 1, len(row) - 1) + start)
        targets.append(row[first:])
        segments.append(torch.full((len(row) - first,), segment))
        sampling.extend(sequence.sampling_logprobs or (0.0,) * (len(row) - first))
    return MicroBatch(
        input_ids=input_ids,
        position_ids=position_ids,
        bounds=bounds,
        longest=longest,
        select=torch.cat(select),
        targets=torch.cat(targets),
        segments=torch.cat(segments),
        sampling_logprobs=torch.tensor(sampling, dtype=torch.float32),
        advantages=torch.tensor([s.advantage for s in chosen], dtype=torch.float32),
        weights=torch.tensor([0.0 if share.spare else s.weight for s in chosen], dtype=torch.float32),
    )


def group_parts(groups: Sequence[int], parts: int) -> int:
    """Return how many minibatches come of a batch: at most `parts`, and no more than it has groups.

    Args:
        groups: group of each sequence; -1 where it has none, and is a group of its own.
    """
    return min(parts, len(_members(groups)))


def minibatches(groups: Sequence[int], parts: int, generator: torch.Generator) -> list[list[int]]:
    """Return the sequences of each minibatch by index: whole groups in random order, about as many in each.

    A part of a group can be its failures alone: of the steps on minibatches of single sequences, 21% pushed down only
    at 5% success (12 groups of 8, 3 parts).
    """
    members = list(_members(groups).values())
    parts = group_parts(groups, parts)
    if parts == 1:
        return [list(range(len(groups)))]
    order = torch.randperm(len(members), generator=generator)
    return [[index for place in part.tolist() for index in members[place]] for part in order.tensor_split(parts)]


def _members(groups: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    members: dict[tuple[int, int], list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault((group, index if group < 0 else 0), []).append(index)
    return members


def check_sequences(sequences: Sequence[TrainingSequence], max_position: int | None) -> None:
    """Raise ValueError naming the first sequence that cannot be trained on.

    Args:
        max_position: tokens of the policy's longest input; None where its configuration names none.
    """
    for i, sequence in enumerate(sequences):
        tokens, logprobs = len(sequence.completion_token_ids), len(sequence.sampling_logprobs)
        if not sequence.prompt_token_ids or not tokens:
            raise ValueError(f"sequence {i}: prompt and completion must both have tokens")
        if logprobs not in (0, tokens):
            raise ValueError(f"sequence {i}: {logprobs} sampling log-probabilities for {tokens} completion tokens")
        if max_position is not None and len(sequence) > max_position:
            raise ValueError(f"sequence {i}: {len(sequence)} tokens, the policy's longest input is {max_position}")
