#!/usr/bin/env python3
"""Every selection strategy on a thousand simulated problems, without a model, on one core.

Recorded verdicts are the world, the real strategies draw from a real buffer, and a stated rule stands for the policy;
what is assumed is printed with the result. The main assumption, that a policy makes something of the speedups it is
shown, is made once and once turned into its opposite: what holds in one case only is the assumption's doing.

    python -m benchmarks.exemplars.population [--problems 1000] [--rounds 24] [--runs FOLDER ...]
    python -m benchmarks.exemplars.population --write-docs   the last result into docs/ablations.md; simulates nothing

`--runs` takes the recorded verdicts anew from the folders of finished runs, into the file of `--recorded`.
"""

from __future__ import annotations

import argparse
import math
import textwrap
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import run_command
from benchmarks.common.marked_section import write_section
from benchmarks.common.results import latest_result, new_result, read_result, write_result
from benchmarks.exemplars.population_plot import save_plot
from benchmarks.exemplars.recorded_runs import record
from benchmarks.exemplars.simulation.policy import COPYIST, PolicyRule, reader
from benchmarks.exemplars.simulation.population import Outcome, simulate
from benchmarks.exemplars.simulation.recorded import Recorded, read_recorded
from benchmarks.exemplars.simulation.world import World, WorldConfig, build_world
from cudal1_ray.analysis.statistics import t_interval
from cudal1_ray.analysis.tables import markdown_lines
from cudal1_ray.config import config_dir
from cudal1_ray.exemplars import ExemplarsConfig

AGAINST = "bucket"
HEADINGS = ("strategy", "best so far", "against bucket", "regret", "written", "contrast", "distinct")


def presets() -> list[ExemplarsConfig]:
    """Return every strategy, as `conf/exemplars` configures it."""
    schema, files = OmegaConf.structured(ExemplarsConfig), sorted((config_dir() / "exemplars").glob("*.yaml"))
    return [OmegaConf.to_object(OmegaConf.merge(schema, OmegaConf.load(file))) for file in files]


def assumptions(
    recorded: Recorded, config: WorldConfig, rules: list[PolicyRule], rounds: int, writes: int
) -> list[str]:
    """Return what the result rests on, a sentence or two each."""
    first, second = rules
    return [
        f"Recorded are the ladders of speedups, the failure rates and reasons, the noise (a candidate measured again "
        f"differs by {recorded.noise:.1%}) and how strongly a copy prefers the faster exemplar "
        f"(k = {recorded.speed_exponent:.1f}). They come from {recorded.source}.",
        f"A problem has {config.techniques} techniques, whose gains are drawn from the steps of one recorded ladder "
        "and scaled to its ends: no technique is the slowest recorded candidate, the best set of them the fastest. Two "
        f"techniques interfere with probability {config.interference:g}: then only the smaller gain of both counts.",
        "A completion starts from one of the exemplars shown, the reference where there is none. It loses each "
        f"technique with probability {first.drop:g}, takes one over from another exemplar with {first.borrow:g}, and "
        f"finds one that no exemplar shows with {config.ease[0]:g} to {config.ease[1]:g}, depending on the technique. "
        "It fails as often as recorded for the problem, whatever it tries.",
        f"*Reads the speedups*: exemplar e is started from with a probability proportional to s_e^k, k as recorded. "
        "Contrast is 1 − slowest/fastest of those shown; full contrast keeps a technique that a slower exemplar lacks "
        f"from being lost, makes new ones {1 + first.inspiration:g} times as likely, and a shown failure takes away "
        f"{first.heed:.0%} of the risk of trying the same. These figures are guesses.",
        f"*{second.name[:1].upper()}{second.name[1:]}*: any exemplar shown is started from alike; contrast and "
        "failures tell it nothing.",
        "The policy does not learn: what is compared is the prompt alone. So `none` stands for sampling without "
        "exemplars, not for plain GRPO.",
        f"{config.problems:,} problems, {rounds} rounds of {writes} completions for each, after {writes} without "
        "exemplars that are the same for all strategies. Only what the policy has not written before is measured.",
    ]


