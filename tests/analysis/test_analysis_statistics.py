"""Statistics against values worked out by hand, and intervals against a truth that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cudal1_ray.analysis.comparison import compare_runs
from cudal1_ray.analysis.report import render_report
from cudal1_ray.analysis.run_data import RunData
from cudal1_ray.analysis.statistics import (
    bootstrap_intervals,
    describe,
    geometric_mean,
    geometric_ratio,
    sample_set,
    t_interval,
)
from cudal1_ray.analysis.summary import combine_seeds, summarise
from cudal1_ray.analysis.tables import convention_text
from cudal1_ray.analysis.terminal import comparison_lines
from cudal1_ray.errors import UserError


def rows(stage: str, speedups: dict[str, list[float]], split: str = "held_out") -> list[dict]:
    """Return assessment rows; a speedup of 0 is a rejected sample."""
    return [
        {
            "stage": stage,
            "split": split,
            "problem_id": problem,
            "index": i,
            "speedup": s,
            "status": "accepted" if s > 0 else "rejected",
        }
        for problem, values in speedups.items()
        for i, s in enumerate(values)
    ]


def run_of(*parts: list[dict], **fields) -> RunData:
    from pathlib import Path

    return RunData(folder=Path("some-run"), assessments=[row for part in parts for row in part], **fields)


def test_columns_when_counted_by_hand_are_these():
    samples = sample_set({"a": [(True, 2.0), (False, 9.0)], "b": [(True, 0.5), (True, 1.01)]})
    columns = describe(samples.speedups, samples.accepted)
    assert columns["success_rate"] == 0.75
    assert columns["mean"] == pytest.approx((2.0 + 0.0 + 0.5 + 1.01) / 4)  # the rejected 9.0 counts as 0
    assert columns["geomean"] == pytest.approx((2.0 * 0.1 * 0.5 * 1.01) ** 0.25)
    assert columns["median"] == pytest.approx((0.5 + 1.01) / 2)
    assert columns["p25"] == pytest.approx(0.375)
    assert columns["p75"] == pytest.approx(1.2575)
    assert columns["max"] == 2.0
    assert columns["above_1_01"] == 0.25  # 1.01 itself is not above 1.01


def test_geometric_mean_when_an_accepted_speedup_is_below_the_floor_counts_the_floor():
    assert geometric_mean(np.array([0.001, 10.0]), 0.1) == pytest.approx(1.0)


def test_summary_when_there_are_splits_and_several_samples_follows_the_conventions():
    run = run_of(
        rows("untrained", {"a": [0, 0], "b": [0, 1.0]}),
        rows("contrastive", {"a": [0, 0], "b": [4.0, 1.0]}),
        rows("contrastive", {"t": [3.0, 3.0]}, split="train"),
        config={"assessment": {"temperature": 0.7}, "seed": 3, "name": "x"},
        metrics=[{"stage": "sft", "step": 0, "wall_s": 5.0}, {"stage": "sft", "step": 1, "wall_s": 9.5}],
    )
    summary = summarise(run)
    entry = summary["stages"]["contrastive"]["held_out"]
    assert (entry["problems"], entry["samples"], entry["samples_per_problem"]) == (2, 4, 2)
    assert entry["success_rate"] == 0.5
    best = entry["best_of_n"]
    assert (best["n"], best["problems_solved"], best["success_rate"]) == (2, 1, 0.5)
    assert best["mean"] == pytest.approx(2.0)
    assert best["geomean"] == pytest.approx(math.sqrt(4.0 * 0.1))
    assert summary["stages"]["contrastive"]["train"]["geomean"] == pytest.approx(3.0)
    assert "train" not in summary["stages"]["untrained"]
    assert summary["conventions"]["failure_in_geomean"] == 0.1
    assert summary["conventions"]["temperature"] == 0.7
    assert summary["conventions"]["samples_per_problem"] == 2
    assert summary["run"]["wall_s"] == 9.5 and summary["run"]["seed"] == 3 and summary["run"]["name"] == "x"


def test_summary_when_problems_have_unequal_samples_counts_every_sample_once():
    summary = summarise(run_of(rows("sft", {"a": [1.0], "b": [2.0, 3.0, 0.0]})))
    entry = summary["stages"]["sft"]["held_out"]
    assert entry["mean"] == pytest.approx(6.0 / 4)
    assert entry["samples_per_problem"] == [1, 3]
    assert " 1 to 3 samples per problem" in convention_text(summary)
    low, high = entry["intervals"]["mean"]
    assert low <= entry["mean"] <= high


def test_intervals_when_the_seed_is_the_same_are_the_same_and_differ_otherwise():
    samples = sample_set({str(i): [(True, 1.0 + 0.1 * i), (i % 3 > 0, 0.8)] for i in range(9)})
    assert bootstrap_intervals(samples, seed=1) == bootstrap_intervals(samples, seed=1)
    assert bootstrap_intervals(samples, seed=1) != bootstrap_intervals(samples, seed=2)


def test_interval_when_the_success_rate_is_one_is_not_a_point():
    samples = sample_set({str(i): [(True, 1.5)] for i in range(10)})
    low, high = bootstrap_intervals(samples)["success_rate"]
    assert low == pytest.approx(0.025**0.1) and high == 1.0  # Clopper-Pearson, 10 of 10
    failed = sample_set({str(i): [(False, 0.0)] for i in range(10)})
    assert bootstrap_intervals(failed)["success_rate"] == [0.0, pytest.approx(1 - 0.025**0.1)]


def test_intervals_when_data_is_simulated_cover_the_truth_95_percent_of_the_time():
    """With effects of problems and of samples, the 95% interval holds the truth about 95% of the time."""
    rng = np.random.default_rng(7)
    success, spread, noise, trials = 0.8, 0.4, 0.3, 200
    truth = {
        "success_rate": success,
        "geomean": math.exp(success * 0.2 + (1 - success) * math.log(0.1)),
        "mean": success * math.exp(0.2 + (spread**2 + noise**2) / 2),
    }
    hits = dict.fromkeys(truth, 0)
    for _ in range(trials):
        logs = 0.2 + rng.normal(0, spread, (40, 1)) + rng.normal(0, noise, (40, 4))
        good = rng.random((40, 4)) < success
        samples = sample_set({str(p): list(zip(good[p], np.exp(logs[p]), strict=True)) for p in range(40)})
        intervals = bootstrap_intervals(samples, draws=250)
        for metric, value in truth.items():
            low, high = intervals[metric]
            hits[metric] += low <= value <= high
    # Two-level resampling leans to the wide side; below 0.90 would mean that it is too narrow.
    assert all(0.90 <= count / trials <= 1.0 for count in hits.values()), hits
    assert any(count < trials for count in hits.values())  # and it is not simply everything


def test_paired_comparison_when_problems_differ_in_hardness_finds_a_gain_that_unpaired_intervals_hide():
    rng = np.random.default_rng(0)
    hardness = {f"p{i}": float(np.exp(rng.normal(0, 1.0))) for i in range(30)}
    before = {p: [h * float(np.exp(rng.normal(0, 0.05))) for _ in range(4)] for p, h in hardness.items()}
    after = {p: [1.2 * h * float(np.exp(rng.normal(0, 0.05))) for _ in range(4)] for p, h in hardness.items()}
    comparison = compare_runs(rows("sft", before), rows("sft", after), "sft")
    assert comparison.problems == 30
    assert comparison.speedup_ratio == pytest.approx(1.2, rel=0.03)
    assert 1.1 < comparison.speedup_ratio_low < comparison.speedup_ratio < comparison.speedup_ratio_high < 1.3
    summary = summarise(run_of(rows("sft", before), rows("contrastive", after)))["stages"]
    before_interval = summary["sft"]["held_out"]["intervals"]["geomean"]
    after_interval = summary["contrastive"]["held_out"]["intervals"]["geomean"]
    assert before_interval[1] > after_interval[0]  # they overlap


def test_comparison_when_problems_differ_uses_shared_ones_only_and_refuses_none():
    first = rows("contrastive", {"a": [1.0], "only_here": [100.0]})
    second = rows("contrastive", {"a": [2.0], "only_there": [0.0]})
    comparison = compare_runs(first, second, "contrastive")
    assert (comparison.problems, comparison.first, comparison.second) == (1, "first run", "second run")
    assert comparison.log_geomean_difference == pytest.approx(math.log(2))
    with pytest.raises(UserError, match="share no held_out problem"):
        compare_runs(first, rows("contrastive", {"z": [1.0]}), "contrastive")


def test_combine_seeds_when_computed_by_hand_is_this():
    summaries = [
        summarise(run_of(rows("sft", {"a": [s]}), rows("contrastive", {"a": [2 * s]}), config={"seed": i, "x": 1}))
        for i, s in enumerate((1.0, 2.0, 4.0))
    ]
    combined = combine_seeds(summaries)
    entry = combined["stages"]["sft"]["held_out"]
    assert entry["mean"] == pytest.approx(7 / 3)
    assert entry["geomean"] == pytest.approx(2.0)
    half = 4.302653 * math.log(2) / math.sqrt(3)  # logs are 0, log 2, 2 log 2: standard deviation log 2
    assert entry["intervals"]["geomean"] == pytest.approx([2 * math.exp(-half), 2 * math.exp(half)])
    assert combined["run"]["same_configuration"] and combined["run"]["seed"] == [0, 1, 2]
    assert combined["comparisons"][0]["speedup_ratio"] == pytest.approx(2.0)
    assert "geomean" not in combine_seeds(summaries[:1])["stages"]["sft"]["held_out"]["intervals"]
    with pytest.raises(UserError):
        combine_seeds([])


def test_t_interval_when_computed_by_hand_is_this():
    assert t_interval([1.0]) is None
    assert t_interval([1.0, 3.0]) == pytest.approx([2 - 12.7062, 2 + 12.7062], abs=1e-4)


def test_geometric_ratio_when_there_are_several_has_the_t_interval_of_their_logarithms():
    ratio, interval = geometric_ratio([2.0, 0.5, 2.0, 2.0])
    assert ratio == pytest.approx(math.sqrt(2.0))
    logs = t_interval([math.log(2.0), -math.log(2.0), math.log(2.0), math.log(2.0)])
    assert interval == pytest.approx([math.exp(bound) for bound in logs])
    assert geometric_ratio([3.0]) == (pytest.approx(3.0), None)


def test_summary_when_one_problem_is_assessed_has_no_interval_of_its_speedup():
    run = run_of(rows("sft", {"a": [1.0, 1.2]}), rows("contrastive", {"a": [2.0, 2.4]}))
    summary = summarise(run)
    assert list(summary["stages"]["contrastive"]["held_out"]["intervals"]) == ["success_rate"]
    [line] = comparison_lines(summary)
    assert "geometric mean times 2.00, success" in line
    html = render_report(run, summary)
    assert "changed by a factor of\n  2.00; it holds" in html and "nan" not in html.split("</style>")[1].lower()
    assert combine_seeds([summary, summary])["comparisons"][0]["speedup_ratio"] == pytest.approx(2.0)


def test_intervals_when_seeds_disagree_stay_within_what_a_share_and_a_speedup_can_be():
    summaries = [summarise(run_of(rows("sft", {"a": values, "b": values}))) for values in ([2.0, 0.0], [2.0, 2.0])]
    entry = combine_seeds(summaries)["stages"]["sft"]["held_out"]
    assert entry["success_rate"] == 0.75 and entry["intervals"]["success_rate"] == [0.0, 1.0]
    assert entry["intervals"]["mean"][0] == 0.0 < entry["mean"] < entry["intervals"]["mean"][1]
