"""What a run achieved, as JSON: stages and splits with intervals, comparisons, conventions."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cudal1_ray.analysis.comparison import compare_samples, samples_of
from cudal1_ray.analysis.run_data import SPLITS, RunData, degenerate_problems, number, text_list
from cudal1_ray.analysis.statistics import (
    CONFIDENCE,
    COUNTS_AS_FASTER,
    DRAWS,
    FAILURE_IN_GEOMEAN,
    INTERVAL_METRICS,
    SEED,
    SampleSet,
    bootstrap_intervals,
    describe,
    t_interval,
)
from cudal1_ray.errors import UserError
from cudal1_ray.files import write_atomically
from cudal1_ray.wording import counted

_COLUMNS = ("success_rate", "mean", "geomean", "median", "p25", "p75", "max", "above_1_01")
# Settings that distinguish runs of one configuration without changing what is run.
_IDENTITY_KEYS = {"seed", "name", "runs_dir"}


def summarise(run: RunData) -> dict[str, Any]:
    """Return the summary of a run as a JSON-ready dict: `run`, `conventions`, `stages`, `comparisons`, `degenerate`.

    `stages[stage][split]` holds problems, samples, samples_per_problem, success_rate, mean, geomean, median,
    p25, p75, max, above_1_01, `intervals` ({metric: [low, high]}) and `best_of_n` (the same columns over the
    best sample of each problem). Rates are shares between 0 and 1. Stages and splits without assessments are
    absent. `copied` is the share of accepted copies of an exemplar in the prompt; a comparison of stages that have any
    holds itself once more as `copies_fail`, with each copy as a failure.

    `degenerate` holds the assessed problems whose output does not depend on their input (`problems`: ids), the
    `samples` of theirs, and that these are `left_out` of everything else here.
    """

    def sample_sets(copies_fail: bool) -> dict[tuple[str, str], SampleSet]:
        keys = ((stage, split) for stage in run.stages() for split in SPLITS)
        sets = {key: samples_of(run.assessments, *key, copies_fail=copies_fail) for key in keys}
        return {key: samples for key, samples in sets.items() if len(samples.problem_ids)}

    sets, originals = sample_sets(copies_fail=False), sample_sets(copies_fail=True)
    stages: dict[str, dict[str, Any]] = {}
    for (stage, split), samples in sets.items():
        copied = float(np.nanmean(samples.accepted) - np.nanmean(originals[stage, split].accepted))
        stages.setdefault(stage, {})[split] = {**_entry(samples), "copied": copied}
    return {
        "format": 1,
        "run": run_metadata(run),
        "conventions": conventions(run, sets),
        "stages": stages,
        "comparisons": _comparisons(sets, originals, stages),
        "degenerate": _degenerate(run),
    }


def save_summary(summary: Mapping[str, Any], file: Path) -> None:
    """Write the summary of a run or a sweep, atomically."""
    write_report_file(file, json.dumps(summary, indent=2, allow_nan=False) + "\n")


def write_report_file(path: Path, text: str) -> None:
    """Write a whole file or leave the old one.

    Raises:
        UserError: when it cannot be written.
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; free space or choose another run folder") from error


def run_metadata(run: RunData) -> dict[str, Any]:
    """Name, seed, configuration hashes and wall time (the largest wall_s of the metrics) of a run."""
    config = run.config
    walls = [wall for row in run.metrics if (wall := number(row.get("wall_s"))) is not None]
    return {
        "name": str(config.get("name") or run.name),
        "seed": config.get("seed"),
        "config_hash": _hash(config) if config else None,
        "config_hash_without_seed": _hash(_without_identity(config)) if config else None,
        "wall_s": max(walls) if walls else None,
        "steps": len(run.metrics),
        "rollouts": len(run.rollouts),
    }


