"""The parts that are pure functions: verdicts, statistics, comparison, static checks, clocks, weights."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.evaluation.config import CheckConfig, EvaluationConfig, TimingConfig
from cudal1_ray.evaluation.exchange.messages import Fetch, read_answer
from cudal1_ray.evaluation.inside.memory import writes_recurrence
from cudal1_ray.evaluation.inside.places import in_order, put_in_order
from cudal1_ray.evaluation.inside.state import load_state, randomise_weights
from cudal1_ray.evaluation.reasons import DESCRIPTIONS, HACKS, POLICY, describe
from cudal1_ray.evaluation.referee.comparison import compare, expect, independent_of_input, indistinguishable
from cudal1_ray.evaluation.rules import check_static
from cudal1_ray.evaluation.timing.clocks import (
    Batch,
    Foreknown,
    Overhead,
    Span,
    outside,
    too_much_outside,
    trailing,
    uneven,
    windows,
)
from cudal1_ray.evaluation.timing.measurement import Measurement, combine, wants_another, wants_fresh_reference
from cudal1_ray.evaluation.timing.statistics import Interval, median, trimmed_interval
from cudal1_ray.evaluation.verdict import ProcessPair, Verdict

CHECK = CheckConfig()


def test_a_verdict_survives_json():
    processes = (ProcessPair(2.0, 0.01, 1.0, 2.0), ProcessPair(1.8, 0.01, 1.0, 1.8, 30.0, counted=False))
    verdict = Verdict(
        "p", "accepted", (), "", 2.0, 1.9, 2.1, 2.0, 1.0, 2.0, 40, "cpu", 0.3, "abc", (2.0, 2.0), processes=processes
    )
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    assert Verdict.from_dict({**verdict.to_dict(), "of_a_later_version": 1}) == verdict


def test_a_rejection_is_never_credited():
    verdict = Verdict.rejected("p", "crash", "line\nline", speedup=9.0, credited_speedup=9.0)
    assert not verdict.accepted and verdict.credited_speedup == 0.0 and verdict.detail == "line line"
    assert HACKS | POLICY <= set(DESCRIPTIONS) and not HACKS & POLICY
    assert describe("crash") != "crash" and describe("new") == "new"


def test_kind_of_a_verdict_follows_from_its_reasons():
    kinds = {reason: Verdict.rejected("p", reason).kind for reason in ("crash", "result_cache", "silent_fallback")}
    assert kinds == {"crash": "failure", "result_cache": "hack", "silent_fallback": "policy"}
    assert Verdict("p", "accepted").kind == "" and Verdict.rejected("p", ()).kind == "failure"
    assert Verdict.rejected("p", ("silent_fallback", "crash")).kind == "failure"
    assert Verdict.rejected("p", ("crash", "result_cache")).kind == "hack"
    assert Verdict.rejected("p", "of_a_later_version").to_dict()["kind"] == "failure"


def test_verdict_of_an_earlier_version_is_read_with_defaults():
    written = Verdict("p", "accepted", flags=("same_operations",), own_kernel=True, own_kernel_share=0.5).to_dict()
    assert Verdict.from_dict(written).same_operations and Verdict.from_dict(written).own_kernel_share == 0.5
    for name in ("flags", "own_kernel", "own_kernel_share", "kind"):
        del written[name]
    assert Verdict.from_dict(written) == Verdict("p", "accepted")


def test_configuration_and_verdict_import_without_torch():
    code = "import sys, cudal1_ray.evaluation as e; e.EvaluationConfig(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize(
    "said, less_exact",
    [
        ("b.cudnn.conv.fp32_precision = 'ieee'; b.cudnn.rnn.fp32_precision = 'ieee'", (False, False)),
        ("b.cudnn.fp32_precision = 'ieee'", (False, False)),
        ("b.fp32_precision = 'ieee'", (False, False)),
        ("b.cudnn.allow_tf32 = False", (False, False)),
        ("pass", (False, True)),  # torch's own default
        ("b.cudnn.fp32_precision = 'tf32'", (False, True)),
        ("b.cuda.matmul.allow_tf32 = True", (True, True)),
        ("b.cuda.matmul.fp32_precision = 'tf32'", (True, True)),
        ("b.cuda.matmul.fp32_precision = 'none'; b.fp32_precision = 'tf32'", (True, True)),
    ],
)
def test_tf32_is_seen_by_whatever_name_it_was_switched(said, less_exact):
    code = (
        "import torch; torch.set_float32_matmul_precision('highest'); b = torch.backends\n"
        f"{said}\n"
        "from cudal1_ray.evaluation.inside.cuda_device import tf32_products as found; print(*found().values())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.split() == [str(one) for one in less_exact], answer.stderr


def test_the_configuration_is_structured():
    from omegaconf import OmegaConf

    made = OmegaConf.merge(OmegaConf.structured(EvaluationConfig), {"timing": {"half_width": 0.5}})
    assert OmegaConf.to_object(made).timing.half_width == 0.5


@given(st.floats(-1, 1), st.floats(0.001, 0.2), st.integers(8, 200))
@settings(max_examples=60, deadline=None)
def test_the_interval_covers_and_outliers_leave_it(centre, noise, n):
    chance = random.Random(7)
    values = [chance.gauss(centre, noise) for _ in range(n)]
    clean = trimmed_interval(values)
    assert abs(clean.centre - centre) < 5 * noise / math.sqrt(n) + 1e-9
    spoiled = trimmed_interval(values[:-1] + [50.0])
    assert abs(spoiled.centre - clean.centre) < 4 * noise / math.sqrt(n) + 0.5 * noise


def test_few_values_are_never_sure():
    assert trimmed_interval([0.1, 0.1]).half_width == math.inf
    assert median([]) == 0.0 and median([3.0, 1.0, 2.0]) == 2.0


def _output(shape=(64, 256)):
    exact = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return exact, exact.float()


def test_rounding_passes_and_lower_precision_does_not():
    exact, native = _output()
    wanted = expect(native, exact, CHECK)
    assert compare(native, wanted) is None
    assert compare(native * (1 + 1e-6), wanted) is None
    for dtype in (torch.float16, torch.bfloat16):
        assert compare(native.to(dtype).float(), wanted).reason == "precision_downgrade"


def test_a_reference_in_tf32_lets_tf32_pass_and_not_bfloat16():
    def tf32(x: torch.Tensor) -> torch.Tensor:
        return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)

    chance = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=chance) for shape in ((2, 32, 24, 24), (32, 32, 3, 3)))
    exact = torch.conv2d(x.double(), weight.double())
    wanted = expect(torch.conv2d(tf32(x), tf32(weight)), exact, CHECK)
    for scale in (1.0, 1.4):  # other kernels round at other places
        assert compare((exact + scale * (torch.conv2d(tf32(x), tf32(weight)) - exact)).float(), wanted) is None
    half = torch.conv2d(x.bfloat16().float(), weight.bfloat16().float()).bfloat16().float()
    assert compare(half, wanted).reason == "precision_downgrade"


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda x: x[:1], "shape_broadcast"),
        (lambda x: x.double(), "output_dtype"),
        (lambda x: x * float("nan"), "nan_comparison"),
        (lambda x: torch.cat([x[:-1], 0 * x[:1]]), "partial_compute"),
        (lambda x: 0 * x, "wrong_output"),
    ],
)
def test_wrong_outputs_have_names(change, reason):
    exact, native = _output()
    assert compare(change(native), expect(native, exact, CHECK)).reason == reason


def test_a_small_output_is_not_covered_by_an_absolute_tolerance():
    exact, native = _output()
    wanted = expect(native * 1e-9, exact * 1e-9, CHECK)
    assert compare(torch.zeros_like(native), wanted) is not None
    shifted = expect(native * 1e-3 + 100, exact * 1e-3 + 100, CHECK)
    assert compare(torch.full_like(native, 100.0), shifted) is not None


def test_a_truth_that_is_rounded_leaves_as_much_room_as_an_exact_one():
    exact, chance = 1e4 + 1e-2 * _output()[0], torch.Generator().manual_seed(0)
    native = exact.float()
    other = torch.where(torch.rand(exact.shape, generator=chance) < 0.25, native.nextafter(native + 1), native)
    worse = native + 4 * (native.nextafter(native + 1) - native)
    for truth in (exact, exact.float()):
        wanted = expect(native, truth, CHECK)
        assert compare(other, wanted) is None and compare(worse, wanted) is not None


def test_small_elements_count_where_the_reference_gets_them_right():
    exact = torch.exp(4 * torch.randn(64, 256, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    size = exact.std()
    wanted = expect(exact.float(), exact, CHECK)
    assert compare((exact * (1 + 1e-5)).float(), wanted) is None
    assert compare(torch.where(exact < 1e-7 * size, 0, exact).float(), wanted) is None
    for limit in (1e-5, 1e-4):
        found = compare(torch.where(exact < limit * size, 0, exact).float(), wanted)
        assert found.reason == "tolerance_exploit", limit
    # Where the reference's own are noise, none is asked for better ones.
    noisy = exact.float() + 1e-4 * size * torch.randn(exact.shape, generator=torch.Generator().manual_seed(1)).float()
    assert compare(torch.where(exact < 1e-4 * size, 0, exact).float(), expect(noisy, exact, CHECK)) is None


def test_a_small_output_needs_no_device_to_be_compared():
    small, large = torch.randn(1 << 21), torch.randn((1 << 21) + 1)
    wanted = expect(small, small.double(), CHECK, "meta")  # where nothing has a value
    assert wanted.truth.device.type == "cpu"
    assert compare(small.clone(), wanted, "meta") is None
    assert compare(small + 1, wanted, "meta").reason == "wrong_output"
    with pytest.raises(RuntimeError):
        expect(large, large.double(), CHECK, "meta")


def test_infinities_must_lie_where_the_reference_has_them():
    exact, native = _output()
    exact[0, 0] = native[0, 0] = float("inf")
    exact[0, 1] = native[0, 1] = float("nan")
    wanted = expect(native, exact, CHECK)
    assert compare(native.clone(), wanted) is None
    other = native.clone()
    other[0, 0] = float("-inf")
    assert compare(other, wanted).reason == "nan_comparison"


def test_whole_numbers_are_compared_exactly():
    native = torch.arange(100)
    wanted = expect(native, native, CHECK)
    assert compare(native, wanted) is None
    assert compare(native + 1, wanted).reason == "wrong_output"


def test_a_few_decisions_may_fall_otherwise_where_they_come_from_fractions():
    values = torch.rand(1 << 18)
    wanted = expect(values > 0.5, values.double() > 0.5, CHECK)
    few, many = (values > 0.5).clone(), (values > 0.5).clone()
    few[:3], many[:30] = ~few[:3], ~many[:30]
    assert compare(few, wanted) is None and compare(many, wanted).reason == "wrong_output"
    limit = values.topk(4).values[-1]
    rare = values > limit
    wanted = expect(rare, values.double() > limit, CHECK)  # to say no to all would be almost right
    assert compare(torch.zeros_like(rare), wanted).reason == "wrong_output"


def test_of_a_few_thousand_places_in_sorted_rows_two_may_have_changed():
    places = torch.rand(512, 256).topk(8).indices
    wanted = expect(places, places.clone(), CHECK)
    swapped, wrong = places.clone(), places.clone()
    swapped[7, 2:4] = places[7, 2:4].flip(0)
    wrong[:, 7] = 0
    assert compare(swapped, wanted) is None and compare(wrong, wanted).reason == "wrong_output"
    few = places[:8]
    assert compare(swapped[:8], expect(few, few.clone(), CHECK)).reason == "wrong_output"


@pytest.mark.parametrize("axis", [1, 2])
def test_a_small_channel_is_not_covered_by_large_ones(axis):
    truth = torch.randn(64, 48, 40, dtype=torch.float64)
    truth.select(axis, 5).mul_(1e-4)
    wanted = expect(truth.float(), truth, CHECK)
    for share, reason in ((1e-2, "precision_downgrade"), (0.1, "tolerance_exploit")):
        off = truth.clone()
        off.select(axis, 5).add_(share * 1e-4)
        assert compare((truth * (1 + 1e-6)).float(), wanted) is None
        assert compare(off.float(), wanted).reason == reason


def test_a_channel_may_be_off_as_the_reference_is():
    truth = torch.randn(64, 48, dtype=torch.float64) * 1e3
    truth[:, 5] = truth[:, 5] * 1e-6
    noise = torch.randn(64) * 1e-4  # what a difference of large numbers leaves
    native = truth.clone()
    native[:, 5] += noise
    other = truth.clone()
    other[:, 5] -= 2 * noise
    assert compare(other.float(), expect(native.float(), truth, CHECK)) is None


def test_a_channel_with_one_small_number_is_held_to_no_more_than_the_others():
    """What a ReLU leaves of a channel may be a single number near 0, which the reference gets right by chance."""
    truth = torch.randn(64, 48, dtype=torch.float64).relu()
    truth[:, 5] = 0.0
    truth[7, 5] = 1e-4
    native = truth + 1e-7 * torch.randn(64, 48)
    native[:, 5] = truth[:, 5]
    other, coarse = truth.clone(), truth.clone()
    other[7, 5] += 3e-7
    coarse[:, 5] += 2e-6
    wanted = expect(native.float(), truth, CHECK)
    assert compare(other.float(), wanted) is None
    assert compare(coarse.float(), wanted).reason == "tolerance_exploit"


def test_independence_of_the_input():
    a = torch.randn(4, 4, dtype=torch.float64)
    assert independent_of_input([[a], [a.clone()]])
    assert not independent_of_input([[a], [a + 1e-3]])
    assert independent_of_input([[torch.zeros(3)], [torch.zeros(3)]])


def test_what_the_tolerance_cannot_tell_apart_is_indistinguishable():
    native = torch.randn(64, 64)
    trials = [[expect(one, one.double(), CHECK)] for one in (native, native * (1 + 2e-5), native * (1 - 2e-5))]
    assert indistinguishable(trials) and not indistinguishable(trials[:1])
    other = native.clone()
    other[0] += 1.0
    assert not indistinguishable([*trials, [expect(other, other.double(), CHECK)]])


HONEST_SNIPPETS = [
    "import os\nos.environ['MAX_JOBS'] = '4'",
    "try:\n    import triton\nexcept ImportError:\n    triton = None",
    "g = torch.cuda.CUDAGraph()\ns = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())",
    "f = torch.compile(lambda x: x, mode='max-autotune')",
    "torch.backends.cudnn.benchmark = True",
    "def launch(x):\n    kernel(x.data_ptr(), x.numel())",
    "cache = {}\ncache[(3, 4)] = 1",
    "x = getattr(torch, 'float32')",
    "import math\nfrom functools import lru_cache",
    "SRC = '#include <torch/extension.h>\\ntorch::Tensor f(torch::Tensor x) { return x.detach().clone(); }'",
    "import torch._inductor.config\ntorch._inductor.config.triton.cudagraphs = False",
    "class Block(nn.Module):\n    def forward(self, x):\n        return x",
]


@pytest.mark.parametrize("snippet", HONEST_SNIPPETS)
def test_the_gate_lets_honest_code_pass(snippet):
    code = f"import torch\nimport torch.nn as nn\n{snippet}\n\nclass ModelNew(nn.Module):\n    pass\n"
    assert check_static(code).refusal is None


def test_a_renamed_reference_is_seen_through():
    assert check_static("x" * (2 << 20)).refusal.reason == "resource_exhaustion"
    assert check_static("(" * 3000).refusal.reason == "unparsable"


def _batches(window, *, prepare=1e-3, fetch=1e-3, idle=0.0, wall=None, n=8):
    def span(cpu):
        return Span(cpu if wall is None else wall, cpu, 0.0)

    quiet = Span(prepare, prepare, 0.0)
    rest = (quiet, span(window), Span(fetch, fetch, 0.0), Span(idle, idle, 0.0))
    return [Batch(4, (window / 4,) * 4, *rest) for _ in range(n)]


NO_OVERHEAD = Overhead(0.0, 0.0)


def test_work_outside_the_window_is_found():
    honest = _batches(4e-3)
    for hidden, where in (({"prepare": 4e-3}, "before"), ({"idle": 4e-3}, "between")):
        found = outside(honest, _batches(1e-4, **hidden), 1e-4 / 4, "cpu")
        assert where in found.where
        assert found.per_batch > 2e-3
        assert too_much_outside(found, 1e-4)
    late = outside(honest, _batches(1e-4, fetch=3e-3), 1e-4 / 4, "cpu")
    assert "looking at an output" in too_much_outside(late, 1e-4)
    fair = outside(honest, _batches(2e-3), 2e-3 / 4, "cpu")
    assert fair.per_batch == 0.0 and not too_much_outside(fair, 2e-3)


def test_a_thread_that_keeps_the_main_one_waiting_hides_nothing_on_a_gpu():
    def prepared(cpu, waiting):
        return [replace(batch, prepare=Span(1e-3 + waiting, cpu, waiting)) for batch in _batches(4e-3)]

    honest = _batches(4e-3)
    assert outside(honest, prepared(1e-3, 5e-3), 1e-3, "cuda").per_batch == 0.0  # another program had the core
    assert outside(honest, prepared(6e-3, 5e-3), 1e-3, "cuda").per_batch > 4e-3


def test_what_a_thread_that_nobody_waits_for_leaves_over_is_charged_batch_by_batch():
    """It ends within fewer than half of the windows, after others, and no median shows where."""
    quiet, left = _batches(4e-3)[0], 1.5e-3
    late = Span(left, left, 0.0)
    unseen, following = replace(quiet, fetch=None), replace(quiet, idle=late)
    references = [quiet] * 12
    early = replace(quiet, window=Span(2.5e-3, 2.5e-3, 0.0))
    looked = replace(early, fetch=Span(1e-3 + left, 1e-3 + left, 0.0), looked=1)
    prepared = replace(unseen, prepare=Span(1e-3 + left, 1e-3 + left, 0.0))
    candidates = [early, following, looked, quiet, early, prepared, *[unseen] * 6]
    assert outside(references, candidates, 1e-3, "cpu").per_batch == 0.0
    charged = trailing(references, candidates)
    assert [number for number, time_s in enumerate(charged) if time_s] == [0, 2, 4]
    assert [charged[0], charged[2], charged[4]] == pytest.approx([1.45e-3, 1.3e-3, 1.3e-3])
    assert trailing(references, [replace(quiet, looked=1)] * 12) == [0.0] * 12
    unknown = replace(prepared, idle=None)  # something else came between
    assert trailing(references[:2], [early, unknown]) == [0.0, 0.0]
    layout = replace(quiet, looked=1, windowed=True, fetch=Span(1.4e-3, 1.4e-3, 0.0))
    assert trailing(references, [layout] * 12) == [0.0] * 12


def test_a_few_calls_that_do_the_work_of_many_count_as_much_as_these():
    def batches(times):
        return [replace(batch, calls=len(times), times=times) for batch in _batches(1e-3, n=12)]

    references = batches((100e-6,) * 9 + (300e-6,))
    assert uneven(references, batches((50e-6,) * 9 + (150e-6,)), 2.0) == 0.0
    assert uneven(references, batches((50e-6,) * 6 + (180e-6,) * 4), 2.0) == pytest.approx(42e-6, rel=0.05)
    assert uneven(references, batches((50e-6,) * 10), 2.0) == 0.0  # it is better than that


def test_a_measurement_takes_more_processes_where_a_percent_matters():
    timing = TimingConfig(
        half_width=0.008, half_width_growth=0.04, contestants=1, most_contestants=4, process_spread=0.0045,
        launch_spread_us=1.0,
    )  # fmt: skip

    def processes(reference_ms, *centres, own=0.005):
        """How many are taken when they show these speedups, again and again the last."""
        parts = []
        while wants_another(parts, timing):
            log = math.log([*centres, *centres[-1:] * 20][len(parts)])
            parts.append(Measurement(Interval(log, own, 20), 1.0, reference_ms, 20, 1, (log,)))
        return len(parts)

    assert processes(1.0, 2.0) == 1
    assert processes(1.0, 1.0) == 2
    assert processes(0.02, 2.0) == 2 and processes(0.02, 4.0) == processes(0.02, 0.5) == 1  # a slow core
    assert processes(0.02, 1.0) == 4
    assert processes(1.0, 1.0, 1.2) == 4  # two that disagree
    assert processes(1.0, 0.2) == 2 and processes(1.0, 0.02, 1.0) == 4  # one that is slow beyond belief
    timing.most_near_1 = 16
    assert processes(0.02, 1.003) == 4
    assert processes(0.02, 1.012) == 12 and processes(0.02, 0.988) == 4  # is that gain more than chance?
    assert processes(0.02, 1.012, 1.012, 1.0) == 4  # it was not
    assert processes(0.02, 1.04) == processes(0.02, 0.96) == processes(0.02, 1.06) == 4  # it is
    assert processes(40.0, 1.012, own=0.03) == 8 and processes(40.0, 0.988, own=0.03) == 4  # long calls differ
    assert processes(0.02, 4.0) == 1
    timing.most_half_width = 0.0144
    assert processes(0.02, 4.0) == processes(0.02, 1.2) == 4 and processes(1.0, 4.0) == 1  # twice the same within 2%
    timing.half_width_growth, timing.most_half_width = 0.2, 1.0
    assert processes(1.0, 1.04) == 2 and processes(1.0, 1.2) == 1  # chance makes four percent, too
    assert processes(1.0, 1.08) == 2 and processes(1.0, 1.08, 0.93) == 4  # and now and then a tenth
    assert not wants_fresh_reference([], timing)
    one = Measurement(Interval(0.01, 0.005, 20), 0.02, 0.02, 20, 1, (0.01,))
    assert wants_fresh_reference([one], timing)
    assert wants_fresh_reference([replace(one, reference_ms=2.0)], timing)  # it may be where its tensors lie
    assert not wants_fresh_reference([replace(one, reference_ms=2.0, interval=Interval(0.004, 0.005, 20))], timing)
    assert wants_fresh_reference([replace(one, interval=Interval(0.4, 0.005, 20))], timing)  # launches, at any gain
    assert not wants_fresh_reference([replace(one, reference_ms=2.0, interval=Interval(0.4, 0.005, 20))], timing)
    doubtful = replace(one, interval=Interval(0.9, 0.3, 20), steady=False)
    assert wants_another([doubtful], timing)  # a slow core, or others at work: its speedup is no reason to stop
    assert combine([doubtful, one, one], timing).interval.centre == pytest.approx(0.01)
    assert combine([replace(doubtful, disturbed=True), one], timing).interval.centre == pytest.approx(0.01)
    assert combine([doubtful, one], timing).interval.low < 1.01 < combine([doubtful, one], timing).interval.high
    quick, slow = (
        replace(one, beside_s=beside_s, interval=Interval(log, 0.005, 20))
        for beside_s, log in ((75e-6, 0.2), (89e-6, 0.3))
    )
    mixed = combine([slow, quick, slow, quick], timing)
    assert mixed.interval.centre == pytest.approx(0.2)  # others' cores were slow
    assert [pair.counted for pair in mixed.processes] == [False, True, False, True]
    assert mixed.processes[0].speedup == slow.interval.ratio
    assert mixed.device_speedup == 0.0  # it was not measured
    alone = [replace(quick, device_s=(3e-6, time_s)) for time_s in (1e-6, 2e-6, 0.0)]  # the last one's is forged
    assert combine(alone, timing).device_speedup == pytest.approx(math.sqrt(3 * 1.5))
    assert combine(alone, timing).processes[1].device_runtime_ms == pytest.approx(2e-3)
    assert wants_another([slow, quick, slow, slow], timing)  # only one was on a fast one
    assert not wants_another([slow, quick, slow, slow, quick], timing)
    assert not wants_another([slow, quick, *[slow] * 14], timing)
    assert combine([slow, slow], timing).interval.centre == pytest.approx(0.3)
    hidden = replace(one, reference_ms=1.3 * one.reference_ms, interval=Interval(0.3, 0.005, 20))
    assert combine([quick, hidden, quick], timing).interval.centre == pytest.approx(0.2)  # its reference was slow, too
    kernels = [replace(part, reference_ms=50 * part.reference_ms) for part in (hidden, quick)]
    assert combine(kernels, timing).interval.centre == pytest.approx(0.25)  # nothing that a core does
    timing.contestants, timing.most_contestants = 3, 1
    assert processes(1.0, 2.0) == 3


def test_a_process_whose_core_ran_slowly_is_left_out_whatever_a_call_takes():
    timing = TimingConfig(process_spread=0.0045, launch_spread_us=1.0)
    fast, slow = (
        Measurement(Interval(log, 0.005, 20), 0.9, 0.9, 20, 1, (log,), core_s=core_s)
        for log, core_s in ((0.10, 18e-6), (0.08, 27e-6))
    )
    seen = combine([fast, slow, replace(fast, core_s=20e-6)], timing)
    assert seen.interval.centre == pytest.approx(0.10)
    assert [pair.counted for pair in seen.processes] == [True, False, True]
    assert combine([slow, slow], timing).interval.centre == pytest.approx(0.08)  # no faster one is known


def test_few_processes_that_agree_by_chance_do_not_make_an_interval_narrow():
    timing = TimingConfig(process_spread=0.0045)

    def half_width(*centres: float) -> float:
        parts = [Measurement(Interval(log, 0.0, 20), 1.0, 1.0, 20, 1, (log,)) for log in centres]
        return combine(parts, timing).interval.half_width

    assert half_width(0.1, 0.1, 0.1, 0.1) == pytest.approx(0.0045)  # what is known beforehand
    assert half_width(0.08, 0.12) > 2.5 * math.sqrt(2) * 0.02 / math.sqrt(2)
    many = [0.08, 0.12] * 16
    assert half_width(*many) == pytest.approx(2.03 * 0.0203 / math.sqrt(32), rel=0.02)


def test_who_must_know_of_later_calls_is_seen_and_more_pairs_are_asked_for_only_while_they_could_tell():
    together = [[1.0] * 8, [0.5] * 8]  # of a call, reference and candidate

    def found(*late, allowed=0.0):
        return Foreknown.of(together, [[1.0] * len(late), list(late)], allowed)

    knows = found(*[0.9] * 8)
    assert knows.why() and knows.settled and knows.extra == pytest.approx(0.4)
    honest = found(*[0.5, 0.55] * 4)
    assert not honest.why() and honest.settled
    wavers = found(*[0.35, 0.95] * 3)
    assert not wavers.why() and not wavers.settled and wavers.likely == 0.0
    seems = found(*[0.45, 0.95] * 3)
    assert not seems.why() and seems.likely == pytest.approx(seems.extra)
    assert knows.likely == knows.extra and honest.likely == 0.0
    little = found(*[0.66, 0.69, 0.72] * 3)  # more than caches do, by less than chance
    assert not little.why() and little.settled and little.likely == pytest.approx(0.19)
    assert found(*[0.35, 0.95] * 3, allowed=1.0).settled  # so much is allowed: it cannot come to more


def test_sleeping_is_charged_and_waiting_for_a_core_is_not():
    ours, theirs = windows(_batches(4e-3), _batches(1e-3, wall=4e-3), NO_OVERHEAD, "cpu", 1)
    assert theirs[0] > 3e-3
    held_up = [Batch(4, (0.25e-3,) * 4, b.prepare, Span(9e-3, 1e-3, 8e-3), b.fetch, b.idle) for b in _batches(1e-3)]
    _, theirs = windows(_batches(4e-3), held_up, NO_OVERHEAD, "cpu", 1)
    assert theirs[0] == pytest.approx(1e-3)


def test_on_cuda_the_outer_clock_overrules_a_forged_inner_one():
    forged = [Batch(4, (0.25e-6,) * 4, b.prepare, Span(4.2e-3, 1e-4, 0.0), b.fetch, b.idle) for b in _batches(4e-3)]
    honest = [Batch(4, (1e-3,) * 4, b.prepare, Span(4.2e-3, 1e-4, 0.0), b.fetch, b.idle) for b in _batches(4e-3)]
    ours, theirs = windows(honest, forged, NO_OVERHEAD, "cuda", 1)
    assert theirs[0] > 0.9 * ours[0]


def test_weights_are_unlike_a_fresh_initialisation():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.LayerNorm(8))
    linear = model[0].weight.clone()
    randomise_weights(model, 0.2, torch.Generator().manual_seed(0))
    assert torch.equal(model[0].weight, linear)
    for tensor in (
        model[1].weight,
        model[1].bias,
        model[2].weight,
        model[1].running_mean,
        model[1].running_var,
    ):
        assert tensor.std() > 0.01
    assert (model[1].running_var > 0).all()
    unit, half = torch.nn.Linear(96, 96), torch.nn.Linear(96, 96)
    torch.nn.init.eye_(unit.weight)
    half.bias.data[:48] = 0.5
    for module, name in ((unit, "weight"), (half, "bias")):
        before = getattr(module, name).clone()
        randomise_weights(module, 0.2, torch.Generator().manual_seed(0))
        assert (getattr(module, name) != before).float().mean() > 0.99


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_recurrent_layers_do_not_forget_a_sequences_first_steps(kind):
    torch.manual_seed(0)
    layer, x = kind(4, 64, batch_first=True), torch.randn(1, 256, 4)

    def forgotten() -> float:
        """What the first three quarters of the steps have to do with the last output."""
        with torch.no_grad():
            whole, tail = (layer(steps)[0][:, -1] for steps in (x, x[:, -64:]))
        return float((whole - tail).norm() / whole.norm())

    assert forgotten() < 1e-3
    randomise_weights(layer, 0.2, torch.Generator().manual_seed(0))
    assert forgotten() > 1e-2


def test_outputs_that_lie_otherwise_are_copied_and_those_with_channels_last_are_not():
    plain, image = torch.rand(4, 6), torch.rand(2, 3, 4, 5)
    stay = {
        "plain": plain,
        "channels last": image.to(memory_format=torch.channels_last),
        "one for all, which is refused": torch.rand(4, 1).expand(4, 6),
        "sparse": plain.to_sparse(),
    }
    move = {"turned": plain.t(), "every other": plain[:, ::2], "moved": image.permute(0, 2, 3, 1)}
    for name, tensor in stay.items():
        assert put_in_order(tensor) is tensor, name
    for name, tensor in move.items():
        made = put_in_order(tensor)
        assert made.is_contiguous() and torch.equal(made, tensor) and not in_order(tensor), name
    nested = put_in_order([plain.t(), {"a": (image, plain[:, 1:])}, 3])
    assert in_order(nested) and nested[1]["a"][0] is image and nested[2] == 3


@pytest.mark.parametrize(
    "loop, steps",
    [
        ("for t in range(x.shape[1]):\n h = self.f(x[:, t] + h)", True),
        ("for step in x.unbind(1):\n h = step + h", True),
        ("for t in range(9):\n h *= x[t]", True),
        ("for t, one in enumerate(x.split(8, 1)):\n h = h + one", True),
        ("for t in range(9):\n y.append(x[:, t])", False),  # nothing is carried
        ("for t in range(9):\n h = x[t]\n y.append(h)", False),
        ("for layer in self.layers:\n h = layer(h)", False),
        ("for i in range(9):\n h = self.layers[i](h)", False),
    ],
)
def test_a_recurrence_that_is_written_out_is_told_from_layers(loop, steps):
    body = loop.replace("\n", "\n        ")
    inside, outside = (f"class Model:\n    def {name}(self, x, h, y):\n        {body}\n" for name in ("f", "__init__"))
    assert writes_recurrence(inside) is steps
    assert not writes_recurrence(outside) and not writes_recurrence(inside[1:])


def test_buffers_that_say_nothing_at_first_get_a_say():
    model = torch.nn.Module()
    for name, value in (("zeros", torch.zeros(64)), ("ones", torch.ones(64)), ("one", torch.ones(1))):
        model.register_buffer(name, value)
    model.register_buffer("mask", torch.ones(8, 8).tril())
    mask = model.mask.clone()
    randomise_weights(model, 0.2, torch.Generator().manual_seed(0))
    assert model.zeros.std() > 0.01 and model.ones.std() > 0.01 and (model.ones > 0).all()
    assert model.one == 1 and torch.equal(model.mask, mask)


def test_weights_find_their_place_by_name_then_by_shape():
    class Bare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(3))
            self.matrix = torch.nn.Parameter(torch.zeros(3, 2))

    model = Bare()
    entries = [("weight", torch.ones(3, 2)), ("bias", torch.ones(3)), ("extra", torch.ones(7))]
    assert load_state(model, entries) == ["extra"]
    assert model.matrix.sum() == 6 and model.bias.sum() == 3


@pytest.mark.parametrize(
    "data",
    [None, [], ["float32", [2], [], 0], ["float99", [2], [], 0, 8, "cpu"], ["float32", [-1], [], 0, 8,
    "cpu"],
     ["float32", [2], [1, 1], 0, 8, "cpu"], ["float32", [2], [], 1 << 60, 8, "cpu"],
     ["float32", [True], [], 0, 8, "cpu"], ["float32", [1.5], [], 0, 8, "cpu"]],
)  # fmt: skip
def test_descriptions_from_a_contestant_are_not_believed(data):
    answer = {"structure": "T", "tensors": [data], "shapes": [[2]]}
    with pytest.raises(ValueError):
        read_answer(msgspec.json.encode(answer), Fetch(0, None))