def describe(outcome: Outcome, bucket: Outcome) -> dict[str, Any]:
    """Return the figures of one strategy under one rule; speedups are geometric means over problems."""
    final = outcome.best_log[:, -1]
    difference = final - bucket.best_log[:, -1]
    interval = t_interval(difference.tolist())
    return {
        "best_by_round": [round(float(value), 4) for value in np.exp(outcome.best_log.mean(axis=0))],
        "best": math.exp(final.mean()),
        "against_bucket": math.exp(difference.mean()),
        "against_bucket_interval": [math.exp(bound) for bound in interval] if interval else None,
        "regret": float(outcome.regret[:, -1].mean()),
        "regret_mean_over_rounds": float(outcome.regret.mean()),
        "written_last_round": math.exp(outcome.written_log[-1]),
        "contrast_shown": float(outcome.contrast.mean()),
        "exemplars_shown": outcome.shown,
        "distinct_sets": float(outcome.distinct.mean()),
        "copy_rate": outcome.copy_rate,
    }


def run(world: World, rules: list[PolicyRule], rounds: int, writes: int, seed: int, console: Console) -> dict[str, Any]:
    settings = {}
    for rule in rules:
        outcomes = {}
        for config in presets():
            started = time.process_time()
            outcomes[config.strategy] = simulate(world, config, rule, rounds=rounds, writes=writes, seed=seed)
            console.print(f"{rule.name}: {config.strategy}, {time.process_time() - started:.1f} s", highlight=False)
        described = {name: describe(outcome, outcomes[AGAINST]) for name, outcome in outcomes.items()}
        settings[rule.name] = dict(sorted(described.items(), key=lambda item: -item[1]["best"]))
    return settings