def conventions(run: RunData, sets: Mapping[Any, SampleSet]) -> dict[str, Any]:
    """Return the words and figures by which the numbers of a summary are to be read."""
    per_problem = sorted({int(count) for samples in sets.values() for count in samples.counts})
    assessment = section if isinstance(section := run.config.get("assessment"), dict) else {}
    return {
        "failure": f"A failed sample counts as speedup 0 in mean, median, percentiles and max, and as "
        f"{FAILURE_IN_GEOMEAN:g} in the geometric mean (an accepted speedup below {FAILURE_IN_GEOMEAN:g} "
        f"counts as {FAILURE_IN_GEOMEAN:g} there too, so that being right is never worse than failing).",
        "failure_in_mean": 0.0,
        "failure_in_geomean": FAILURE_IN_GEOMEAN,
        "above_1_01": f"Share of all samples, failures included, faster than {COUNTS_AS_FASTER:g}x.",
        "percentiles": "Linear interpolation between order statistics; p50 is the median.",
        "intervals": f"{CONFIDENCE:.0%} percentile bootstrap: {DRAWS} resamples of "
        f"the problems, then of the samples within each problem; seed {SEED}. A success "
        "rate of 0 or 1 has the exact binomial interval over problems. A single problem has no other interval.",
        "best_of_n": "The best verified sample of each problem, a problem without one counting as a failure; "
        "intervals resample problems only. n is the number of samples of a problem.",
        "asked_with_exemplars": _asked_with_exemplars(run),
        "confidence": CONFIDENCE,
        "bootstrap_draws": DRAWS,
        "bootstrap_seed": SEED,
        "samples_per_problem": per_problem[0] if len(per_problem) == 1 else per_problem,
        "temperature": number(assessment.get("temperature")),
    }


def _degenerate(run: RunData) -> dict[str, Any]:
    problems = degenerate_problems(run.assessments)
    samples = sum(str(row.get("problem_id")) in problems for row in run.assessments)
    return {"problems": sorted(problems), "samples": samples, "left_out": True}


def _asked_with_exemplars(run: RunData) -> dict[str, float] | None:
    """Return {"stage/split": share of samples whose prompt showed exemplars}; None where the rows do not state it."""
    flags_of: dict[str, list[bool]] = {}
    for row in run.assessments:
        if "exemplar_ids" in row:
            key = f"{row.get('stage')}/{row.get('split')}"
            flags_of.setdefault(key, []).append(bool(text_list(row["exemplar_ids"])))
    return {key: float(np.mean(flags)) for key, flags in flags_of.items()} or None


def _entry(samples: SampleSet) -> dict[str, Any]:
    counts = samples.counts
    best = np.nanmax(samples.speedups, axis=1, keepdims=True)
    solved = np.nanmax(samples.accepted, axis=1, keepdims=True)
    best_set = SampleSet(samples.problem_ids, best, solved, np.ones_like(counts))
    entry = {
        "problems": len(counts),
        "samples": int(counts.sum()),
        "samples_per_problem": int(counts[0]) if samples.balanced else [int(counts.min()), int(counts.max())],
        **_columns(samples),
    }
    entry["best_of_n"] = {
        "n": int(counts.max()),
        "problems_solved": int(solved.sum()),
        **_columns(best_set),
    }
    return entry


def _columns(samples: SampleSet) -> dict[str, Any]:
    return {**describe(samples.speedups, samples.accepted), "intervals": bootstrap_intervals(samples)}


