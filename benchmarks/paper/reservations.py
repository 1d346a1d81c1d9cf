"""What a reader of the table has to know: where its runs are not as alike as the table supposes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.paper.arms import ARMS
from cudal1_ray.config import STAGES, Config, to_dict
from cudal1_ray.training.continuation import HOW_LONG, changes

# Share of the samples by which a run may miss the budget: whole rounds of stage 2 come no nearer.
NEAR = 0.02


def reservations(result: Mapping[str, Any]) -> list[str]:
    """Return sentences on samples, settings, code, devices and problems that differ between runs, and on what was left
    out; one that states the budget comes first.
    """
    return [
        *_samples(result),
        *_settings(result),
        *_commits(result),
        *_kinds_of_device(result),
        *_problems(result),
        *_left_out(result),
    ]


def _runs(result: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield arm, seed and record of all runs."""
    for name, arm in result["arms"].items():
        for seed, record in arm["seeds"].items():
            yield name, seed, record


def _name(arm: str, *seeds: str) -> str:
    return f"{ARMS[arm].label.removeprefix('+ ')}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"


def hardware(record: Mapping[str, Any]) -> str:
    """Return the devices of a run's hosts, each once: the kind of GPU and how many a host has, else the processor.

    A run sees one of them where runs go side by side.
    """
    names = {}
    for kind, count in _devices(record):
        names[kind + (f" ({count} in the host)" if count > 1 else "")] = None
    return ", ".join(names)


def _devices(record: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield for each start of a run the kind of GPU and how many the host has, else the processor and 0."""
    for row in record["environments"]:
        environment = row["environment"]
        gpus = [gpu.partition(",")[0] for gpu in environment.get("gpus", "").split("; ") if gpu]
        yield (gpus[0], len(gpus)) if gpus else (environment["processor"], 0)


def _kinds_of_device(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of device and the runs on each, where there are several."""
    runs: dict[str, dict[str, None]] = {}
    for arm, seed, record in _runs(result):
        for kind, _ in _devices(record):
            runs.setdefault(kind, {})[_name(arm, seed)] = None
    if len(runs) > 1:
        texts = [f"{kind} ({', '.join(of)})" for kind, of in runs.items()]
        yield f"Runs are of several devices: {'; '.join(texts)}."


def _samples(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the budget that the settings give arms beyond stage 1, and the finished runs that had another."""
    beyond = [run for run in _runs(result) if ARMS[run[0]].stage in ("self_supervised", "contrastive")]
    done = [run for run in beyond if run[2]["assessed"]]
    budgets = sorted({_budget(record["settings"]) for _, _, record in done})
    if not budgets:
        return
    seeds: dict[tuple[str, int], list[str]] = {}  # of each arm and number of samples
    for arm, seed, record in done:
        if abs(record["samples"] - budgets[0]) > NEAR * budgets[0]:
            seeds.setdefault((arm, record["samples"]), []).append(seed)
    others = [f"{_name(arm, *of)}: {samples:,}" for (arm, samples), of in seeds.items()]
    text = f"Budget of each arm beyond stage 1: {' or '.join(f'{budget:,}' for budget in budgets)} samples"
    text += f"; others had {'; '.join(others)}." if others else f", which all of them had within {NEAR:.0%}."
    yield f"{text} A candidate that a run has evaluated before counts as a sample, not as an evaluation."


def _budget(settings: Mapping[str, Any]) -> int:
    stage = settings["contrastive"]
    return int(stage["steps"] * stage["problems_per_step"] * stage["group_size"])


def _settings(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the runs whose settings differ in more than their arms do. A setting is compared with the first run's, one
    that only a later stage uses with the first run of that stage, one in which arms differ with another seed's.
    """
    defaults: dict[str, Any] = to_dict(Config())
    first: dict[str, tuple[str, dict[str, Any]]] = {}  # by stage and by arm; that of all runs has an empty name
    for arm, seed, record in _runs(result):
        differing: dict[str, None] = {}
        for name in ("", ARMS[arm].stage, arm):
            other, settings = first.setdefault(name, (arm, record["settings"]))
            for change in changes(settings, record["settings"], defaults):
                if change.allowed or change.key in ("seed", "name", *HOW_LONG) or not _uses(arm, change.key):
                    continue
                by = arm if _is_of_an_arm(change.key) else "" if _uses(first[""][0], change.key) else ARMS[arm].stage
                if name == by and _uses(other, change.key):
                    differing[str(change)] = None
        if differing:
            yield f"{_name(arm, seed)}, has other settings than the table: {', '.join(differing)}."


def _uses(arm: str, key: str) -> bool:
    """Return whether an arm's run, or what it starts from, depends on a setting: none of a later stage."""
    section = key.partition(".")[0]
    return section not in STAGES[STAGES.index(ARMS[arm].stage) + 1 if ARMS[arm].stage else 0 :]


def _is_of_an_arm(key: str) -> bool:
    """Return whether arms differ in a key: a setting of one of them, or one of a preset that it chooses."""
    settings = {setting.partition("=")[0] for arm in ARMS.values() for setting in arm.settings}
    return any(key == setting or key.startswith(f"{setting}.") for setting in settings)


def _commits(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the commits of the code that runs were made with, where there are several."""
    runs: dict[str, set[str]] = {}
    for command in result["commands"]:
        runs.setdefault(command.get("commit", "unknown"), set()).add(command["run"])
    if len(runs) > 1:
        texts = [f"{commit} ({', '.join(sorted(names))})" for commit, names in sorted(runs.items())]
        yield f"Runs were made with several versions of the code: {'; '.join(texts)}."


def _problems(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of assessment whose arms have different numbers of problems or of samples of each."""
    for kind in sorted({kind for arm in result["arms"].values() for kind in arm["assessed"]}):
        sizes: dict[tuple[int, float], list[str]] = {}
        for name, arm in result["arms"].items():
            if figures := arm["assessed"].get(kind):
                each = figures["samples"] / figures["seeds"] / figures["problems"]
                sizes.setdefault((figures["problems"], round(each)), []).append(ARMS[name].label)
        if len(sizes) > 1:
            texts = [f"{problems} with {each} ({', '.join(arms)})" for (problems, each), arms in sizes.items()]
            yield f"Problems with samples of each, {kind.replace('_', '-')}: {'; '.join(texts)}."


def _left_out(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what no figure counts: degenerate problems, and samples whose evaluation failed."""
    if result["degenerate"]:
        yield f"Left out, as their output does not depend on the input: {', '.join(result['degenerate'])}."
    if void := [f"{_name(arm, seed)}: {record['void']}" for arm, seed, record in _runs(result) if record["void"]]:
        yield f"Samples left out, as their evaluation failed: {'; '.join(void)}."