def table_rows(strategies: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, summary in strategies.items():
        low, high = summary["against_bucket_interval"] or (math.nan, math.nan)
        ratio = "" if name == AGAINST else f"times {summary['against_bucket']:.2f} ({low:.2f} to {high:.2f})"
        cells = [
            name,
            f"{summary['best']:.2f}",
            ratio,
            f"{summary['regret']:.2f}",
            f"{summary['written_last_round']:.2f}",
        ]
        rows.append([*cells, f"{summary['contrast_shown']:.2f}", f"{summary['distinct_sets']:.1f}"])
    return rows


def ranks(result: dict[str, Any]) -> str:
    """Return bucket's rank under each assumption, and the strategies that are better or worse under both."""
    orders = {rule: list(strategies) for rule, strategies in result["settings"].items()}
    places = [f"{order.index(AGAINST) + 1} of {len(order)} if the policy {rule}" for rule, order in orders.items()]
    sides = [
        {name: _side(summary["against_bucket_interval"]) for name, summary in strategies.items() if name != AGAINST}
        for strategies in result["settings"].values()
    ]
    better, worse = (
        ", ".join(f"`{name}`" for name in sides[0] if all(side[name] == sign for side in sides)) or "no strategy"
        for sign in (1, -1)
    )
    return (
        f"By the best candidate found, `{AGAINST}` has rank {' and '.join(places)}. "
        f"Better than it under both assumptions, by the 95% interval: {better}. Worse under both: {worse}."
    )


def _side(interval: list[float] | None) -> int:
    """Return 1 where a ratio is above 1 for certain, -1 where it is below, 0 where its interval holds 1."""
    return 0 if interval is None else (interval[0] > 1.0) - (interval[1] < 1.0)


def print_result(result: dict[str, Any], console: Console) -> None:
    for rule, strategies in result["settings"].items():
        table = Table(*HEADINGS, title=f"the policy {rule}; the best possible: {result['best_there_is']:.2f}")
        for cells in table_rows(strategies):
            table.add_row(*cells)
        console.print(table)
    console.print(ranks(result), highlight=False, markup=False)
    console.print("Assumed:")
    for line in result["assumptions"]:
        console.print(f"- {line}", highlight=False, markup=False)


def markdown(result: dict[str, Any], picture: str) -> str:
    """Return the section of docs/ablations.md."""
    figures = (
        "*best so far*: geometric mean over problems of the speedup of the candidate that measured fastest, after the "
        f"last round; the best possible is {result['best_there_is']:.2f}. *against bucket*: ratio, with the 95% "
        "interval over problems. *regret*: mean logarithm of the best possible over the best so far. *written*: "
        "geometric mean speedup of the candidates of the last round, a failure counting as 0.1. *contrast*: "
        "1 − slowest/fastest in a prompt. *distinct*: different sets of techniques accepted for a problem."
    )
    written = [
        summary for strategies in result["settings"].values() for name, summary in strategies.items() if name != "none"
    ]
    copies = [strategy["copy_rate"] for strategy in written]
    check = (
        f"A check on the simulated policy: {min(copies):.0%} to {max(copies):.0%} of its accepted candidates are "
        f"copies of an exemplar shown; in the recorded runs {result['recorded_copy_rate']:.0%} were. The simulation "
        f"took {result['cpu_minutes']:.1f} minutes on one core."
    )
    lines = ["## Simulated", "", *_wrapped(ranks(result)), "", f"![best so far by round]({picture})", ""]
    lines += ["Assumptions:", ""]
    lines += [line for point in result["assumptions"] for line in _wrapped(f"- {point}", indent="  ")]
    lines += ["", *_wrapped(figures)]
    for rule, strategies in result["settings"].items():
        lines += ["", f"**The policy {rule}:**", "", *markdown_lines(HEADINGS, table_rows(strategies))]
    return "\n".join([*lines, "", *_wrapped(check)])


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--writes", type=int, default=4, help="completions for each problem and round")
    parser.add_argument("--interference", type=float, default=WorldConfig.interference)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=Path, nargs="+", help="folders of finished runs to take the verdicts from")
    parser.add_argument("--recorded", type=Path, default=latest_result("recorded-candidates"))
    parser.add_argument("--out", type=Path, help="default: a new file; with --write-docs the newest")
    parser.add_argument("--docs", type=Path, default=Path("docs/ablations.md"), help="the picture goes beside it")
    parser.add_argument("--write-docs", action="store_true", help="only write the last result into the page")
    return parser.parse_args()


def main() -> None:
    arguments, console = parse(), Console()
    arguments.out = arguments.out or (latest_result if arguments.write_docs else new_result)("population")
    if arguments.write_docs:
        content = read_result(arguments.out)
        result = content["configuration"] | content["metrics"]
        picture = arguments.docs.with_name("population.svg")
        save_plot(result, picture)
        write_section(arguments.docs, "population simulation", markdown(result, picture.name))
        console.print(f"written: {arguments.docs}, {picture}")
        return
    if arguments.runs:
        write_result(arguments.recorded, record(arguments.runs).to_dict(), {"runs": arguments.runs})
    recorded, started = read_recorded(arguments.recorded), time.process_time()
    config = WorldConfig(problems=arguments.problems, interference=arguments.interference, seed=arguments.seed)
    world, rules = build_world(recorded, config), [reader(recorded.speed_exponent), COPYIST]
    settings = run(world, rules, arguments.rounds, arguments.writes, arguments.seed, console)
    configuration = vars(arguments) | {
        "assumptions": assumptions(recorded, config, rules, arguments.rounds, arguments.writes),
        "world": asdict(config),
        "rules": [asdict(rule) for rule in rules],
    }
    metrics = {
        "best_there_is": math.exp(world.best_log.mean()),
        "recorded_copy_rate": recorded.copy_rate,
        "settings": settings,
        "cpu_minutes": (time.process_time() - started) / 60,
    }
    write_result(arguments.out, metrics, configuration)
    print_result(configuration | metrics, console)
    console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    run_command(main)