def _comparisons(
    sets: Mapping[Any, SampleSet],
    originals: Mapping[Any, SampleSet],
    stages: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Compare the last stage with each earlier one, on each split where both were assessed.

    Args:
        originals: the same samples with copies as failures.
        stages: the summary's entries.
    """

    def compare(of: Mapping[Any, SampleSet], first: str, second: str, split: str) -> dict[str, Any]:
        sides = of[first, split], of[second, split]
        return compare_samples(*sides, names=(first, second), split=split).to_dict()

    comparisons = []
    *earlier, last = stages or [""]
    for stage in earlier:
        for split in SPLITS:
            first, second = sets.get((stage, split)), sets.get((last, split))
            if first and second and set(first.problem_ids) & set(second.problem_ids):
                row = compare(sets, stage, last, split)
                if any(stages[name][split]["copied"] > 0.0 for name in (stage, last)):
                    row["copies_fail"] = compare(originals, stage, last, split)
                comparisons.append(row)
    return comparisons


def combine_seeds(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine runs of one configuration into one summary: means over seeds, with 95% t intervals from two runs on.

    Geometric means and speedup ratios are averaged as logarithms. The result has the shape of a summary, so
    the tables take it; only stages, splits and comparisons that every run has are in it.

    Raises:
        UserError: for an empty list.
    """
    if not summaries:
        raise UserError("no summaries to combine: give the report/summary.json of at least one run")
    runs = [dict(summary["run"]) for summary in summaries]
    stages: dict[str, dict[str, Any]] = {}
    for stage, splits in summaries[0]["stages"].items():
        for split in splits:
            entries = [summary["stages"].get(stage, {}).get(split) for summary in summaries]
            if all(entries):
                combined = _combine_columns(entries)
                for key in ("problems", "samples", "samples_per_problem"):
                    combined[key] = entries[0][key]
                combined["samples"] = sum(entry["samples"] for entry in entries)
                combined["copied"] = float(np.mean([entry.get("copied", 0.0) for entry in entries]))
                bests = [entry["best_of_n"] for entry in entries]
                solved = float(np.mean([best["problems_solved"] for best in bests]))
                combined["best_of_n"] = {
                    "n": bests[0]["n"],
                    "problems_solved": solved,
                    **_combine_columns(bests),
                }
                stages.setdefault(stage, {})[split] = combined
    configurations = {run.get("config_hash_without_seed") for run in runs}
    return {
        "format": 1,
        "run": {
            "name": ", ".join(str(run.get("name")) for run in runs),
            "seed": [run.get("seed") for run in runs],
            "wall_s": sum(run.get("wall_s") or 0.0 for run in runs),
            "runs": len(runs),
            "same_configuration": len(configurations) == 1 and None not in configurations,
        },
        "conventions": {
            **summaries[0]["conventions"],
            "intervals": f"Mean over {counted(len(runs), 'run')} with the 95% Student t "
            "interval of that mean, cut at 0 and, of shares, at 1; geometric means are averaged as logarithms.",
        },
        "stages": stages,
        "comparisons": _combine_comparisons([list(summary.get("comparisons", [])) for summary in summaries]),
        "degenerate": combine_degenerate([summary.get("degenerate") or {} for summary in summaries]),
    }


def combine_degenerate(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the entries on degenerate problems; a summary without one (an older one) left nothing out."""
    return {
        "problems": sorted({problem for entry in entries for problem in entry.get("problems", ())}),
        "samples": sum(entry.get("samples", 0) for entry in entries),
        "left_out": all(entry.get("left_out", False) for entry in entries),
    }


def _combine_columns(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    combined: dict[str, Any] = {column: float(np.mean([entry[column] for entry in entries])) for column in _COLUMNS}
    logs = [math.log(entry["geomean"]) for entry in entries]
    combined["geomean"] = math.exp(float(np.mean(logs)))
    intervals = {}
    for metric in INTERVAL_METRICS:
        if bounds := t_interval(logs if metric == "geomean" else [entry[metric] for entry in entries]):
            most = 1.0 if metric == "success_rate" else math.inf
            inside = np.exp(bounds) if metric == "geomean" else np.clip(bounds, 0.0, most)
            intervals[metric] = [float(bound) for bound in inside]
    return {**combined, "intervals": intervals}


def _combine_comparisons(lists: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    combined = []
    for pattern in lists[0]:
        key = (pattern["first"], pattern["second"], pattern["split"])
        same = [c for many in lists for c in many if (c["first"], c["second"], c["split"]) == key]
        if len(same) != len(lists):
            continue
        logs = [c["log_geomean_difference"] for c in same]
        centre = float(np.mean(logs))
        bounds = t_interval(logs)
        low, high = bounds or (None, None)
        copies_fail = [c.get("copies_fail", c) for c in same]
        of_originals = _combine_comparisons([[c] for c in copies_fail]) if copies_fail != same else []
        combined.append(
            {
                "first": key[0],
                "second": key[1],
                "split": key[2],
                "problems": pattern["problems"],
                "seeds": len(same),
                "log_geomean_difference": centre,
                "log_geomean_low": low,
                "log_geomean_high": high,
                "speedup_ratio": math.exp(centre),
                "speedup_ratio_low": None if low is None else math.exp(low),
                "speedup_ratio_high": None if high is None else math.exp(high),
                "success_rate_difference": float(np.mean([c["success_rate_difference"] for c in same])),
                **({"copies_fail": of_originals[0]} if of_originals else {}),
            }
        )
    return combined


def _hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _without_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in _IDENTITY_KEYS}
