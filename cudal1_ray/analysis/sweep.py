"""Which setting of a sweep is better, and is the difference more than chance? The unit is the seed, not the sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from cudal1_ray.analysis.comparison import samples_of
from cudal1_ray.analysis.run_data import SPLITS, RunData, read_run
from cudal1_ray.analysis.statistics import FAILURE_IN_GEOMEAN, SampleSet, t_interval
from cudal1_ray.analysis.summary import combine_degenerate, combine_seeds, summarise
from cudal1_ray.analysis.sweep_files import DESCRIPTION, JOBS, read_description, read_jobs
from cudal1_ray.errors import UserError
from cudal1_ray.wording import counted

SEED_KEY = "seed"


@dataclass(frozen=True)
class SettingsComparison:
    """`second` against `first` on one split, over the problems that all runs of both have.

    ratio, low, high: geometric mean of `second` over that of `first`, mean over seeds (of logarithms) with the 95%
    Student t interval, both null for fewer than two pairs.
    p_value: two-sided t test of no difference. Runs with the same seed start from the same policy: they are pairs, and
    the test is the paired one (Student 1908) where there are two pairs; else Welch's (1947) for unequal variances.
    p_adjusted: the same after Holm's correction (1979) for the number of comparisons on this split.
    """

    first: str
    second: str
    split: str
    problems: int
    pairs: int
    test: str  # "paired t", "Welch t", or "" where there is one run of either
    ratio: float
    low: float | None
    high: float | None
    success_rate_difference: float
    p_value: float | None
    p_adjusted: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Setting:
    """One combination of what the sweep varies, the seed apart: its label and its runs by seed."""

    label: str
    runs: dict[str, RunData]


def summarise_sweep(folder: str | Path) -> dict[str, Any]:
    """Return the summary of a sweep as a JSON-ready dict.

    Its keys are `varied`, `stage`, `settings`, `comparisons`, `unfinished`, `conventions` and `degenerate` (as in a
    run's summary). `settings[label]` holds `seeds`, `runs` and `splits[split]`: the columns of a run's summary as
    means over seeds, with intervals, and `geomean_per_seed`. The stage is the last one that every finished run was
    assessed after.

    Raises:
        UserError: when the folder holds no sweep or a damaged one, or none of its runs is finished and assessed.
    """
    folder = Path(folder)
    if not (folder / JOBS).is_file() or not (folder / DESCRIPTION).is_file():
        raise UserError(f"{folder} holds no sweep: give the folder of one, for example runs/<name of cudal1 train -m>")
    jobs, varied = list(read_jobs(folder).values()), read_description(folder)["varied"]
    finished = [job for job in jobs if job["state"] == "finished"]
    settings = _group(folder, finished)
    stage = _last_common_stage(settings)
    if stage is None:
        started = counted(len(jobs), "run")
        raise UserError(f"{folder}: no run of this sweep is finished and assessed yet ({started} started)")
    described, degenerate = {}, []
    for setting in settings:
        combined = combine_seeds([summarise(run) for run in setting.runs.values()])
        splits = {split: dict(entry) for split, entry in combined["stages"].get(stage, {}).items()}
        for split, entry in splits.items():
            sets = _by_seed(setting, stage, split)
            entry["geomean_per_seed"] = {seed: math.exp(_log_geomean(s, s.problem_ids)) for seed, s in sets.items()}
        described[setting.label] = {
            "seeds": list(setting.runs),
            "runs": [run.name for run in setting.runs.values()],
            "splits": splits,
        }
        conventions = combined["conventions"]
        degenerate.append(combined["degenerate"])
    conventions = {**conventions, "asked_with_exemplars": None}
    conventions["intervals"] = (
        "Mean over seeds with the 95% Student t interval of that mean, cut at 0 and, of shares, at 1; geometric means "
        "are averaged as logarithms."
    )
    return {
        "format": 1,
        "folder": folder.resolve().name,
        "varied": varied,
        "stage": stage,
        "conventions": conventions,
        "settings": described,
        "degenerate": combine_degenerate(degenerate),
        "comparisons": [c.to_dict() for split in SPLITS for c in compare_settings(settings, stage, split)],
        "unfinished": {job["job"]: job["state"] for job in jobs if job["state"] != "finished"},
    }


def compare_settings(settings: Sequence[Setting], stage: str, split: str) -> list[SettingsComparison]:
    """Compare every pair of settings on one split, in order; none where the split was not assessed."""
    sets = {setting.label: _by_seed(setting, stage, split) for setting in settings}
    comparisons = []
    for first, second in itertools.combinations(sets, 2):
        every = [*sets[first].values(), *sets[second].values()]
        shared = set.intersection(*(set(s.problem_ids) for s in every))
        if shared:
            comparisons.append(_compare(first, second, sets[first], sets[second], sorted(shared), split))
    return adjust_by_holm(comparisons)


def _by_seed(setting: Setting, stage: str, split: str) -> dict[str, SampleSet]:
    return {seed: samples_of(run.assessments, stage, split) for seed, run in setting.runs.items()}


def _compare(
    first: str,
    second: str,
    of_first: dict[str, SampleSet],
    of_second: dict[str, SampleSet],
    problems: list[str],
    split: str,
) -> SettingsComparison:
    logs = [{seed: _log_geomean(s, problems) for seed, s in side.items()} for side in (of_first, of_second)]
    rates = [
        [float(np.nanmean(s.restricted(problems).accepted)) for s in side.values()] for side in (of_first, of_second)
    ]
    seeds = [seed for seed in logs[0] if seed in logs[1]]
    bounds, test, p_value = None, "", None
    if len(seeds) >= 2:
        differences = [logs[1][seed] - logs[0][seed] for seed in seeds]
        difference, bounds, test = float(np.mean(differences)), t_interval(differences), "paired t"
        p_value = _p_of_t(difference, float(np.std(differences, ddof=1)) / math.sqrt(len(seeds)), len(seeds) - 1)
    else:
        sides = [list(side.values()) for side in logs]
        difference = float(np.mean(sides[1]) - np.mean(sides[0]))
        if min(len(side) for side in sides) >= 2:
            result = stats.ttest_ind(sides[1], sides[0], equal_var=False)
            interval = result.confidence_interval(0.95)
            bounds, test = [float(interval.low), float(interval.high)], "Welch t"
            p_value = float(result.pvalue) if math.isfinite(result.pvalue) else None
    return SettingsComparison(
        first=first,
        second=second,
        split=split,
        problems=len(problems),
        pairs=len(seeds),
        test=test,
        ratio=math.exp(difference),
        low=math.exp(bounds[0]) if bounds else None,
        high=math.exp(bounds[1]) if bounds else None,
        success_rate_difference=float(np.mean(rates[1]) - np.mean(rates[0])),
        p_value=p_value,
    )


def _p_of_t(mean: float, error: float, freedom: int) -> float:
    """Return the two-sided p value of a mean with its standard error; 1 for runs that never differ at all."""
    if error == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return float(2.0 * stats.t.sf(abs(mean) / error, freedom))


def adjust_by_holm(comparisons: list[SettingsComparison]) -> list[SettingsComparison]:
    """Adjust p values by Holm: the smallest counts as many times as there are tests, the next once less, and so on.

    None falls below the one before it.
    """
    tested = sorted((c.p_value, c.first, c.second) for c in comparisons if c.p_value is not None)
    adjusted, least = {}, 0.0
    for place, (p_value, first, second) in enumerate(tested):
        least = max(least, min(1.0, p_value * (len(tested) - place)))
        adjusted[first, second] = least
    return [SettingsComparison(**{**asdict(c), "p_adjusted": adjusted.get((c.first, c.second))}) for c in comparisons]


def _log_geomean(samples: SampleSet, problems: Sequence[str]) -> float:
    """Return the mean log speedup, every problem with equal weight."""
    restricted = samples.restricted(problems)
    return float(np.nanmean(np.log(np.maximum(restricted.speedups, FAILURE_IN_GEOMEAN)), axis=1).mean())


def _group(folder: Path, jobs: list[dict[str, Any]]) -> list[Setting]:
    """Make one setting of jobs that differ in the seed alone, in the order in which they were first started."""
    runs: dict[str, dict[str, RunData]] = {}
    for job in jobs:
        settings = {key: value for key, value in job["settings"].items() if key != SEED_KEY}
        label = next(iter(settings.values())) if len(settings) == 1 else ""
        label = label or ", ".join(f"{key}={value}" for key, value in settings.items()) or "all"
        run = read_run(folder / job["job"])
        runs.setdefault(label, {})[str(job["settings"].get(SEED_KEY, run.config.get(SEED_KEY)))] = run
    return [Setting(label, by_seed) for label, by_seed in runs.items()]


def _last_common_stage(settings: Sequence[Setting]) -> str | None:
    runs = [run for setting in settings for run in setting.runs.values()]
    assessed = [{str(row.get("stage")) for row in run.assessments} for run in runs]
    common = set.intersection(*assessed) if assessed else set()
    return next((stage for stage in reversed(runs[0].stages()) if stage in common), None) if runs else None
