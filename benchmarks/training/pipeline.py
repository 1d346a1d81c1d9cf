#!/usr/bin/env python3
"""Steps per hour of the contrastive stage, in turn (staleness 0) and side by side (staleness 1), and idle shares.

One run, one crew of actors: blocks of steps with the one and the other setting alternate, ABBA, so that the policy, its
exemplars and whatever else the machine does are the same for both. The first and the last step of a block, in which the
pipeline fills and drains, do not count. Idle shares are of the members' time, between the steps that count. Ctrl-C or
SIGTERM ends it with the pairs of blocks that are done.

On a CPU, from a finished run, or from one that is trained for it first (some minutes more):

    python -m benchmarks.training.pipeline --origin runs/demo
    python -m benchmarks.training.pipeline

On GPUs, with a pretrained policy, which needs no stage before:

    python -m benchmarks.training.pipeline --out FILE.json recipe=kernelbench_four_gpus \
        prompting=full policy=qwen2.5-coder-1.5b policy.path=PATH problems=kernelbench_parquet problems.path=FILE \
        contrastive.problems_per_step=16
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.common.results import new_result, write_result
from cudal1_ray.actors.placement import connect
from cudal1_ray.analysis.statistics import geometric_ratio
from cudal1_ray.config import Config, load_config
from cudal1_ray.problems import load_problems
from cudal1_ray.training.pipeline import Pipeline
from cudal1_ray.training.preflight import check_overlap
from cudal1_ray.training.preparation import prepare_run
from cudal1_ray.training.progress import Progress
from cudal1_ray.training.roles import ROLES, idle_over_steps
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.session import Session
from cudal1_ray.training.stages.contrastive import contrastive_stage
from cudal1_ray.training.stopping import Stopper
from cudal1_ray.training.train import open_session, train

EARLIER_STAGES = ("sft", "self_supervised")


def prepared_origin(folder: Path, overrides: list[str]) -> Path:
    """Return a run whose first two stages are done, for a policy that is made from scratch."""
    for stage in EARLIER_STAGES:
        config = load_config(
            [*overrides, f"runs_dir={folder}", "name=origin", f"stage={stage}", "assessment.enabled=false"]
        )
        if code := train(config):
            raise SystemExit(code)
    return folder / "origin"


def run_blocks(session: Session, blocks: int, steps: int, warm_up: int) -> list[dict[str, Any]]:
    """Return {staleness, rows} of each block, in the order they ran, after one that warms up."""
    settings, learner = session.config.contrastive, session.crew.learner
    session.measure_exemplars(session.rotation)
    learner.start_stage(settings.learning_rate, temperature=settings.temperature)
    if session.config.algorithm.kl_coef > 0:
        learner.set_reference_policy()
    session.ensure_published()
    stage = contrastive_stage(session)
    session.progress.stage(stage.name, stage.steps)
    Pipeline(session, stage).run(0, warm_up)
    done, measurements = warm_up, []
    try:
        for number in range(2 * blocks):
            staleness = (0, 1, 1, 0)[number % 4]
            Pipeline(session, dataclasses.replace(stage, staleness=staleness)).run(done, done + steps)
            done += steps
            rows = list(session.metrics.lines)[-steps:]
            measurements.append({"staleness": staleness, "rows": rows[1:-1]})
    except KeyboardInterrupt:  # the pairs of blocks that are done are worth their table
        if len(measurements) < 2:
            raise
    return measurements[: len(measurements) // 2 * 2]


def steps_per_hour(rows: list[dict[str, Any]]) -> float:
    return 3600.0 * len(rows) / sum(row["step_s"] for row in rows)


def summarise(blocks: list[dict[str, Any]], members: dict[str, int]) -> dict[str, Any]:
    """Return rates and idle shares of both settings, and the ratio of rates of neighbouring blocks."""
    rates = {
        staleness: [steps_per_hour(block["rows"]) for block in blocks if block["staleness"] == staleness]
        for staleness in (0, 1)
    }
    ratios = [second / first for first, second in zip(rates[0], rates[1], strict=True)]
    ratio, interval = geometric_ratio(ratios)
    settings = {}
    for staleness in (0, 1):
        rows = [row for block in blocks if block["staleness"] == staleness for row in block["rows"]]
        settings[f"staleness_{staleness}"] = {
            "steps": len(rows),
            "steps_per_hour": steps_per_hour(rows),
            "steps_per_hour_of_blocks": rates[staleness],
            "idle_share": idle_over_steps(rows, members),
            "busy_s_per_step": {
                role: sum(row[f"busy_{role}"] for row in rows) / len(rows) / members[role] for role in ROLES
            },
            "weight_sync_s_per_step": sum(row.get("busy_sync", 0.0) for row in rows) / len(rows),
            "tokens_per_s_of_an_engine": sum(row.get("tokens_per_s", 0.0) for row in rows) / len(rows),
            "staleness_max": max(row["staleness_max"] for row in rows),
            "drift_alarms": sum(row.get("drift_alarm", 0.0) for row in rows),
        }
    return settings | {"ratio": ratio, "interval": interval, "ratio_of_blocks": ratios}


def show(console: Console, result: dict[str, Any]) -> None:
    table = Table("", "staleness 0", "staleness 1")
    pair = [result["staleness_0"], result["staleness_1"]]
    table.add_row("steps per hour", *(f"{figures['steps_per_hour']:,.0f}" for figures in pair))
    for role in ROLES:
        table.add_row(f"{role}, idle", *(f"{figures['idle_share'][role]:.0%}" for figures in pair))
    for role in ROLES:
        table.add_row(f"{role}, busy s a step", *(f"{figures['busy_s_per_step'][role]:.2f}" for figures in pair))
    table.add_row("weight sync, s a step", *(f"{figures['weight_sync_s_per_step']:.3f}" for figures in pair))
    console.print(table)
    low, high = result["interval"] or (math.nan, math.nan)
    line = f"staleness 1 over staleness 0: times {result['ratio']:.2f} ({low:.2f} to {high:.2f})"
    console.print(line, highlight=False)


def measure(config: Config, blocks: int, steps: int, warm_up: int, console: Console) -> dict[str, Any]:
    problems, run = load_problems(config.problems), RunFolder.open(config)
    prepare_run(config, run, problems, "contrastive")
    connect(config.cluster)
    Stopper().listen()  # SIGTERM ends the blocks as Ctrl-C does: a background process has no Ctrl-C
    with (
        Progress(config.name, str(run.path), console) as progress,
        open_session(config, run, problems, "contrastive", progress) as session,
    ):
        measurements = run_blocks(session, blocks, steps, warm_up)
        members, finished = session.clock.members, len(measurements) == 2 * blocks
        return {"members": members, "finished": finished, **summarise(measurements, members)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--origin", type=Path, help="a finished run to start from, for example runs/demo")
    parser.add_argument("--blocks", type=int, default=4, help="of each setting")
    parser.add_argument("--steps", type=int, default=6, help="of each block, at least 3")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before the first block")
    parser.add_argument("--out", type=Path, default=new_result("pipeline"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parse_with_settings(parser)
    if arguments.steps < 3 or arguments.blocks < 1 or arguments.warm_up < 1:
        parser.error("--steps 3 or more, --blocks and --warm-up 1 or more")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="cudal1-pipeline-", ignore_cleanup_errors=True) as folder:
        total = arguments.warm_up + 2 * arguments.blocks * arguments.steps
        overrides = [*arguments.overrides]
        scratch = load_config(overrides).policy.kind == "scratch"
        origin = arguments.origin or (prepared_origin(Path(folder), overrides) if scratch else None)
        overrides += [f"runs_dir={folder}", "name=run", "stage=contrastive", f"contrastive.steps={total + 1}"]
        overrides += ["assessment.enabled=false", *([f"init_from={origin}"] if origin else [])]
        config = load_config(overrides)
        beside = dataclasses.replace(config, contrastive=dataclasses.replace(config.contrastive, staleness=1))
        check_overlap(beside)
        result = measure(config, arguments.blocks, arguments.steps, arguments.warm_up, console)
    show(console, result)
    result["candidates_per_step"] = config.contrastive.problems_per_step * config.contrastive.group_size
    write_result(arguments.out, result, vars(arguments))
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
