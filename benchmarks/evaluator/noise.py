#!/usr/bin/env python3
"""Is noise sold as speed? References against themselves, and the same candidate twice.

python -m benchmarks.evaluator.noise --device cuda --problems kernelbench.parquet --rows 0:250:5
python -m benchmarks.evaluator.noise --device cuda --published cuda_l1_published_h100.parquet --rows 0:250:5
python -m benchmarks.evaluator.noise --device cpu --busy 2      # while two other processes compute
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.common.command_line import run_command
from benchmarks.common.results import write_result
from benchmarks.evaluator.common import evaluation_config, published_pairs, reference_pairs, rows_of
from cudal1_ray.analysis import describe_environment
from cudal1_ray.evaluation.pool import EvaluatorPool


def _compute(stop: object) -> None:
    import torch

    torch.set_num_threads(1)
    matrix, owner = torch.randn(512, 512), multiprocessing.parent_process()
    while not stop.is_set() and owner.is_alive():  # a killed owner cannot set the event
        matrix = torch.tanh(matrix @ matrix)


def share(values: list[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def ratios(figure: str, verdicts: dict[str, list[dict]]) -> list[float]:
    """Return the ratio of each later verdict's figure to the first one's, where both have it."""
    pairs = [(rows[0][figure], later[figure]) for rows in verdicts.values() for later in rows[1:]]
    return [later / first for first, later in pairs if first and later]


def moved(name: str, first: dict, later: dict) -> str:
    """Return what differs between two measurements: the reference's time, the candidate's, or the cores' pace."""

    def times(key: str) -> str:
        both = [
            median([process[key] for process in verdict["processes"] if process["counted"]])
            for verdict in (first, later)
        ]
        return f"{both[0]:.4g}, {both[1]:.4g}" if all(both) else "-"

    figures = [f"{name:20} {first['speedup']:.4f}, {later['speedup']:.4f}"]
    figures += [f"reference {times('reference_ms')} ms", f"candidate {times('runtime_ms')} ms"]
    return "  ".join([*figures, f"core {times('core_us')} us"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=Path, default=None, help="Parquet of KernelBench; by default the bundled")
    parser.add_argument("--published", type=Path, default=None, help="Parquet of CUDA-L1: its kernels, twice each")
    parser.add_argument("--rows", type=rows_of, default=slice(None), help="first:end:step")
    parser.add_argument("--only", default="", help="these of them, in this order: level2_51,level1_1")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--certain", action="store_true", help="as `cudal1 evaluate --certain` measures")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("overrides", nargs="*", metavar="evaluation.key=value")
    arguments = parser.parse_args()
    console = Console(width=160)
    if arguments.published and (arguments.problems or arguments.repeats < 2):
        parser.error("--published compares a candidate with itself: at least --repeats 2, and no --problems")
    themselves = arguments.published is None
    if themselves:
        pairs = reference_pairs(arguments.problems, arguments.rows)
    else:
        pairs = published_pairs(arguments.published, arguments.rows)
    if arguments.only:
        named, names = {pair[0]: pair for pair in pairs}, arguments.only.split(",")
        if unknown := [name for name in names if name not in named]:
            parser.error(f"--only: {', '.join(unknown)} not among the rows asked for")
        pairs = [named[name] for name in names]
    preset = f"{arguments.device}_certain" if arguments.certain else arguments.device
    config = evaluation_config(preset, arguments.overrides)
    config.rules.same_operations = "measure"
    within, alike = (0.01, 0.02) if arguments.device == "cuda" else (0.03, 0.02)
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    others = [context.Process(target=_compute, args=(stop,), daemon=True) for _ in range(arguments.busy)]
    for other in others:
        other.start()
    verdicts: dict[str, list[dict]] = {}
    left_out: dict[str, str] = {}
    start = time.perf_counter()

    def result(finished: bool) -> dict:
        """Return what is known by now, which is written after every measurement: no end of the process loses any."""
        speedups = [verdict["speedup"] for rows in verdicts.values() for verdict in rows]
        held = [row["speedup_low"] <= 1 <= row["speedup_high"] for rows in verdicts.values() for row in rows]
        twice = ratios("speedup", verdicts)
        alone = ratios("device_speedup", verdicts)
        on_device = [row["device_speedup"] for rows in verdicts.values() for row in rows if row["device_speedup"]]
        summary = {
            "finished": finished, "problems": len(verdicts), "measurements": len(speedups), "left_out": left_out,
            f"twice_within_{alike:.0%}": share([abs(ratio - 1) <= alike for ratio in twice]),
            "worst_twice": max((abs(ratio - 1) for ratio in twice), default=None),
            f"device_alone_within_{alike:.0%}": share([abs(ratio - 1) <= alike for ratio in alone]),
            "worst_device_alone": max((abs(ratio - 1) for ratio in alone), default=None),
            "seconds_per_measurement": (time.perf_counter() - start) / max(1, len(speedups)),
        }  # fmt: skip
        if themselves:
            summary |= {
                f"within_{within:.0%}": share([abs(speedup - 1) <= within for speedup in speedups]),
                "above_1_01": share([speedup > 1.01 for speedup in speedups]),
                "interval_covers_1": share(held),
                "worst": max((abs(speedup - 1) for speedup in speedups), default=None),
                f"device_alone_itself_within_{within:.0%}": share(
                    [abs(speedup - 1) <= within for speedup in on_device]
                ),
            }
        if arguments.out:
            configuration = vars(arguments) | {"preset": preset}
            metrics = summary | {"verdicts": verdicts}
            write_result(arguments.out, metrics, configuration, environment=environment)
        return summary

    environment, finished = describe_environment(), False
    try:
        with EvaluatorPool(config) as pool:
            for repeat in range(arguments.repeats):
                remaining = [pair for pair in pairs if pair[0] in verdicts] if repeat else pairs
                marked = [(name, problem, f"{code}\n# {repeat}\n") for name, problem, code in remaining]
                for name, verdict in pool.evaluate_all(marked):
                    if not verdict.accepted:
                        left_out[name] = f"{','.join(verdict.reasons)}: {verdict.detail}"
                        console.print(f"  left out: {name} {left_out[name][:110]}", highlight=False, markup=False)
                        continue
                    verdicts.setdefault(name, []).append(verdict.to_dict())
                    result(finished)
                    console.print(
                        f"  {time.perf_counter() - start:6.1f} s  {name:24} {verdict.speedup:.4f} "
                        f"[{verdict.speedup_low:.4f}, {verdict.speedup_high:.4f}] {verdict.reference_ms:9.4f} ms "
                        f"{verdict.timed_runs:5d} runs {verdict.evaluation_s:6.2f} s", highlight=False,
                    )  # fmt: skip
        finished = True
    except KeyboardInterrupt:  # what was measured until then is worth its table
        console.print("interrupted")
    finally:
        stop.set()
        for other in others:
            other.join(10)
    for name, rows in verdicts.items():
        for later in rows[1:]:
            if abs(later["speedup"] / rows[0]["speedup"] - 1) > alike:
                console.print(f"  apart: {moved(name, rows[0], later)}", highlight=False, markup=False)
    table = Table(title="A reference against itself" if themselves else "The same kernels again", show_header=False)
    for name, value in result(finished).items():
        if name != "left_out":
            table.add_row(name.replace("_", " "), f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)


if __name__ == "__main__":
    run_command(main)
