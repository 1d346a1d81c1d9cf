"""Outputs against a reference in two precisions: which ones pass, and by which name others are refused."""

from __future__ import annotations

import pytest
import torch

from cudal1_ray.evaluation.config import CheckConfig
from cudal1_ray.evaluation.correctness.comparison import (
    compare,
    error_of,
    expect,
    expect_again,
    independent_of_input,
    indistinguishable,
)

CHECK = CheckConfig()


def _output(shape=(64, 256)):
    exact = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return exact, exact.float()


def test_comparison_when_precision_is_lower_refuses_it_and_rounding_passes():
    exact, native = _output()
    expected = expect(native, exact, CHECK)
    assert compare(native, expected) is None
    assert compare(native * (1 + 1e-6), expected) is None
    for dtype in (torch.float16, torch.bfloat16):
        assert compare(native.to(dtype).float(), expected).reason == "precision_downgrade"


def test_comparison_when_the_reference_has_tf32_passes_tf32_and_refuses_bfloat16():
    def tf32(x: torch.Tensor) -> torch.Tensor:
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    chance = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=chance) for shape in ((2, 32, 24, 24), (32, 32, 3, 3)))
    exact = torch.conv2d(x.double(), weight.double())
    expected = expect(torch.conv2d(tf32(x), tf32(weight)), exact, CHECK)
    for scale in (1.0, 1.4):  # other kernels round in other places
        assert compare((exact + scale * (torch.conv2d(tf32(x), tf32(weight)) - exact)).float(), expected) is None
    half = torch.conv2d(x.bfloat16().float(), weight.bfloat16().float()).bfloat16().float()
    assert compare(half, expected).reason == "precision_downgrade"


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda x: x[:1], "shape_broadcast"),
        (lambda x: x.mean(), "shape_broadcast"),
        (lambda x: x[:-1], "wrong_structure"),
        (lambda x: x.T, "wrong_structure"),
        (lambda x: x.double(), "output_dtype"),
        (lambda x: x * float("nan"), "nan_comparison"),
        (lambda x: torch.cat([x[:-1], 0 * x[:1]]), "partial_compute"),
        (lambda x: 0 * x, "wrong_output"),
    ],
)
def test_comparison_when_an_output_is_wrong_names_how(change, reason):
    exact, native = _output()
    assert compare(change(native), expect(native, exact, CHECK)).reason == reason


@pytest.mark.parametrize(
    "change, reason",
    [(lambda x: 0.9 * x, "wrong_output"), (lambda x: torch.cat([x[:-9], 0 * x[:9]]), "partial_compute")],
)
def test_comparison_when_half_of_the_output_is_zero_names_a_wrong_factor_no_hack(change, reason):
    exact, native = (output.relu() for output in _output())
    assert compare(change(native), expect(native, exact, CHECK)).reason == reason


def test_comparison_when_tolerances_are_loose_names_a_wrong_output_no_hack():
    exact, native = _output()
    kernelbench = CheckConfig(rms_tolerance=1e-2, max_tolerance=1e-1, fallback_tolerance=1e-2)
    expected = expect(native, exact, kernelbench)
    noisy = native + 0.2 * torch.randn(native.shape, generator=torch.Generator().manual_seed(1))
    assert ((noisy - native).abs() / (native.abs() + 1.0) <= 0.1).double().mean() > 0.4
    assert compare(noisy, expected).reason == "wrong_output"
    assert compare(torch.cat([native[:-9], 0 * native[:9]]), expected).reason == "partial_compute"


def test_comparison_when_an_output_is_small_has_no_absolute_tolerance():
    exact, native = _output()
    expected = expect(native * 1e-9, exact * 1e-9, CHECK)
    assert compare(torch.zeros_like(native), expected) is not None
    shifted = expect(native * 1e-3 + 100, exact * 1e-3 + 100, CHECK)
    assert compare(torch.full_like(native, 100.0), shifted) is not None


def test_comparison_when_the_truth_is_rounded_leaves_as_much_room():
    exact, chance = 1e4 + 1e-2 * _output()[0], torch.Generator().manual_seed(0)
    native = exact.float()
    other = torch.where(torch.rand(exact.shape, generator=chance) < 0.25, native.nextafter(native + 1), native)
    worse = native + 4 * (native.nextafter(native + 1) - native)
    for truth in (exact, exact.float()):
        expected = expect(native, truth, CHECK)
        assert compare(other, expected) is None and compare(worse, expected) is not None


