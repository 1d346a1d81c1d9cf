"""What the `cudal1` command takes: its commands, their arguments and their help."""

from __future__ import annotations

import argparse
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
from cudal1_ray.commands.hydra_flags import instead_of


class _Help(argparse.Action):
    """`--help` prints the command's help; `--help KEY` explains a setting, a section or presets, and exits.

    Settings before and after KEY are composed first, so that values are those that a run with them would have.
    """

    def __init__(self, *arguments: Any, reference: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reference = reference

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, value: Any, option: str | None = None) -> None:
        if not value:
            parser.print_help()
            parser.exit()
        from cudal1_ray.commands.settings_help import Reference, explain

        name, *after = value
        before = getattr(namespace, "overrides", None) or getattr(namespace, "given", None) or []
        overrides = [text for text in (*before, *after) if "=" in text]
        if self._reference == "evaluate":
            from cudal1_ray.commands.evaluate import choose_preset

            overrides.insert(0, f"evaluation={choose_preset(namespace)}")
        compose = Reference.of_serve if self._reference == "serve" else Reference.of_train
        print(explain(name, compose(overrides)), end="")
        raise SystemExit(0)


def _with_settings(commands: Any, name: str, reference: str, **texts: str) -> argparse.ArgumentParser:
    """Add a command that takes settings; its `--help KEY` explains those of `reference`."""
    raw = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = commands.add_parser(name, formatter_class=raw, add_help=False, **texts)
    parser.add_argument(
        "-h",
        "--help",
        nargs="*",
        metavar="KEY",
        action=_Help,
        reference=reference,
        help="this help; with KEY, explain a setting, a section or a preset; with key=value, under these settings",
    )
    return parser


# Arguments without an option of their own that may stand behind a command's options, too; a command has one of them.
_LATER_ARGUMENTS = ("overrides", "given", "files", "pack_file")


