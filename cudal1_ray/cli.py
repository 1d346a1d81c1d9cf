"""The `cudal1` command. Heavy packages are imported by the command that needs them, so `--help` answers at once."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
from typing import Any

from cudal1_ray import __version__
from cudal1_ray.commands.help_texts import (
    ASSESS_EXAMPLES,
    COLLECT_EXAMPLES,
    EVALUATE_EXAMPLES,
    OPTIMIZE_EXAMPLES,
    SAMPLES_EXAMPLES,
    SERVE_EXAMPLES,
    TRAIN_EXAMPLES,
    TRAIN_HELP,
)
from cudal1_ray.errors import UserError


class _Help(argparse.Action):
    """`--help` prints the command's help; `--help KEY` explains a setting, a section or presets, and exits."""

    def __init__(self, *arguments: Any, reference: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reference = reference

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, value: Any, option: str | None = None) -> None:
        if value is None:
            parser.print_help()
            parser.exit()
        from cudal1_ray.commands.settings_help import Reference, explain

        reference = Reference.of_serve() if self._reference == "serve" else Reference.of_train()
        print(explain(value, reference), end="")
        raise SystemExit(0)


def _add_help(parser: argparse.ArgumentParser, reference: str) -> None:
    parser.add_argument(
        "-h",
        "--help",
        nargs="?",
        metavar="KEY",
        action=_Help,
        reference=reference,
        help="this help; with KEY, what a setting, a section or a preset means",
    )


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 2 a mistake that the printed line says how to mend, 130
    interrupted.
    """
    parser = _parser()
    try:
        arguments, rest = parser.parse_known_args(argv)
    except UserError as error:  # of --help KEY
        print(f"cudal1: {error}", file=sys.stderr)
        return 2
    if arguments.run is None:
        parser.print_help()
        return 2
    takes = {_evaluate: "given", _optimize: "overrides", _assess: "overrides"}.get(arguments.run)
    if rest and (takes is None or any(one.startswith("-") for one in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # argparse takes positionals of one place only; settings may stand anywhere
        setattr(arguments, takes, [*getattr(arguments, takes), *rest])
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"cudal1: {error}", file=sys.stderr)
    except KeyboardInterrupt:  # of a command that has nothing to go on with
        print("cudal1: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor does Python's last flush complain
        return 0
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
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="command")

    train = commands.add_parser(
        "train",
        help="train a policy (no argument: the demo)",
        description=TRAIN_HELP,
        epilog=TRAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    train.add_argument("overrides", nargs="*", metavar="key=value", help="settings, see below")
    _add_help(train, "train")
    train.add_argument("--explain", action="store_true", help="with --cfg: each setting with its explanation")
    modes = train.add_mutually_exclusive_group()
    modes.add_argument("--cfg", action="store_true", help="print the composed configuration and stop")
    modes.add_argument("-m", "--multirun", action="store_true", help="a sweep: a run for every combination of values")
    train.set_defaults(run=_train)

    evaluate = commands.add_parser(
        "evaluate",
        help="measure whether a candidate is right, and how much faster it is",
        description="Judges one candidate (a file that defines ModelNew) against a problem (a KernelBench file), or "
        "every pair of a manifest.",
        epilog=EVALUATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    _add_help(evaluate, "train")
    evaluate.add_argument("given", nargs="*", metavar="CANDIDATE | key=value", help="Python file; settings, see below")
    evaluate.add_argument("--problem", help="KernelBench file, or the id of a bundled problem")
    evaluate.add_argument("--manifest", metavar="PAIRS", help='JSON lines {"id", "problem", "candidate"}')
    evaluate.add_argument(
        "--run",
        dest="run_folder",
        metavar="RUN_FOLDER",
        help="a folder of KernelBench generations (level_1_problem_2_sample_0_kernel.py); problems=... are settings",
    )
    evaluate.add_argument("--out", metavar="VERDICTS", help="JSON lines, one for each row of the manifest or of --run")
    evaluate.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure (default: cpu)")
    evaluate.add_argument(
        "--certain",
        action=argparse.BooleanOptionalAction,
        help="many more processes, several times as long (default: for a CANDIDATE on a GPU)",
    )
    evaluate.add_argument("--against", metavar="BASELINES", help="eager, tuned_eager, cuda_graph, compile, ...; or all")
    evaluate.add_argument("--ray", nargs="?", const="auto", metavar="ADDRESS", help="over the evaluators of a cluster")
    evaluate.add_argument(
        "--on", action="append", metavar="TYPE", help="with --ray: on every type given; --out is a folder then"
    )
    evaluate.add_argument(
        "--fail-on",
        choices=("rejected", "slower"),
        help="exit code 1 for a CANDIDATE that is rejected, or that is rejected or slower",
    )
    evaluate.add_argument("--json", action="store_true", help="print the verdict as JSON")
    evaluate.set_defaults(run=_evaluate)

    serve = commands.add_parser(
        "serve",
        help="answer over HTTP: OpenAI's protocol, and modules made faster",
        description="Serves a policy on Ray Serve and vLLM until it is told to stop; requests under way are finished.",
        epilog=SERVE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    _add_help(serve, "serve")
    serve.add_argument("overrides", nargs="*", metavar="key=value", help="settings, see below")
    instead = serve.add_mutually_exclusive_group()
    instead.add_argument("--cfg", action="store_true", help="print the composed configuration and stop")
    instead.add_argument("--add-key", metavar="NAME", default="", help="make an API key and stop")
    instead.add_argument("--revoke-key", metavar="NAME", default="", help="revoke an API key and stop")
    serve.add_argument("--explain", action="store_true", help="with --cfg: each setting with its explanation")
    serve.set_defaults(run=_serve)

    collect = commands.add_parser(
        "collect",
        help="gather candidates for stage 1 from any policy, verified",
        description="Asks a policy, here or behind an OpenAI-compatible server, for candidates of every training "
        "problem, has each evaluated, and keeps the accepted ones.",
        epilog=COLLECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    _add_help(collect, "train")
    collect.add_argument("overrides", nargs="*", metavar="key=value", help="settings, see below")
    collect.add_argument("--cfg", action="store_true", help="print the composed configuration and stop")
    collect.set_defaults(run=_collect)

    optimize = commands.add_parser(
        "optimize",
        help="make one module faster, verified",
        description="Rounds of contrastive prompting for one KernelBench file. The fastest candidate that holds when "
        "measured again is saved beside it.",
        epilog=OPTIMIZE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    _add_help(optimize, "serve")
    optimize.add_argument("file", help="Python file: a problem, or any nn.Module with --inputs")
    optimize.add_argument("overrides", nargs="*", metavar="key=value", help="settings of `cudal1 serve`")
    optimize.add_argument("--inputs", metavar="ARGS", default="", help='what forward takes: "randn(64, 128), 3"')
    optimize.add_argument("--init", metavar="ARGS", default="", help='what the constructor takes: "128, depth=2"')
    optimize.add_argument("--class", metavar="NAME", default="", dest="class_name", help="which class, if several")
    optimize.add_argument("--fresh", action="store_true", help="with --server: do not share an earlier, identical job")
    optimize.add_argument("--server", metavar="URL", default="", help="let a running `cudal1 serve` do it")
    optimize.add_argument("--key-file", metavar="FILE", default="", help="with --server: file that holds the API key")
    optimize.set_defaults(run=_optimize)

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

    assess = commands.add_parser(
        "assess",
        help="sample any policy of a run on its problems",
        description="Samples a policy of a run anew, has every answer evaluated apart from all that training saw, and "
        "prints success, own kernels, fast_p, geometric mean and the best of n beside what was assessed before.",
        epilog=ASSESS_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    assess.add_argument("run_folder", help="for example runs/demo")
    assess.add_argument("overrides", nargs="*", metavar="key=value", help="other settings than the run's")
    assess.add_argument(
        "--policy",
        action="append",
        metavar="POLICY",
        help="base, latest, a checkpoint's name, or the folder of an adapter; may be repeated (default: latest)",
    )
    assess.add_argument("--split", action="append", choices=("train", "held_out"), help="default: both")
    assess.add_argument("--samples", type=int, help="of each problem (default: the run's)")
    assess.add_argument("--problems", type=int, help="of each split, the same for every policy (default: all)")
    assess.add_argument("--with-exemplars", action="store_true", help="also with the run's exemplars in the prompts")
    assess.set_defaults(run=_assess)

    samples = commands.add_parser(
        "samples",
        help="browse what the policy of a run wrote, and what became of it",
        description="Shows completions of a run with their verdicts, the latest first: in a pager on a terminal, as "
        "plain text elsewhere.",
        epilog=SAMPLES_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    samples.add_argument("run_folder", help="for example runs/demo")
    samples.add_argument("--problem", default="", metavar="TEXT", help="problems whose id holds TEXT")
    samples.add_argument("--reason", default="", metavar="NAME", help="a rejection reason, accepted, or rejected")
    samples.add_argument("--stage", default="", metavar="NAME", help="for example contrastive")
    samples.add_argument("--step", default="", metavar="N|N-M", help="a step, or steps from N to M")
    order = samples.add_mutually_exclusive_group()
    order.add_argument("--best", action="store_const", const="best", dest="order", help="the fastest first")
    order.add_argument(
        "--worst", action="store_const", const="worst", dest="order", help="the rejected, then the slowest"
    )
    samples.add_argument("--assessed", action="store_true", help="samples of assessments (held-out problems are there)")
    samples.add_argument("--prompt", action="store_true", help="with the prompt of each")
    samples.add_argument("--list", action="store_true", dest="brief", help="one line each, without their text")
    samples.add_argument("--limit", type=int, default=20, help="at most so many; 0: all (default: 20)")
    samples.add_argument("--json", action="store_true", help="one JSON object a line")
    samples.set_defaults(run=_samples, order="latest")

    pack = commands.add_parser(
        "pack",
        help="put a run into a file that goes on elsewhere",
        description="Packs settings, metrics, verdicts, exemplars, the last checkpoint's state and adapter, then as "
        "much of the rest as fits; says what it left out.",
    )
    pack.add_argument("run_folder", help="for example runs/demo")
    pack.add_argument("out", nargs="?", help="the file to write (default: <run>.pack)")
    pack.add_argument("--limit-mib", type=float, default=60.0, help="of all that is written (default: 60)")
    pack.add_argument("--split-mib", type=float, help="write pieces of at most so much, <out>.001 and so on")
    pack.set_defaults(run=_pack)

    unpack = commands.add_parser(
        "unpack",
        help="put a packed run into a folder of its own",
        description="Checks every piece; the command that the run was started with then goes on with it.",
    )
    unpack.add_argument("files", nargs="+", help="the packed file, all its pieces, or their folder")
    unpack.add_argument("--to", metavar="FOLDER", help="the run's folder (default: runs/<its name>)")
    unpack.set_defaults(run=_unpack)

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
    if arguments.explain:
        from cudal1_ray.commands.settings_help import Reference, explain_all

        print(explain_all(Reference.of_train(config)), end="")
        return 0
    if arguments.cfg:
        from cudal1_ray.training.preflight import check_run

        check_run(config)
        print(to_yaml(config), end="")
        return 0
    from cudal1_ray.training.train import train

    return train(config, shlex.join(["cudal1", "train", *arguments.overrides]))


def _collect(arguments: argparse.Namespace) -> int:
    from cudal1_ray.config import load_config, to_yaml

    overrides = list(arguments.overrides)
    if "policy=endpoint" in overrides and not any(one.startswith("prompting=") for one in overrides):
        overrides.insert(0, "prompting=full")  # the compact style is for policies that were trained on it
    config = load_config(overrides)
    if arguments.cfg:
        print(to_yaml(config), end="")
        return 0
    from cudal1_ray.commands.collect import collect

    return collect(config)


def _evaluate(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.evaluate import run

    return run(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.serve import serve

    if arguments.explain:
        from cudal1_ray.commands.settings_help import Reference, explain_all
        from cudal1_ray.serving import load_serving_config

        print(explain_all(Reference.of_serve(load_serving_config(arguments.overrides))), end="")
        return 0
    return serve(arguments.overrides, arguments.cfg, arguments.add_key, arguments.revoke_key)


def _optimize(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.optimize import Module, optimize_file

    module = Module(arguments.file, arguments.inputs, arguments.init, arguments.class_name)
    return optimize_file(module, arguments.overrides, arguments.server, arguments.key_file, arguments.fresh)


def _report(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    if arguments.sweep:
        from cudal1_ray.analysis.sweep_page import present_sweep

        present_sweep(arguments.sweep, Console())
        return 0
    from cudal1_ray.analysis import present

    present(arguments.run_folder, Console())
    return 0


def _assess(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.assess import Wanted, assess_policies

    splits = arguments.split or ["train", "held_out"]
    policies = arguments.policy or ["latest"]
    wanted = Wanted(policies, splits, arguments.with_exemplars, arguments.samples, arguments.problems)
    return assess_policies(arguments.run_folder, wanted, arguments.overrides)


def _samples(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.samples import show_samples

    return show_samples(arguments)


def _pack(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.pack import pack_run

    return pack_run(arguments.run_folder, arguments.out, arguments.limit_mib, arguments.split_mib)


def _unpack(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.pack import unpack_run

    return unpack_run(arguments.files, arguments.to)


def _doctor(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.doctor import examine

    return examine()


if __name__ == "__main__":
    sys.exit(main())
