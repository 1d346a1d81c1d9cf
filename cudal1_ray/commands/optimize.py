"""`cudal1 optimize FILE`: one module made faster, here or by a server, and the winner saved beside it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudal1_ray.commands.optimize_progress import JobProgress, printable
from cudal1_ray.commands.optimize_server import optimize_there
from cudal1_ray.errors import UserError
from cudal1_ray.files import write_atomically
from cudal1_ray.problems import Problem, parse_problem
from cudal1_ray.source.text import read_source
from cudal1_ray.wording import counted

# Settings that a server lets each request choose.
_REQUEST_SETTINGS = ("rounds", "samples_per_round", "time_limit_s", "max_tokens")


@dataclass(frozen=True)
class Module:
    """A file, and what completes it to a problem: arguments of `forward` and of the constructor as they would be
    written in a call, and the class that is meant. Empty: the file's own.
    """

    file: str
    inputs: str = ""
    init_inputs: str = ""
    class_name: str = ""


def optimize_file(
    module: Module,
    overrides: list[str],
    server: str = "",
    key_file: str = "",
    fresh: bool = False,
    console: Console | None = None,
) -> int:
    """Optimise one module, report progress, and save the fastest candidate as <file>_fast.py.

    Returns:
        0 when something faster was found and saved; 1 when not; 130 when interrupted.

    Raises:
        UserError: naming file, example, setting or server at fault.
    """
    console = console or Console(highlight=False)
    path = Path(module.file)
    problem = _read(module, path)
    with JobProgress(console) as progress:
        try:
            if server:
                settings = _request_settings(overrides) | ({"fresh": True} if fresh else {})
                result = optimize_there({"source": problem.source} | settings, server, _key(key_file), progress)
            else:
                result = _run_here(problem, overrides, progress)
        except KeyboardInterrupt:
            went_on = "the job goes on at the server; the same command follows it" if server else "nothing was saved"
            console.print(f"interrupted: {went_on}")
            return 130
    return _report(result, path, console)


def _run_here(problem: Problem, overrides: list[str], progress: JobProgress) -> dict[str, Any]:
    from cudal1_ray.prompting import PromptTooLong
    from cudal1_ray.serving import load_serving_config
    from cudal1_ray.serving.config import check_gpus
    from cudal1_ray.serving.optimize.local import optimize_here
    from cudal1_ray.serving.optimize.rounds import ModuleFault

    config = load_serving_config(overrides)
    check_gpus(config)
    progress.begin(config.optimize.rounds, config.optimize.samples_per_round)
    try:
        return optimize_here(config, problem, progress)
    except (ModuleFault, PromptTooLong) as error:
        raise UserError(str(error)) from None


def _request_settings(overrides: list[str]) -> dict[str, Any]:
    """Return settings as a request carries them. UserError for those that are the server's own."""
    settings: dict[str, Any] = {}
    for override in overrides:
        key, _, value = override.partition("=")
        name = key.removeprefix("optimize.")
        if name == key or name not in _REQUEST_SETTINGS:
            names = ", ".join(f"optimize.{setting}" for setting in _REQUEST_SETTINGS)
            raise UserError(f"{override}: with --server only {names} may be set")
        try:
            settings[name] = float(value) if name == "time_limit_s" else int(value)
        except ValueError:
            raise UserError(f"{override}: must be a number") from None
    return settings


def _read(module: Module, path: Path) -> Problem:
    from cudal1_ray.serving.optimize.modules import Arguments, complete_module

    text = read_source(path, "; give a Python file with an nn.Module")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path.parent}: cannot be written, and what is found is saved beside {path.name}")
    inputs = Arguments.parse(module.inputs, "--inputs") if module.inputs else None
    init_inputs = Arguments.parse(module.init_inputs, "--init") if module.init_inputs else None
    source = complete_module(text, inputs, init_inputs, module.class_name, origin=str(path), option="--inputs")
    return parse_problem(source, "module", origin=str(path), name=path.stem)


def _key(key_file: str) -> str:
    if not key_file:
        return ""
    try:
        return Path(key_file).read_text().split()[0]
    except OSError as error:
        raise UserError(f"--key-file {key_file}: {error.strerror}; name the file that holds the API key") from None
    except (IndexError, UnicodeDecodeError):
        raise UserError(f"--key-file {key_file}: holds no key; `cudal1 serve --add-key NAME` prints one") from None


def _report(result: dict[str, Any], path: Path, console: Console) -> int:
    costs = result["costs"]
    counts = (
        f"{counted(result['candidates'], 'candidate')} in {counted(result['rounds'], 'round')}, {result['accepted']} "
        f"right and different, {counted(costs['completion_tokens'], 'token')}, {result['spent_s']:.0f} s"
    )
    if result["note"]:
        console.print(f"note: {printable(result['note'])}", markup=False, soft_wrap=True)
    if not result["found"]:
        console.print(f"nothing faster found ({counts})", soft_wrap=True)
        console.print(_tried(result), soft_wrap=True)
        return 1
    target = _save(result["code"].rstrip("\n") + "\n", path, console)
    where = escape(printable(f"{result['device_name']} ({result['device']})"))
    interval = f"95% interval {result['speedup_low']:.2f} to {result['speedup_high']:.2f}"
    console.print(
        f"[bold]{result['speedup']:.2f}x[/] against {result['against']} on {where}, {interval}; {counts}",
        soft_wrap=True,
    )
    console.print(_baselines(result["baselines"]))
    if result["analysis"]:
        console.print(f"why, in the policy's words: {printable(result['analysis'])}", markup=False, soft_wrap=True)
    console.print(
        f"saved as {target}. ModelNew takes what the module takes, in its constructor and its call:\n"
        f"  from {target.stem} import ModelNew\n"
        f"  model = ModelNew(*init_inputs); model.load_state_dict(old_model.state_dict())",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _save(code: str, path: Path, console: Console) -> Path:
    """Save code beside the module; a file of that name with other contents is kept."""
    number, target = 1, path.with_name(f"{path.stem}_fast.py")
    try:
        while target.exists() and target.read_bytes() != code.encode():
            number += 1
            target = path.with_name(f"{path.stem}_fast_{number}.py")
        write_atomically(target, code)
    except OSError as error:
        console.print(code, markup=False, soft_wrap=True)  # hours of work are not lost to a full disk
        raise UserError(f"{target}: {error.strerror}; what was found is printed above") from None
    return target


def _baselines(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for column in ("against", "before, ms", "now, ms", "speedup", "95% interval"):
        table.add_column(column, justify="left" if column == "against" else "right", overflow="fold")
    for row in rows:
        if row["missing"]:
            table.add_row(row["baseline"], "", "", "none", escape(printable(row["missing"])))
            continue
        times = (f"{row['baseline_ms']:.4f}", f"{row['runtime_ms']:.4f}", f"{row['speedup']:.2f}x")
        table.add_row(row["baseline"], *times, f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}")
    return table


def _tried(result: dict[str, Any]) -> str:
    """Return in one line what became of the candidates; `tried` has only those that were read as a program."""
    if not result["tried"]:
        return "no completion held a program"
    reasons = Counter(reason for candidate in result["tried"] for reason in candidate["reasons"][:1])
    parts = [f"{count} {reason}" for reason, count in reasons.most_common()]
    best = f"the fastest right one was {result['best_tried']:.2f}x" if result["best_tried"] else "none was right"
    return f"{best}; rejected: {', '.join(parts) or 'none'}"
