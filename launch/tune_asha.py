#!/usr/bin/env python
"""A sweep whose bad runs are stopped early: ASHA (Li et al. 2018, arXiv 1810.05934) of Ray Tune over `cudal1 train`.

  launch/tune_asha.py name=rates init_from=runs/demo stage=contrastive contrastive.learning_rate=3e-4,1e-3,3e-5,3e-3
  launch/tune_asha.py --grace 2 --factor 3 name=which exemplars=bucket,uniform,top_k cluster.address=auto

Arguments are those of `cudal1 train -m`: every combination of `key=a,b` is a run. After --grace steps of the last stage
asked for, and again after --factor times as many, a run that is not among the best 1/--factor of those that came so far
is stopped. Put the setting that you trust most first: without another to compare with, nothing is stopped.

The folder is that of a sweep: `cudal1 report --sweep runs/NAME` gives the table of the runs that were finished. A run
that was stopped can be continued, `cudal1 train -m` with the same settings continues all of them; this command, started
again, reports to ASHA the steps that are there and goes on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from cudal1_ray.actors.placement import connect
from cudal1_ray.analysis.sweep_page import present_sweep
from cudal1_ray.config import Config, composing, config_dir, prepare_overrides, started_cluster
from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_lines
from cudal1_ray.training.sweeps.jobs import SweepFolder, SweepJob, make_jobs
from cudal1_ray.training.sweeps.launching import drive
from cudal1_ray.training.sweeps.multirun import DEFAULTS
from cudal1_ray.training.sweeps.reservation import inside, job_bundles, total
from cudal1_ray.training.sweeps.table import SweepTable

# Logical CPUs that the driver of a run asks for beside its actors, as in a sweep.
DRIVER_CPUS = OmegaConf.load(config_dir() / "hydra" / "launcher" / "ray.yaml").driver_cpus
POLL_S = 0.5
# Column of a stage's steps that have a score: ASHA's measure of time.
STEPS = "steps"


@dataclass(frozen=True)
class Score:
    """What runs are compared by: a column of metrics.jsonl, as its mean over the last `window` steps of a stage."""

    metric: str
    mode: str
    window: int

    def of(self, metrics: Path, stage: str) -> list[float]:
        """Return the score after each step of the stage so far."""
        rows = [row for row in read_json_lines(metrics) if row["stage"] == stage and self.metric in row]
        values = [row[self.metric] for row in rows]
        return [statistics.fmean(values[max(0, i - self.window) : i]) for i in range(1, len(values) + 1)]


@dataclass(frozen=True)
class Places:
    """Where the command was started (relative paths of a configuration begin there), and where runs' logs go."""

    folder: str
    logs: str


def stage_of(config: Config) -> tuple[str, int]:
    """Return the last stage that the run is asked for, and its number of steps."""
    stage = "contrastive" if config.stage == "all" else config.stage
    steps = {
        "sft": config.sft.epochs,
        "self_supervised": config.self_supervised.rounds,
        "contrastive": config.contrastive.steps,
    }
    return stage, steps[stage]


def compose(overrides: list[str]) -> tuple[SweepFolder, list[SweepJob]]:
    """Return the sweep's folder and its jobs, as `cudal1 train -m` makes them.

    Raises:
        UserError: naming the setting or the folder at fault.
    """
    keys = {override.lstrip("+").partition("=")[0] for override in overrides}
    overrides = prepare_overrides(overrides, sweep=True)
    added = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in keys]
    with composing() as hydra:
        sweep = hydra.compose_config("config", [*overrides, *added], RunMode.MULTIRUN, with_log_configuration=False)
        loader = hydra.config_loader
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(sweep.hydra.overrides.task))
        (combinations,) = BasicSweeper.split_arguments(parsed, max_batch_size=None)
        return make_jobs(loader, sweep, combinations)


def room_of(config: Config) -> list[dict[str, float]]:
    """Return the bundles of a trial: the driver's, and one for all of the actors that it starts.

    Several bundles would be filled without regard to whose is whose, and a small actor could be in a large one's place.
    """
    driver, *actors = job_bundles(started_cluster(config), DRIVER_CPUS)
    return [driver, total(actors)]


