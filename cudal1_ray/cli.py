"""The `cudal1` command. Heavy packages are imported by the command that needs them, so `--help` answers at once."""

from __future__ import annotations

import argparse
import errno
import io
import os
import shlex
import sys
from dataclasses import replace

from cudal1_ray.commands.arguments import add_later_arguments, build_parser
from cudal1_ray.commands.hydra_flags import without_cfg_type
from cudal1_ray.errors import UserError
from cudal1_ray.uncollected import imported_to_stay

# What the user's disk, paths or limits do to a command, as against a fault in it.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}
_OF_A_PATH = {
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
}
# File descriptor of standard error, the largest of the standard streams'.
_STANDARD_ERROR = 2


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 2 a mistake that the printed line corrects, 130 interrupted."""
    _prepare_streams()
    try:
        code = _run(argv)
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
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # rich's answer to it, with code 1
            return 0
        raise
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE | _OF_A_PATH:
            raise
        advice = "make room or raise the limit, then run it again: nothing written so far is lost"
        if error.errno in _OF_A_PATH:
            advice = "give another path"
        print(f"cudal1: {error.filename or 'its output'}: {error.strerror}; {advice}", file=sys.stderr)
    return 2


def _run(argv: list[str] | None) -> int:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder does not exist any more; change to another one") from None
    words = sys.argv[1:] if argv is None else argv
    if words and not words[0].startswith("-") and words[0] not in _RUN:
        raise UserError(f"{words[0]:.40}: there is no such command; {_command_advice(words[0])}")
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 2
    add_later_arguments(arguments.parser, arguments, rest)
    return _RUN[arguments.command](arguments)


def _command_advice(name: str) -> str:
    from cudal1_ray.settings.suggestions import nearest, question

    return question(f"cudal1 {command}" for command in nearest(name, _RUN, 1)) or "`cudal1 --help` lists them"


def _prepare_streams() -> None:
    """Let standard streams take any text: escaped where their encoding has no such letter, dropped where they are
    closed. A closed one's number is taken, or the next file that is opened would get what is printed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for as long as the process lives)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _train(arguments: argparse.Namespace) -> int:
    overrides = without_cfg_type(arguments.overrides) if arguments.cfg else arguments.overrides
    if arguments.multirun:
        if arguments.explain:
            raise UserError("--explain: explains the settings of one run; leave out -m")
        from cudal1_ray.training.sweeps.multirun import preview_sweep, run_sweep

        if arguments.cfg:
            print(preview_sweep(overrides), end="")
            return 0
        return run_sweep(overrides)
    from cudal1_ray.config import load_config, to_yaml

    config = load_config(overrides)
    if arguments.explain:
        from cudal1_ray.commands.settings_help import Reference, explain_all

        print(explain_all(replace(Reference.of_train(overrides), values=config)), end="")
        return 0
    if arguments.cfg:
        from cudal1_ray.training.preflight import check_run

        check_run(config)
        print(to_yaml(config), end="")
        return 0
    with imported_to_stay():
        from cudal1_ray.training.train import train

    return train(config, shlex.join(["cudal1", "train", *overrides]))


def _collect(arguments: argparse.Namespace) -> int:
    from cudal1_ray.config import load_config, to_yaml

    overrides = list(arguments.overrides)
    if "policy=endpoint" in overrides and not any(override.startswith("prompting=") for override in overrides):
        overrides.insert(0, "prompting=full")  # the compact style is for policies that were trained on it
    config = load_config(overrides)
    from cudal1_ray.commands.collect import check_collection, collect

    if arguments.cfg:
        check_collection(config)
        print(to_yaml(config), end="")
        return 0
    return collect(config)


def _evaluate(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.evaluate import run

    return run(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.serve import serve

    if arguments.explain:
        from cudal1_ray.commands.settings_help import Reference, explain_all
        from cudal1_ray.serving import load_serving_config

        config = load_serving_config(arguments.overrides)  # with the settings of the policy's run
        print(explain_all(replace(Reference.of_serve(arguments.overrides), values=config)), end="")
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
    from cudal1_ray.commands.assess import AssessmentRequest, assess_policies

    splits = arguments.split or ["train", "held_out"]
    policies = arguments.policy or ["latest"]
    request = AssessmentRequest(policies, splits, arguments.exemplars, arguments.samples, arguments.problems)
    return assess_policies(arguments.run_folder, request, arguments.overrides)


def _samples(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.samples import show_samples

    return show_samples(arguments)


def _pack(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.pack import pack_run

    return pack_run(arguments.run_folder, arguments.pack_file, arguments.limit_mib, arguments.split_mib)


def _unpack(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.pack import unpack_run

    return unpack_run(arguments.files, arguments.to)


def _doctor(arguments: argparse.Namespace) -> int:
    from cudal1_ray.commands.doctor import examine

    return examine()


_RUN = {
    "train": _train,
    "collect": _collect,
    "evaluate": _evaluate,
    "serve": _serve,
    "optimize": _optimize,
    "report": _report,
    "assess": _assess,
    "samples": _samples,
    "pack": _pack,
    "unpack": _unpack,
    "doctor": _doctor,
}


if __name__ == "__main__":
    sys.exit(main())
