"""The `cudal1` command. Heavy packages are imported by the command that needs them, so `--help` answers at once."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
from typing import Any

from cudal1_ray import __version__
from cudal1_ray.errors import UserError

TRAIN_HELP = """\
Trains a policy: supervised fine-tuning, self-supervised, then contrastive reinforcement learning.

With no argument it runs the demo: a small model trained from scratch on this machine's CPU, in minutes.
The run is a folder, runs/<name>. Interrupt it at any moment; the same command continues it.
"""
TRAIN_EXAMPLES = """\
settings are `key=value`, presets are `group=name` (a file of conf/<group>/); a recipe chooses presets and settings for
one purpose:
  cudal1 train                                     the demo
  cudal1 train name=kb recipe=kernelbench_one_gpu policy.path=FOLDER problems.path=FILE.parquet
  cudal1 train name=mine recipe=my_problems_cpu policy.path=FOLDER problems.path=FOLDER
  cudal1 train name=b seed=2 contrastive.steps=40
  cudal1 train name=b stage=sft                    one stage; then stage=self_supervised, stage=contrastive
  cudal1 train name=plain-grpo init_from=runs/demo stage=contrastive exemplars=none
  cudal1 train name=longer init_from=runs/demo/checkpoints/contrastive-final stage=contrastive   on from there
  cudal1 train name=control stage=contrastive init_from=runs/demo contrastive.learning_rate=0   the control row
  cudal1 train name=mine max_minutes=25            end in time, with a checkpoint; the same command continues
settings are explained:
  cudal1 train --cfg                               print the composed configuration, run nothing
  cudal1 train --cfg --explain                     the same, each setting with its explanation, bounds and presets
  cudal1 train --help contrastive.steps            one setting; --help contrastive a section; --help presets
sweeps: with -m every combination of `key=a,b,c` is a run of its own, side by side where the Ray cluster has room:
  cudal1 train -m exemplars=uniform,bucket,island seed=1,2,3 name=which-exemplars
  cudal1 report --sweep runs/which-exemplars       its table again
"""
SERVE_EXAMPLES = """\
settings are `key=value`; presets are `serving=cpu` and `serving=gpu` (conf/serving/):
  cudal1 serve policy=runs/demo                              a run: its last finished stage
  cudal1 serve policy=runs/mine/checkpoints/sft-final port=9000
  cudal1 serve serving=gpu policy=FOLDER replicas.max=8 host=0.0.0.0 security.keys_file=keys.json
  cudal1 serve --add-key alice security.keys_file=keys.json  a key, shown once and kept as a hash
  cudal1 serve --cfg policy=runs/demo                        print every setting (--explain: with its meaning)
  cudal1 serve --help security                               explain a section, a setting or presets
"""
OPTIMIZE_EXAMPLES = """\
  cudal1 optimize module.py policy=runs/demo                 on this machine; the winner goes to module_fast.py
  cudal1 optimize module.py policy=FOLDER serving=gpu optimize.rounds=8 optimize.samples_per_round=32
  cudal1 optimize net.py --inputs "randn(64, 128)" --init "128, depth=2" policy=runs/demo
  cudal1 optimize module.py policy=endpoint policy.url=http://host:8000/v1 policy.model=NAME policy.key_env=MY_KEY
  cudal1 optimize module.py --server http://host:8000 --key-file mykey optimize.rounds=8
A file is a problem (Model, get_inputs(), get_init_inputs()), or any nn.Module with examples of what it takes, written
as in a call; randn is torch.randn. Exit code 0: something faster was saved; 1: nothing faster found; 2: a mistake.
"""


COLLECT_EXAMPLES = """\
settings are those of `cudal1 train`; the accepted candidates go to collect.out, a table for sft.corpus:
  cudal1 collect problems=kernelbench_hub policy=endpoint policy.url=http://host:8000/v1 policy.model=NAME
  cudal1 collect recipe=kernelbench_one_gpu problems.path=kernelbench.parquet policy.path=FOLDER collect.out=my.parquet
  cudal1 collect recipe=my_problems_cpu problems.path=FOLDER policy.path=FOLDER collect.show_earlier=true
policy.key_env=NAME sends the key in that environment variable. With collect.successes=0 and collect.show_earlier=true
it is an evolutionary search. Killed at any moment, the same command goes on. Exit code 0: done; 2: a mistake, or the
server gives no answers.
"""


ASSESS_EXAMPLES = """\
  cudal1 assess runs/demo                                    the last checkpoint, on all problems
  cudal1 assess runs/kb --split held_out --samples 8 --policy base --policy sft-final --policy latest
  cudal1 assess runs/kb --split train --with-exemplars       without and with exemplars in the prompts
Rows go to assessments_asked.jsonl in the run's folder; what is there already is not sampled again. Killed at any
moment, the same command goes on.
"""


EVALUATE_EXAMPLES = """\
  cudal1 evaluate candidate.py --problem problem.py
  cudal1 evaluate candidate.py --problem problem.py --device cuda --against all
  cudal1 evaluate candidate.py --problem problem.py --device cuda --no-certain
  cudal1 evaluate candidate.py --problem problem.py evaluation.timing.budget_s=5
  cudal1 evaluate --manifest pairs.jsonl --out verdicts.jsonl --device cuda
  cudal1 evaluate --manifest pairs.jsonl --out verdicts.jsonl --device cuda --ray
  cudal1 evaluate --manifest pairs.jsonl --out portability --device cuda --ray --on A100 --on H100
The verdict is against the first of the baselines (eager, compile, compile_reduce_overhead, cuda_graph, tuned_eager;
several with commas). Paths in a manifest are relative to it. Killed at any moment, the same command goes on: what has
a row in VERDICTS is not evaluated again. Exit code 0 when it ran, whatever the verdicts (1 for those that --fail-on
names); 2 for a mistake.
Settings are those of `cudal1 train --cfg`: evaluation.*, and cluster.* with --ray; --help evaluation explains them.
"""


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