def check_room(jobs: list[SweepJob]) -> None:
    """Raise UserError when no node of the cluster can hold one of the runs."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for job in jobs:
        demand = total(room_of(job.config))
        if not any(all(node.get(key, 0.0) >= amount for key, amount in demand.items()) for node in nodes):
            raise UserError(
                f"{job.name}: it asks for {demand}, which no single node has; `cudal1 train -m` spreads a run"
            )


def run_trial(trial: dict[str, Any], jobs: dict[str, Config], done: set[str], score: Score, places: Places) -> None:
    """Run one job to its end, or until ASHA stops it, and report every step; those of an earlier attempt first.

    Raises:
        RuntimeError: when the run fails, with the cause in one line.
    """
    name = trial["job"]
    config = jobs[name]
    stage, _ = stage_of(config)
    metrics = Path(places.folder, config.runs_dir, config.name, "metrics.jsonl")
    report_count = 0

    def report(**more: Any) -> None:
        nonlocal report_count
        scores = score.of(metrics, stage)
        while report_count < len(scores):
            report_count += 1
            # A run that ASHA stops gets no further than this call.
            tune.report({score.metric: scores[report_count - 1], STEPS: report_count})
        if more and scores:
            tune.report({score.metric: scores[-1], STEPS: report_count, **more})

    report()
    if name not in done:
        driver = drive.options(num_cpus=0).remote(config, places.folder, str(Path(places.logs, f"{name}.log")))
        while not ray.wait([driver], timeout=POLL_S)[0]:
            report()
        code, cause = ray.get(driver)
        if code:
            raise RuntimeError(cause or f"exit code {code}")
    report(finished=True)


class Journal(tune.Callback):
    """Writes down what becomes of each run where a sweep has it, and shows the sweep's table."""

    def __init__(self, folder: SweepFolder, jobs: list[SweepJob], table: SweepTable):
        self.endings: dict[str, str] = {}
        self._folder, self._jobs, self._table = folder, {job.name: job for job in jobs}, table

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing to keep: Tune stores its callbacks beside the trials, and never restores this one."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        job = self._jobs[trial.config["job"]]
        self._folder.note(job, "started")
        self._table.started(job)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._table.refresh()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.last_result.get("finished"):
            self.end(trial.config["job"], "finished")
        else:
            name = trial.config["job"]
            _, steps = stage_of(self._jobs[name].config)
            self.end(name, "interrupted", f"stopped by ASHA after {trial.last_result.get(STEPS)} of {steps} steps")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        lines = [line.strip() for line in str(trial.get_error() or "").splitlines() if line.strip()]
        self.end(trial.config["job"], "failed", lines[-1] if lines else "its process was lost")

    def end(self, name: str, state: str, cause: str = "") -> None:
        self.endings[name] = state
        self._folder.note(self._jobs[name], state, cause)
        self._table.ended(self._jobs[name], state, cause)


def search(overrides: list[str], score: Score, grace: int, factor: float) -> int:
    """Run or continue the sweep; return the exit code: 0 finished or stopped by ASHA, 1 some failed, 130 interrupted.

    Raises:
        UserError: naming the setting, the folder or the run at fault.
    """
    folder, jobs = compose(overrides)
    last_step = min(stage_of(job.config)[1] for job in jobs)
    if not 1 <= grace < last_step or factor <= 1:
        raise UserError(f"--grace {grace} --factor {factor:g}: of {last_step} steps, grace below that; factor above 1")
    connect(jobs[0].config.cluster)
    check_room(jobs)
    done = {job.name for job in jobs if folder.is_finished(job)}
    configs = {job.name: replace(job.config, cluster=inside(job.config.cluster)) for job in jobs}
    places = Places(os.getcwd(), str(folder.logs.resolve()))
    trial = tune.with_parameters(run_trial, jobs=configs, done=done, score=score, places=places)
    rooms = {job.name: room_of(job.config) for job in jobs}
    # A run that has made its last step is not stopped before it is assessed: no rung there.
    asha = ASHAScheduler(
        STEPS, max_t=last_step - 1, grace_period=grace, reduction_factor=factor, stop_last_trials=False
    )
    with SweepTable(folder.path, jobs) as table:
        journal = Journal(folder, jobs, table)
        tune.Tuner(
            tune.with_resources(trial, lambda chosen: tune.PlacementGroupFactory(rooms[chosen["job"]])),
            param_space={"job": tune.grid_search(list(configs))},
            tune_config=tune.TuneConfig(metric=score.metric, mode=score.mode, scheduler=asha),
            run_config=tune.RunConfig(
                name=time.strftime("%Y%m%d-%H%M%S"),
                storage_path=str((folder.path / "tune").resolve()),
                verbose=0,
                callbacks=[journal],
            ),
        ).fit()
        interrupted = [name for name in configs if name not in journal.endings]
        for name in interrupted:
            journal.end(name, "interrupted", "the same command continues it")
    if "finished" in journal.endings.values():
        try:
            present_sweep(folder.path, table.console)
        except UserError as error:  # runs without an assessment have no table; that is no mistake
            table.console.print(str(error), highlight=False, markup=False, soft_wrap=True)
    if interrupted:
        return 130
    return 1 if "failed" in journal.endings.values() else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="+", metavar="key=value", help="settings of `cudal1 train -m`")
    parser.add_argument(
        "--metric", default="geomean_speedup", help="column of metrics.jsonl (default: geomean_speedup)"
    )
    parser.add_argument("--mode", choices=("max", "min"), default="max", help="what is better (default: max)")
    parser.add_argument("--window", type=int, default=3, help="steps that a score is the mean of (default: 3)")
    parser.add_argument("--grace", type=int, default=4, help="steps before a run may be stopped (default: 4)")
    parser.add_argument(
        "--factor", type=float, default=2.0, help="of the runs at a rung, one in FACTOR goes on (default: 2)"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = build_parser().parse_args(arguments)
    try:
        return search(
            options.overrides, Score(options.metric, options.mode, options.window), options.grace, options.factor
        )
    except UserError as error:
        print(f"tune_asha: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