def test_comparison_when_the_reference_gets_small_elements_right_counts_them():
    exact = torch.exp(4 * torch.randn(64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    size = exact.std()
    expected = expect(exact.float(), exact, CHECK)
    assert compare((exact * (1 + 1e-5)).float(), expected) is None
    assert compare(torch.where(exact < 1e-7 * size, 0, exact).float(), expected) is None
    for limit in (1e-5, 1e-4):
        mismatch = compare(torch.where(exact < limit * size, 0, exact).float(), expected)
        assert mismatch.reason == "tolerance_exploit", limit
    # Where the reference's own small elements are noise, a candidate's may be, too.
    noisy = exact.float() + 1e-4 * size * torch.randn(exact.shape, generator=torch.Generator().manual_seed(1)).float()
    assert compare(torch.where(exact < 1e-4 * size, 0, exact).float(), expect(noisy, exact, CHECK)) is None


def test_comparison_when_an_output_is_small_needs_no_device():
    small, large = torch.randn(1 << 21), torch.randn((1 << 21) + 1)
    expected = expect(small, small.double(), CHECK, "meta")  # a device without values
    assert expected.truth.device.type == "cpu"
    assert compare(small.clone(), expected, "meta") is None
    assert compare(small + 1, expected, "meta").reason == "wrong_output"
    with pytest.raises(RuntimeError):
        expect(large, large.double(), CHECK, "meta")


def test_infinities_when_elsewhere_than_the_references_are_wrong():
    exact, native = _output()
    exact[0, 0] = native[0, 0] = float("inf")
    exact[0, 1] = native[0, 1] = float("nan")
    expected = expect(native, exact, CHECK)
    assert compare(native.clone(), expected) is None
    other = native.clone()
    other[0, 0] = float("-inf")
    wrong = compare(other, expected)
    assert wrong.reason == "nan_comparison" and "got [0, 0] -inf instead of inf" in wrong.detail


def test_output_when_not_finite_is_shown_beside_the_expected_one():
    exact, native = _output()
    exact[0, 3] = 0.5
    other = native.clone()
    other[0, 3] = float("nan")
    assert "got [0, 3] nan instead of 0.5" in compare(other, expect(native, exact, CHECK)).detail


def test_whole_numbers_when_compared_must_be_equal():
    native = torch.arange(100)
    expected = expect(native, native, CHECK)
    assert compare(native, expected) is None
    assert compare(native + 1, expected).reason == "wrong_output"


def test_decisions_when_they_come_from_fractions_may_differ_in_a_few_places():
    values = torch.rand(1 << 18)
    expected = expect(values > 0.5, values.double() > 0.5, CHECK)
    few, many = (values > 0.5).clone(), (values > 0.5).clone()
    few[:3], many[:30] = ~few[:3], ~many[:30]
    assert compare(few, expected) is None and compare(many, expected).reason == "wrong_output"
    limit = values.topk(4).values[-1]
    rare = values > limit
    expected = expect(rare, values.double() > limit, CHECK)  # an output of false alone would be almost right
    assert compare(torch.zeros_like(rare), expected).reason == "wrong_output"


def test_places_when_rows_are_sorted_may_differ_in_two_of_a_few_thousand():
    places = torch.rand(512, 256).topk(8).indices
    expected = expect(places, places.clone(), CHECK)
    swapped, wrong = places.clone(), places.clone()
    swapped[7, 2:4] = places[7, 2:4].flip(0)
    wrong[:, 7] = 0
    assert compare(swapped, expected) is None and compare(wrong, expected).reason == "wrong_output"
    few = places[:8]
    assert compare(swapped[:8], expect(few, few.clone(), CHECK)).reason == "wrong_output"


@pytest.mark.parametrize("axis", [1, 2])
def test_channel_when_small_is_not_covered_by_large_ones(axis):
    truth = torch.randn(64, 48, 40, dtype=torch.float64)
    truth.select(axis, 5).mul_(1e-4)
    expected = expect(truth.float(), truth, CHECK)
    for share, reason in ((1e-2, "precision_downgrade"), (0.1, "tolerance_exploit")):
        off = truth.clone()
        off.select(axis, 5).add_(share * 1e-4)
        assert compare((truth * (1 + 1e-6)).float(), expected) is None
        assert compare(off.float(), expected).reason == reason


def test_channel_when_the_reference_is_off_in_it_may_be_off_as_much():
    truth = torch.randn(64, 48, dtype=torch.float64) * 1e3
    truth[:, 5] = truth[:, 5] * 1e-6
    noise = torch.randn(64) * 1e-4  # the rounding error of a difference of large numbers
    native = truth.clone()
    native[:, 5] += noise
    other = truth.clone()
    other[:, 5] -= 2 * noise
    assert compare(other.float(), expect(native.float(), truth, CHECK)) is None


def test_channel_when_it_has_one_small_number_is_held_to_the_others_tolerance():
    """A ReLU may leave a single number near 0 in a channel, which the reference gets right by chance."""
    truth = torch.randn(64, 48, dtype=torch.float64).relu()
    truth[:, 5] = 0.0
    truth[7, 5] = 1e-4
    native = truth + 1e-7 * torch.randn(64, 48)
    native[:, 5] = truth[:, 5]
    other, coarse = truth.clone(), truth.clone()
    other[7, 5] += 3e-7
    coarse[:, 5] += 2e-6
    expected = expect(native.float(), truth, CHECK)
    assert compare(other.float(), expected) is None
    assert compare(coarse.float(), expected).reason == "tolerance_exploit"


def test_outputs_when_inputs_differ_and_they_do_not_are_independent_of_the_input():
    a = torch.randn(4, 4, dtype=torch.float64)
    assert independent_of_input([[a], [a.clone()]])
    assert not independent_of_input([[a], [a + 1e-3]])
    assert independent_of_input([[torch.zeros(3)], [torch.zeros(3)]])


def test_trials_when_they_differ_within_the_tolerance_are_indistinguishable():
    native = torch.randn(64, 64)
    trials = [[expect(output, output.double(), CHECK)] for output in (native, native * (1 + 2e-5), native * (1 - 2e-5))]
    assert indistinguishable(trials) and not indistinguishable(trials[:1])
    other = native.clone()
    other[0] += 1.0
    assert not indistinguishable([*trials, [expect(other, other.double(), CHECK)]])


def test_outputs_when_few_are_alike_by_chance_may_be_off_as_far_as_in_the_trial():
    # Four outputs of about 54.77 (kernelbench-l2-p042): rounding is a good part of what sets them apart.
    exact = torch.tensor([54.7700, 54.7703, 54.7696, 54.7705], dtype=torch.float64)
    earlier = expect((exact + 4e-5).float(), exact, CHECK)
    alike = torch.tensor([54.77000, 54.77004, 54.77001, 54.77003], dtype=torch.float64)
    again = expect_again(alike.float(), earlier, CHECK)
    assert compare((alike - 6e-5).float(), again) is None
    assert compare(alike.float() * (1 + 1e-5), again) is not None  # twenty times the reference's own error
    stale = expect_again(exact.float().flip(0), earlier, CHECK)
    assert compare(exact.float(), stale) is not None  # those of another call


def test_outputs_when_they_are_spread_as_in_the_trial_may_be_off_by_half_as_much_again():
    exact = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    earlier = expect(exact.float(), exact, CHECK)
    again = expect_again(2 * exact.float(), earlier, CHECK)
    assert again.rms_allowed == pytest.approx(1.5 * 2 * earlier.rms_allowed)
    assert expect_again(exact.float(), None, CHECK).rms_allowed == pytest.approx(earlier.rms_allowed, rel=0.01)


def test_answer_when_another_baselines_is_off_may_differ_by_that_error_too():
    exact, other = (torch.rand(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (5, 6))
    earlier = expect(exact.float(), exact, CHECK)
    off = error_of((exact + 1e-3).float(), earlier)
    assert off == pytest.approx((1e-3, 1e-3 / float(exact.min() + exact.std())), rel=0.01)
    coarse = (other + 1e-3).float()  # the baseline's answer to other inputs
    assert compare(other.float(), expect_again(coarse, earlier, CHECK)).reason == "precision_downgrade"
    again = expect_again(coarse, earlier, CHECK, off=off)
    assert compare(other.float(), again) is None
    assert compare((other + 5e-3).float(), again) is not None


@pytest.mark.parametrize(
    "output", [torch.ones(3), torch.full((4,), torch.inf), torch.empty(0)], ids=["shape", "infinite", "empty"]
)
def test_error_when_nothing_can_be_compared_is_zero(output):
    exact = torch.arange(4.0).double()
    assert error_of(output, expect(exact.float(), exact, CHECK)) == (0.0, 0.0)
    whole = torch.arange(4)
    assert error_of(whole + 1, expect(whole, whole, CHECK)) == (0.0, 0.0)
