"""The `cudal1` command. Heavy packages are imported by the command that needs them, so `--help` answers at once."""

from __future__ import annotations

import argparse
import errno
import sys

from cudal1_ray import __version__
from cudal1_ray.errors import UserError

TRAIN_HELP = """\
Trains a policy: supervised fine-tuning, self-supervised, then contrastive reinforcement learning.

With no argument it runs the demo: a small model trained from scratch on this machine's CPU, in minutes.
The run is a folder, runs/<name>. Interrupt it at any moment; the same command continues it.
"""
TRAIN_EXAMPLES = """\
settings are `key=value`, presets are `group=name` (a file of conf/<group>/):
  cudal1 train                                     the demo
  cudal1 train name=mine seed=2 contrastive.steps=40
  cudal1 train name=mine stage=sft                 one stage; then stage=self_supervised, stage=contrastive
  cudal1 train name=plain-grpo init_from=runs/demo stage=contrastive exemplars=none
  cudal1 train policy=qwen2.5-coder-1.5b prompting=full problems=kernelbench_hub rollout=vllm_gpu ...
  cudal1 train --cfg                               print the composed configuration, run nothing
sweeps: with -m every combination of `key=a,b,c` is a run of its own, side by side where the Ray cluster has room:
  cudal1 train -m exemplars=uniform,bucket,island seed=1,2,3 name=which-exemplars
  cudal1 report --sweep runs/which-exemplars       its table again
"""


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 2 a mistake that the printed line says how to mend."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except UserError as error:
        print(f"cudal1: {error}", file=sys.stderr)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        where = error.filename or "the run's folder"
        print(f"cudal1: {where}: {error.strerror}; nothing written so far is lost, run it again after", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cudal1",
        description="Contrastive reinforcement learning that turns a language model into a CUDA optimiser.",
    )
    parser.add_argument("--version", action="version", version=f"cudal1_ray {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)

    train = commands.add_parser(
        "train",
        help="train a policy (no argument: the demo)",
        description=TRAIN_HELP,
        epilog=TRAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.add_argument("overrides", nargs="*", metavar="key=value", help="settings, see below")
    modes = train.add_mutually_exclusive_group()
    modes.add_argument("--cfg", action="store_true", help="print the composed configuration and stop")
    modes.add_argument("-m", "--multirun", action="store_true", help="a sweep: a run for every combination of values")
    train.set_defaults(run=_train)

    evaluate = commands.add_parser(
        "evaluate",
        help="measure whether a candidate is right, and how much faster it is",
        description="Judges one candidate (a file that defines ModelNew) against a problem (a KernelBench file).",
    )
    evaluate.add_argument("candidate", help="Python file that defines ModelNew")
    evaluate.add_argument("--problem", required=True, help="KernelBench file, or the id of a bundled problem")
    evaluate.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure (default: cpu)")
    evaluate.add_argument("--json", action="store_true", help="print the verdict as JSON")
    evaluate.set_defaults(run=_evaluate)

    report = commands.add_parser(
        "report",
        help="write the table and the HTML report of a run or a sweep anew",
        description="Reads the folder of a run or of a sweep, and writes its table and HTML report into report/ there.",
    )
    folder = report.add_mutually_exclusive_group(required=True)
    folder.add_argument("run_folder", nargs="?", help="for example runs/demo")
    folder.add_argument(
        "--sweep", metavar="DIR", help="a sweep's folder: one table with intervals over seeds, and tests"
    )
    report.set_defaults(run=_report)

    doctor = commands.add_parser(
        "doctor",
        help="what this machine can do, and what to install for more",
        description="Checks engine, devices, compiler and sandbox, and measures the timing noise of this machine.",
    )
    doctor.set_defaults(run=_doctor)
    return parser


def _train(arguments: argparse.Namespace) -> int:
    if arguments.multirun:
        from cudal1_ray.training.sweeps import run_sweep

        return run_sweep(arguments.overrides)
    from cudal1_ray.config import load_config, to_yaml

    config = load_config(arguments.overrides)
    if arguments.cfg:
        print(to_yaml(config), end="")
        return 0
    from cudal1_ray.training import train

    return train(config)


def _evaluate(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.evaluate import evaluate_file

    return evaluate_file(arguments.candidate, arguments.problem, arguments.device, arguments.json)


def _report(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    if arguments.sweep:
        from cudal1_ray.analysis.sweep_page import present_sweep

        present_sweep(arguments.sweep, Console())
        return 0
    from cudal1_ray.analysis import present

    present(arguments.run_folder, Console())
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.doctor import examine

    return examine()


if __name__ == "__main__":
    sys.exit(main())
