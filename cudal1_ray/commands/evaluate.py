"""`cudal1 evaluate`: is this candidate right, and how much faster is it really, and than what?"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from cudal1_ray.analysis.tables import print_table
from cudal1_ray.commands.evaluate_manifest import evaluate_manifest
from cudal1_ray.commands.evaluate_run import evaluate_run
from cudal1_ray.commands.verdict_tables import BaselineRow, baseline_table, not_measured, verdict_table
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, TimingConfig, Verdict
from cudal1_ray.evaluation.baselines import BASELINES, check_baseline, is_file
from cudal1_ray.evaluation.hardware import require_device
from cudal1_ray.evaluation.rules import RulesConfig, allowing
from cudal1_ray.problems import Problem, ProblemsConfig, load_problems
from cudal1_ray.problems.files import read_problem_file
from cudal1_ray.settings.suggestions import nearest, question
from cudal1_ray.source.text import read_source
from cudal1_ray.uncollected import imported_to_stay

# Sections of the settings that this command reads, whatever is evaluated.
_READ = frozenset({"evaluation", "plugins", "recipe"})
# Most rules that may refuse one candidate, each measured again without.
_MOST_RULES = 4
# Pairs of processes with which a further baseline begins.
_PROCESSES_BESIDE = 2
# Seconds between two lines of progress, where there is no terminal.
_REPORTED_EVERY_S = 10.0
# Baselines that nothing must be compiled for.
QUICK = ("eager", "tuned_eager", "cuda_graph")


def run(arguments: argparse.Namespace) -> int:
    """Run the command line of `cudal1 evaluate`, as `cudal1_ray.cli` parsed it; return its exit code.

    Raises:
        UserError: when the arguments do not go together, and for whatever they name that is not there.
    """
    settings = [argument for argument in arguments.given if "=" in argument and not os.path.isfile(argument)]
    candidates = [argument for argument in arguments.given if argument not in settings]
    config = load_config([f"evaluation={choose_preset(arguments)}", *settings])
    check_read(settings, over_run=arguments.run_folder is not None, over_ray=arguments.ray is not None)
    if arguments.fail_on is not None and (arguments.manifest or arguments.run_folder) is not None:
        raise UserError("--fail-on: goes with one CANDIDATE; verdicts of --manifest and --run are in a file")
    if arguments.run_folder is not None:
        if candidates or any(
            argument is not None for argument in (arguments.problem, arguments.manifest, arguments.on)
        ):
            raise UserError("--run: names its candidates itself; leave out CANDIDATE, --problem, --manifest and --on")
        if arguments.against is not None:
            config.evaluation.against = only_baseline(arguments.against, config.evaluation)
        if arguments.ray is not None:
            config.cluster.address = arguments.ray
        out, over_ray = arguments.out, arguments.ray is not None
        return evaluate_run(arguments.run_folder, out, config, over_ray=over_ray, as_json=arguments.json)
    if arguments.manifest is None:
        for name in ("out", "ray", "on"):
            if getattr(arguments, name) is not None:
                raise UserError(f"--{name}: goes with --manifest")
        if len(candidates) == 2 and arguments.problem is None:
            first, second = candidates
            raise UserError(
                f"evaluate: name the problem: {shlex.join(['cudal1', 'evaluate', first, '--problem', second])}"
            )
        if len(candidates) != 1:
            raise UserError(f"evaluate: give one CANDIDATE file, not {len(candidates)}; --manifest takes many")
        if arguments.problem is None:
            raise UserError("--problem: missing; give a KernelBench file, or the id of a bundled problem")
        return evaluate_file(
            candidates[0], arguments.problem, config.evaluation, arguments.against, arguments.json,
            fail_on=arguments.fail_on,
        )  # fmt: skip
    if candidates or arguments.problem is not None:
        raise UserError("--manifest: names its problems and candidates itself; leave out CANDIDATE and --problem")
    if arguments.out is None:
        raise UserError("--out: missing; name the file that the verdicts of --manifest go to")
    if arguments.against is not None:
        config.evaluation.against = only_baseline(arguments.against, config.evaluation)
    if arguments.on is not None and arguments.ray is None:
        raise UserError("--on: goes with --ray: the evaluators of a cluster are of several accelerator types")
    if arguments.ray is not None:
        config.cluster.address = arguments.ray
    if arguments.on is not None:
        from cudal1_ray.commands.evaluate_portability import chosen_types, evaluate_on_types  # the tables' packages

        types = chosen_types(arguments.on)
        return evaluate_on_types(arguments.manifest, arguments.out, types, config, arguments.json)
    return evaluate_manifest(arguments.manifest, arguments.out, config, arguments.ray is not None, arguments.json)


def check_read(settings: Sequence[str], *, over_run: bool = False, over_ray: bool = False) -> None:
    """Raise UserError for a setting that an evaluation would ignore; `over_run`, `over_ray`: with --run, with --ray."""
    read = _READ | {section for section, is_read in {"problems": over_run, "cluster": over_ray}.items() if is_read}
    for setting in settings:
        section = re.split(r"[./@=]", setting.lstrip("+"), maxsplit=1)[0]
        if section not in read:
            where = {"problems": "with --run", "cluster": "with --ray"}.get(section, "by `cudal1 train`")
            raise UserError(
                f"{setting:.60}: is read {where} only; `cudal1 evaluate --help evaluation` has what is read here"
            )


def only_baseline(against: str, config: EvaluationConfig) -> str:
    """Return the one baseline that many candidates are measured against.

    Raises:
        UserError: for several, for an unknown one, and for one that this device does not have.
    """
    first, *others = choose_baselines(against, config)
    if others:
        raise UserError("--against: many candidates take one baseline; run it once for each, with its own --out")
    return first


def choose_preset(arguments: argparse.Namespace) -> str:
    """Return the name of a preset in conf/evaluation: the certain one for a single candidate on a GPU, whose figure
    has to come out the same again, which takes more processes; the fast one for a manifest or a run.
    """
    one_on_a_gpu = arguments.device == "cuda" and arguments.manifest is None and arguments.run_folder is None
    certain = one_on_a_gpu if arguments.certain is None else arguments.certain
    return f"{arguments.device}_certain" if certain else arguments.device


def choose_baselines(against: str | None, config: EvaluationConfig) -> tuple[str, ...]:
    """Return the baselines that `--against` names (separated by commas; "all"); the verdict is against the first.

    None: the configured one, and beside it those that nothing must be compiled for.

    Raises:
        UserError: for an unknown name, or when the one that the verdict is against cannot be had on this device.
    """
    if against is None or against == "all":
        rest = BASELINES if against else QUICK
        names = [config.against, *(name for name in rest if name != config.against)]
    else:
        names = list(dict.fromkeys(name.strip() for name in against.split(",")))
    for name in names:
        if name not in BASELINES and not is_file(name):
            own = "a .py file with dress(model)"
            raise UserError(
                f"--against {name}: must be one of {', '.join(BASELINES)}, {own}, several with commas, or all"
            )
    if complaint := check_baseline(names[0], config.device):
        raise UserError(f"--against: {complaint}")
    return tuple(names)


def evaluate_file(
    candidate: str,
    problem: str,
    config: EvaluationConfig,
    against: str | None = None,
    as_json: bool = False,
    console: Console | None = None,
    fail_on: str | None = None,
) -> int:
    """Evaluate one candidate file, and print its verdict and its speedup against each baseline.

    Returns:
        0, or 1 for what `fail_on` names: "rejected", or "slower" for a rejected candidate and one that is slower than
        the first baseline.

    Raises:
        UserError: when a file is missing, the problem is none, or a baseline or the device is not to be had.
    """
    console = console or Console()
    code, problem_object = read_candidate(Path(candidate)), read_problem(problem)
    first, *others = choose_baselines(against, config)
    require_device(config.device)
    with _displayed(console, f"measuring against {first}", as_json):
        verdict = _verdict(problem_object, code, config, first)
    laxer = allowing(config.rules, verdict.reasons)
    remaining: tuple[str, ...] = ()
    if verdict.kind == "policy" and not verdict.degenerate:
        with _displayed(console, "measuring what the rules refuse", as_json):
            verdict, laxer, remaining = _measured_all_the_same(verdict, problem_object, code, config, first)
    settings = laxer.differences(config.rules) if laxer is not None else ()
    if not as_json:
        console.print(verdict_table(verdict, settings, remaining))
    rows = [BaselineRow.of(first, verdict)] if verdict.accepted else []
    if verdict.accepted:  # there is no speedup of a candidate that is wrong
        for row in _other_baselines(problem_object, code, config, others, console, as_json):
            rows.append(row)
    if as_json:
        report = {
            "verdict": verdict.status,
            **verdict.to_dict(),
            "allowed_by": [] if remaining else settings,
            "against": first,
        }
        print(json.dumps({**report, "baselines": [asdict(row) for row in rows]}))
    elif rows:
        left = [name for name in BASELINES if name not in {row.baseline for row in rows}]
        print_table(console, baseline_table(rows))
        for line in not_measured(rows, left):
            console.print(line, highlight=False)
    return int(fails(verdict, fail_on))


def fails(verdict: Verdict, fail_on: str | None) -> bool:
    """Return whether the verdict is what `--fail-on` names; slower is what is so with its whole interval."""
    return fail_on is not None and (not verdict.accepted or (fail_on == "slower" and 0.0 < verdict.speedup_high < 1.0))


def _measured_all_the_same(
    verdict: Verdict, problem: Problem, code: str, config: EvaluationConfig, against: str
) -> tuple[Verdict, RulesConfig | None, tuple[str, ...]]:
    """Return a refusal by a rule with what is measured where rules allow it, and those rules; as it is where no rules
    do, with the laxest that were tried and the reasons that remain with them.
    """
    tried, laxer, last = None, allowing(config.rules, verdict.reasons), verdict
    for _ in range(_MOST_RULES):
        if laxer is None or last.kind != "policy":
            break
        tried, last = laxer, _verdict(problem, code, replace(config, rules=laxer), against)
        if last.accepted:
            names = ("speedup", "speedup_low", "speedup_high", "runtime_ms", "reference_ms", "timed_runs")
            return replace(verdict, **{name: getattr(last, name) for name in names}), tried, ()
        laxer = allowing(laxer, last.reasons)
    return verdict, tried, last.reasons


def _other_baselines(
    problem: Problem, code: str, config: EvaluationConfig, names: list[str], console: Console, as_json: bool
) -> Iterator[BaselineRow]:
    config = replace(config, timing=timing_beside(config.timing))
    for name in names:
        if complaint := check_baseline(name, config.device):
            yield BaselineRow(name, missing=complaint)
            continue
        with _displayed(console, f"measuring against {name}", as_json):
            yield BaselineRow.of(name, _verdict(problem, code, config, name))


def timing_beside(timing: TimingConfig) -> TimingConfig:
    """Return how a further baseline is measured, beside a verdict that has its time: at first by two pairs of
    processes, since the second shows what differs from one to another; time and most pairs shrink by the same share.
    """
    share = min(1.0, _PROCESSES_BESIDE / timing.contestants)
    return replace(
        timing,
        contestants=min(timing.contestants, _PROCESSES_BESIDE),
        most_contestants=round(share * timing.most_contestants),
        most_near_1=round(share * timing.most_near_1),
        budget_s=share * timing.budget_s,
    )


def _verdict(problem: Problem, code: str, config: EvaluationConfig, against: str) -> Verdict:
    with imported_to_stay():
        from cudal1_ray.evaluation import Evaluator  # torch comes in here; the owner of a pool needs none

    timing = replace(config.timing, device_alone=True)  # a single candidate leaves time for it
    with Evaluator(replace(config, against=against, timing=timing)) as evaluator:
        return evaluator.evaluate(problem, code)


@contextmanager
def _displayed(console: Console, doing: str, as_json: bool) -> Iterator[None]:
    """Display what is being done: on a terminal while it lasts, else on standard error now and every ten seconds."""
    if console.is_terminal and not as_json:
        with console.status(doing):
            yield
        return
    done, start = threading.Event(), time.monotonic()

    def report() -> None:
        print(f"{doing} ...", file=sys.stderr, flush=True)
        while not done.wait(_REPORTED_EVERY_S):
            print(f"{doing} ... {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def read_candidate(path: Path) -> str:
    return read_source(path, "; give a Python file that defines ModelNew")


def read_problem(name: str) -> Problem:
    """Return the problem that `--problem` names: that of a file (`read_problem_file`), or a bundled one by its id.

    Raises:
        UserError: when there is neither.
    """
    path = Path(name)
    if path.exists() and not path.is_dir():  # a pipe of the shell's, <(...), too
        return read_problem_file(path)
    bundled = bundled_problems()
    if name in bundled:
        return bundled[name]
    if path.is_dir():
        raise UserError(f"--problem {name}: a folder; give one KernelBench file of it")
    meant = question(nearest(name, bundled)) or f"for example {min(bundled)}"
    raise UserError(f"--problem {name}: no such file, and no bundled problem of that id; {meant}")


def bundled_problems() -> dict[str, Problem]:
    """Return the problems that come with the package by id."""
    return {problem.problem_id: problem for problem in load_problems(ProblemsConfig())}
