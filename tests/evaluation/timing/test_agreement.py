"""The speedup at which two sides' calls agree most, in spite of launches, places in memory and delayed calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cudal1_ray.evaluation.exchange.tensors import in_order_of_memory, places_in_memory, raw_elements, window_of
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice
from cudal1_ray.evaluation.timing.agreement import agreement
from cudal1_ray.evaluation.timing.clocks import Batch, Span
from cudal1_ray.evaluation.timing.estimate import on_gpu
from cudal1_ray.evaluation.timing.statistics import Interval, trimmed_interval
from cudal1_ray.evaluation.timing.steady import SelectedBatches


def _batches(chance, typical_s, *, slow_share, batches=24, calls=16):
    """Return calls at two levels, 1.4 apart, with 2% of noise; one in twenty is delayed by a random time."""
    times = typical_s * np.exp(0.02 * chance.standard_normal((batches, calls)))
    times *= np.where(chance.random((batches, calls)) < slow_share, 1.4, 1.0)
    return times * np.where(chance.random((batches, calls)) < 0.05, 1 + 5 * chance.random((batches, calls)), 1.0)


@pytest.mark.parametrize("speedup", [1.0, 1.3, 8.0])
def test_agreement_when_sides_got_unequal_shares_of_a_slow_core_covers_the_ratio(speedup):
    errors, plain, covered = [], [], []
    for seed in range(20):
        chance = np.random.default_rng(seed)
        ours = _batches(chance, 40e-6 * speedup, slow_share=0.2 + 0.2 * chance.random())
        theirs = _batches(chance, 40e-6, slow_share=0.2 + 0.2 * chance.random())
        estimate = agreement(ours, theirs, seed)
        errors.append(abs(estimate.ratio / speedup - 1))
        covered.append(estimate.low <= speedup <= estimate.high)
        sums = [side.sum(1) for side in (ours, theirs)]
        plain.append(abs(trimmed_interval(list(np.log(sums[0] / sums[1]))).ratio / speedup - 1))
    assert np.quantile(errors, 0.95) < 0.01 < np.quantile(plain, 0.5)
    assert np.mean(covered) >= 0.85


def test_agreement_when_two_answers_are_as_good_has_a_wide_interval():
    chance = np.random.default_rng(3)
    ours = _batches(chance, 40e-6, slow_share=0.5)
    theirs = 40e-6 * np.exp(0.02 * chance.standard_normal(ours.shape))
    estimate = agreement(ours, theirs, 1)
    assert estimate.half_width > 0.2


def test_agreement_when_pairs_are_few_or_equal_has_a_known_width():
    two = agreement([[1e-3], [1e-3]], [[0.5e-3], [0.5e-3]], 0)
    assert two.ratio == pytest.approx(2.0, rel=2e-3) and two.half_width == math.inf
    same = agreement([[1e-3]] * 8, [[1e-3] * 3] * 8, 0)
    assert same.ratio == pytest.approx(1.0, abs=1e-6) and same.half_width < 1e-3 and same.n == 8


def test_agreement_when_computed_twice_is_the_same():
    chance = np.random.default_rng(5)
    ours, theirs = _batches(chance, 1e-3, slow_share=0.3), _batches(chance, 1e-3, slow_share=0.3)
    assert agreement(ours, theirs, 7) == agreement(ours, theirs, 7)


def test_memory_when_read_in_its_order_is_no_copy_in_any_layout():
    images = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    row, strides = in_order_of_memory(images)
    assert (
        strides == images.stride()
        and row.data_ptr() == images.data_ptr()
        and row.tolist() == images.permute(0, 2, 3, 1).reshape(-1).tolist()
    )
    for odd in (torch.arange(6.0)[::2], torch.ones(1).expand(4), torch.arange(4.0) + 1j):
        row, strides = in_order_of_memory(odd.conj())
        assert (
            strides == () and row.shape == (odd.numel(),) and torch.equal(row, odd.conj().resolve_conj().contiguous())
        )


@pytest.mark.parametrize(
    ("shape", "order"), [((7, 33, 65), (2, 0, 1)), ((4, 5, 6, 7), (0, 2, 3, 1)), ((300, 20), (1, 0)), ((500,), (0,))]
)
def test_window_when_a_layout_is_odd_is_that_of_the_usual_order(shape, order):
    values = torch.arange(math.prod(shape)).reshape(shape).permute(order)
    row, chance = values.reshape(-1), np.random.default_rng(1)
    for tensor, flat in ((values, row), (values[..., ::2], values[..., ::2].reshape(-1))):
        for _ in range(50):
            length = int(chance.integers(1, min(200, flat.numel())))
            start = int(chance.integers(0, flat.numel() - length + 1))
            assert torch.equal(window_of(tensor, start, length), flat[start : start + length])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e5m2, torch.bool, torch.complex128])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_windows_when_searched_for_are_in_their_places_in_any_layout(order, dtype):
    values = torch.randint(100, (4, 5, 6, 7)).to(dtype).permute(order)
    for tensor in (values, values[:, 1:, ::2], values[:1].expand(3, -1, -1, -1)):
        row = tensor.contiguous().view(-1).view(torch.uint8).reshape(tensor.numel(), -1)
        elements = raw_elements(tensor, places_in_memory(tensor, (0, 17), 30))
        assert torch.equal(elements.view(torch.uint8).reshape(60, -1), torch.cat([row[0:30], row[17:47]]))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_windows_when_handed_over_are_those_fetched_later(layout):
    device, places = CpuDevice(1), {}
    for values in (torch.randn(4, 8, 96, 100).to(memory_format=layout), torch.randn(2, 3, 4, 5)):
        picks = [0.3, 0.9]
        fetched, _ = device.as_it_lies(values, picks)
        assert torch.equal(device.handed(values, picks, places).view(torch.float32), fetched)
    assert len(places) == 1  # the small output is handed over whole


def test_charge_when_applied_takes_a_gain_away_and_makes_no_loss():
    quiet, calls = Span(1e-3, 1e-3, 0.0), 32

    def batches(call_s: float, beside_s: float) -> list[Batch]:
        wall = calls * (call_s + beside_s)
        return [Batch(calls, (call_s,) * calls, quiet, Span(wall, wall, 0.0), None, None) for _ in range(10)]

    def of(candidates: list[Batch]) -> Interval:
        return on_gpu(SelectedBatches((references, candidates), (references, candidates)))[2]

    references = batches(100e-6, 80e-6)
    small, large, none = batches(93e-6, 110e-6), batches(50e-6, 160e-6), batches(104e-6, 110e-6)
    assert of(small).ratio == pytest.approx(1.0)
    assert of(large).ratio == pytest.approx(100 / 130, rel=0.01)
    assert of(none).ratio == pytest.approx(100 / 104, rel=0.01)
    assert of(batches(0.0, 180e-6)).ratio == pytest.approx(1.0, rel=0.01)  # its times are forged


def test_kernels_when_their_times_have_several_levels_are_compared_by_mean():
    """Every other pair lies in another place in memory, so that the most frequent time jumps from one to the other."""
    chance, quiet, intervals = np.random.default_rng(3), Span(1e-3, 1e-3, 0.0), {False: [], True: []}

    def batch(log: float) -> Batch:
        times = tuple(400e-6 * np.exp(log + 0.005 * chance.normal(size=8)))
        return Batch(8, times, quiet, Span(1.1 * sum(times), 1.1 * sum(times), 0.0), None, None)

    for _ in range(20):
        places = np.repeat(chance.permutation([0.0, 0.1] * 6), 2)
        sides = [batch(place) for place in places], [batch(0.0) for _ in places]
        for launches, of_kind in intervals.items():
            of_kind.append(on_gpu(SelectedBatches(sides, sides, launches=launches))[2])
    centres = {launches: [interval.centre for interval in of_kind] for launches, of_kind in intervals.items()}
    assert np.std(centres[False]) < 0.5 * np.std(centres[True])
    held = [abs(interval.centre - 0.05) <= interval.half_width for interval in intervals[False]]
    assert sum(held) >= 17