def add_later_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace, rest: list[str]) -> None:
    """Add what stands behind a command's options to the settings or files before them.

    argparse takes positional arguments of one place only, and leaves the others to `parse_known_args`.

    Args:
        rest: what `parse_known_args` left.

    Raises:
        SystemExit: with the parser's usage, when something else is left.
    """
    name = next((name for name in _LATER_ARGUMENTS if name in arguments), None)
    before = None if name is None else getattr(arguments, name)
    flags = [text for text in rest if text.startswith("-")]
    takes = name is not None and (isinstance(before, list) or (before is None and len(rest) == 1))
    if rest and (flags or not takes):
        advice = instead_of(flags[0]) if flags and "multirun" in arguments else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{f' ({advice})' if advice else ''}")
    if rest and name is not None:
        setattr(arguments, name, [*before, *rest] if isinstance(before, list) else rest[0])


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the name of the one that was given is `command`, None without one."""
    parser = argparse.ArgumentParser(
        prog="cudal1",
        description="Contrastive reinforcement learning that turns a language model into a CUDA optimiser.",
    )
    parser.add_argument("--version", action="version", version=f"cudal1_ray {__version__}")
    commands = parser.add_subparsers(metavar="command", dest="command")

    train = _with_settings(
        commands,
        "train",
        "train",
        help="train a policy (no argument: the demo)",
        description=TRAIN_HELP,
        epilog=TRAIN_EXAMPLES,
    )
    train.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings, see below")
    train.add_argument("--explain", action="store_true", help="with --cfg: each setting with its explanation")
    train.add_argument(
        "-c", "--cfg", action="store_true", help="print the composed configuration, with -m that of each run, and stop"
    )
    train.add_argument("-m", "--multirun", action="store_true", help="a sweep: a run for every combination of values")

    evaluate = _with_settings(
        commands,
        "evaluate",
        "evaluate",
        help="measure whether a candidate is correct, and how much faster it is",
        description="Evaluates one candidate (a file that defines ModelNew) against a problem (a KernelBench file), "
        "every pair of a manifest, or a folder of KernelBench generations.",
        epilog=EVALUATE_EXAMPLES,
    )
    evaluate.add_argument(
        "given", nargs="*", default=[], metavar="CANDIDATE | key=value", help="Python file; settings, see below"
    )
    evaluate.add_argument("--problem", help="KernelBench file, or the id of a bundled problem")
    evaluate.add_argument(
        "--manifest", metavar="PAIRS", help='JSON lines {"id", "problem", "candidate"}: files or texts'
    )
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
        help="measure with many more processes, which takes several times as long (default for a CANDIDATE on a GPU)",
    )
    evaluate.add_argument(
        "--against",
        metavar="BASELINES",
        help="baselines: eager, tuned_eager, cuda_graph, compile, ..., FILE.py with dress(model); or all",
    )
    evaluate.add_argument(
        "--ray", nargs="?", const="auto", metavar="ADDRESS", help="on the evaluators of a Ray cluster"
    )
    evaluate.add_argument(
        "--on",
        action="append",
        metavar="TYPE",
        help="with --ray: on each accelerator type given; --out is a folder",
    )
    evaluate.add_argument(
        "--fail-on",
        choices=("rejected", "slower"),
        help="exit code 1 for a CANDIDATE that is rejected, or that is rejected or slower",
    )
    evaluate.add_argument("--json", action="store_true", help="print the verdict as JSON")

    serve = _with_settings(
        commands,
        "serve",
        "serve",
        help="serve a policy over HTTP: OpenAI's protocol, and jobs that make a module faster",
        description="Serves a policy on Ray Serve and vLLM until it is stopped; requests under way are finished.",
        epilog=SERVE_EXAMPLES,
    )
    serve.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings, see below")
    instead = serve.add_mutually_exclusive_group()
    instead.add_argument("--cfg", action="store_true", help="print the composed configuration and stop")
    instead.add_argument("--add-key", metavar="NAME", default="", help="make an API key and stop")
    instead.add_argument("--revoke-key", metavar="NAME", default="", help="revoke an API key and stop")
    serve.add_argument("--explain", action="store_true", help="with --cfg: each setting with its explanation")

    collect = _with_settings(
        commands,
        "collect",
        "train",
        help="gather accepted candidates for stage 1 from any policy",
        description="Asks a policy, here or behind an OpenAI-compatible server, for candidates of every training "
        "problem, has each evaluated, and keeps the accepted ones.",
        epilog=COLLECT_EXAMPLES,
    )
    collect.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings, see below")
    collect.add_argument("--cfg", action="store_true", help="print the composed configuration and stop")

    optimize = _with_settings(
        commands,
        "optimize",
        "serve",
        help="find a faster version of one module, measured twice",
        description="Makes one module faster by rounds of contrastive prompting. The fastest candidate that a second "
        "measurement confirms is saved beside the file.",
        epilog=OPTIMIZE_EXAMPLES,
    )
    optimize.add_argument("file", help="Python file: a problem, or any nn.Module with --inputs")
    optimize.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings of `cudal1 serve`")
    optimize.add_argument("--inputs", metavar="ARGS", default="", help='what forward takes: "randn(64, 128), 3"')
    optimize.add_argument("--init", metavar="ARGS", default="", help='what the constructor takes: "128, depth=2"')
    optimize.add_argument("--class", metavar="NAME", default="", dest="class_name", help="which class, if several")
    optimize.add_argument("--fresh", action="store_true", help="with --server: start a new job in any case")
    optimize.add_argument("--server", metavar="URL", default="", help="let a running `cudal1 serve` do it")
    optimize.add_argument("--key-file", metavar="FILE", default="", help="with --server: file that holds the API key")

    report = commands.add_parser(
        "report",
        help="write the table and the HTML report of a run or a sweep again",
        description="Reads the folder of a run or of a sweep, and writes its table and HTML report into report/ there.",
    )
    folder = report.add_mutually_exclusive_group(required=True)
    folder.add_argument("run_folder", nargs="?", help="for example runs/demo")
    folder.add_argument(
        "--sweep", metavar="DIR", help="a sweep's folder: one table with intervals over seeds, and tests"
    )

    assess = commands.add_parser(
        "assess",
        help="sample any policy of a run on its problems",
        description="Samples a policy of a run, evaluates every answer independently of training, and prints success, "
        "own kernels, fast_p, geometric mean and the best of n beside earlier assessments.",
        epilog=ASSESS_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    assess.add_argument("run_folder", help="for example runs/demo")
    assess.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="other settings than the run's")
    assess.add_argument(
        "--policy",
        action="append",
        metavar="POLICY",
        help="base, latest, a checkpoint's name, or the folder of an adapter; may be repeated (default: latest)",
    )
    assess.add_argument("--split", action="append", choices=("train", "held_out"), help="default: both")
    assess.add_argument("--samples", type=int, help="of each problem (default: the run's)")
    assess.add_argument("--problems", type=int, help="of each split, the same for every policy (default: all)")
    prompts = assess.add_mutually_exclusive_group()
    for flag, exemplars, text in (
        ("--with-exemplars", (False, True), "also with the run's exemplars in the prompts"),
        (
            "--only-with-exemplars",
            (True,),
            "with them alone, for example the policy that a run began with, beside its last",
        ),
    ):
        prompts.add_argument(flag, dest="exemplars", action="store_const", const=exemplars, default=(False,), help=text)

    samples = commands.add_parser(
        "samples",
        help="browse the completions of a run with their verdicts",
        description="Shows completions of a run with their verdicts, the latest first: in a pager on a terminal, as "
        "plain text elsewhere.",
        epilog=SAMPLES_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    samples.add_argument("run_folder", help="for example runs/demo")
    samples.add_argument("--problem", default="", metavar="TEXT", help="problems whose id contains TEXT")
    samples.add_argument("--reason", default="", metavar="NAME", help="a rejection reason, accepted, or rejected")
    samples.add_argument("--stage", default="", metavar="NAME", help="for example contrastive")
    samples.add_argument("--step", default="", metavar="N|N-M", help="a step, or steps from N to M")
    order = samples.add_mutually_exclusive_group()
    order.add_argument("--best", action="store_const", const="best", dest="order", help="the fastest first")
    order.add_argument(
        "--worst", action="store_const", const="worst", dest="order", help="the rejected, then the slowest"
    )
    samples.add_argument("--assessed", action="store_true", help="samples of assessments, held-out problems too")
    samples.add_argument("--prompt", action="store_true", help="with the prompt of each")
    samples.add_argument("--list", action="store_true", dest="brief", help="one line each, without their text")
    samples.add_argument("--limit", type=int, default=20, help="most samples shown; 0: all (default: 20)")
    samples.add_argument("--json", action="store_true", help="one JSON object a line")
    samples.set_defaults(order="latest")

    pack = commands.add_parser(
        "pack",
        help="pack a run into a file, to continue it elsewhere",
        description="Packs settings, metrics, verdicts, exemplars, the last checkpoint's state and adapter, then as "
        "much of the rest as fits; prints what it left out.",
    )
    pack.add_argument("run_folder", help="for example runs/demo")
    pack.add_argument("pack_file", nargs="?", metavar="out", help="the file to write (default: <run>.pack)")
    pack.add_argument("--limit-mib", type=float, default=60.0, help="limit of the size of the pack (default: 60)")
    pack.add_argument("--split-mib", type=float, help="most MiB of a piece: writes <out>.001 and so on")

    unpack = commands.add_parser(
        "unpack",
        help="unpack a run into its folder",
        description="Checks and unpacks every piece; the command that started the run then continues it.",
    )
    unpack.add_argument("files", nargs="+", help="the packed file, all its pieces, or their folder")
    unpack.add_argument("--to", metavar="FOLDER", help="the run's folder (default: runs/<its name>)")

    commands.add_parser(
        "doctor",
        help="check what this machine can do, and what to install for more",
        description="Checks engine, devices, compiler and sandbox, and measures the timing noise of this machine.",
    )
    for command in commands.choices.values():
        command.set_defaults(parser=command)  # whose usage a mistake is answered with
    return parser
