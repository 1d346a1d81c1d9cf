"""The runs of the paper's table: every arm for every seed, by ordinary `cudal1 train` and `cudal1 assess`.

    python -m benchmarks.paper.run --runs runs/table --seeds 1 2 3 recipe=kernelbench_one_gpu policy.path=FOLDER \
        problems.path=FILE.parquet [--minutes 25] [--pack FOLDER]
    python -m benchmarks.paper.run --runs runs/table --unpack FOLDER ...      on the next machine, then as before
    python -m benchmarks.paper.run --runs runs/table --gpus 0 1 2 3 ...       as many runs side by side, a GPU each

`--have stage1=runs/kb bucket=runs/kb` takes the arms of a seed from a run that was trained before, by a plain
`cudal1 train recipe=kernelbench_one_gpu problems.path=FILE.parquet exemplars=bucket` for example. Of its stages sft and
contrastive in one folder the first is the arm stage1, from which other arms start, and the second the arm bucket (with
`--start stage1`, as no stage 2 lies between). The folder is copied, and trained no further: a stage that ended early
stays at its last checkpoint. The result names the settings that differ from the table's; give the table the run's own,
for example contrastive.ask_again=1 contrastive.steps=16, to have few. A packed run is unpacked first, with
`cudal1 unpack`.

A finished arm is not run again, a broken one goes on from its last checkpoint. With `--minutes`, and at SIGTERM, a run
under way ends with a checkpoint; `--minutes 0` starts none. `--pack` writes what the next machine needs: of finished
runs their results, and their adapters where there is room, of others and of what they start from all that goes on. It
may be written while another process of this command, with the same runs, is at work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.paper.arms import ARMS, SHARED, Arm, arms_from, budget, rounds_for, run_name, todo
from benchmarks.paper.records import is_done, note_arm, read_arms, stage_minutes, take_runs
from benchmarks.paper.travel import pack_runs, unpack_runs
from benchmarks.training.ablation_runs import Runner
from cudal1_ray.config import load_config, to_dict
from cudal1_ray.errors import UserError
from cudal1_ray.problems import load_problems
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.training.checkpoints import CheckpointStore

# Minutes that a run gets to end in before the time is up: its step, a checkpoint and the next start would not fit.
LEAST_MINUTES = 4.0


class Table:
    """The runs of the table in one folder.

    Args:
        runner: starts processes; its overrides are those of all runs.
        samples: samples of each problem in an assessment.
        assessed: problems of each split, in an assessment; None takes all.
        arms: where each starts.
    """

    def __init__(self, runner: Runner, samples: int, assessed: int | None = None, arms: dict[str, Arm] | None = None):
        self.runner, self.samples, self.assessed, self.arms = runner, samples, assessed, arms or ARMS
        self.config = load_config([*runner.overrides])
        train = [problem for problem in load_problems(self.config.problems) if problem.split == "train"]
        self.problems = len(fixed_problems(train, self.config.problems.asked))

    def check(self, names: Iterable[str]) -> None:
        """Raise UserError when one of these arms trains the base model further and that has random weights."""
        if self.config.policy.kind != "scratch":
            return
        untrained = [name for name in names if self.arms[name].stage not in ("", "sft") and not self.arms[name].start]
        if untrained:
            raise UserError(
                f"--arms {' '.join(untrained)}: start from the base model, and policy.kind=scratch has random weights; "
                "give a policy with policy.path, or leave them out"
            )

    def folder(self, arm: str, seed: int) -> Path:
        return self.runner.folder / run_name(arm, seed)

    def needs_start(self, arm: str, seed: int) -> bool:
        """Return whether the arm still needs the policy that it starts from: to begin, or to be compared with it."""
        begun = bool(CheckpointStore(self.folder(arm, seed) / "checkpoints", keep=1).all())
        return bool(self.arms[arm].start) and (self.arms[arm].shows_exemplars or not begun)

    def needed(self, arm: str) -> str:
        """Return the arm whose policy or folder this one needs; empty for one that needs none."""
        return "stage1" if arm == "base" else self.arms[arm].start

    def run(self, arm: str, seed: int, gpu: str = "") -> bool:
        """Train and assess an arm; return whether it is done.

        Args:
            gpu: that the processes see, as in CUDA_VISIBLE_DEVICES; empty: what this process sees.
        """
        return self._next(arm, seed, gpu) and (is_done(self.folder(arm, seed), arm) or self._next(arm, seed, gpu))

    def _next(self, arm: str, seed: int, gpu: str) -> bool:
        """Train an arm, or assess one that is trained; return whether that ended well."""
        if is_done(self.folder(arm, seed), arm):
            return True
        if self.arms[arm].stage and not self.trained(arm, seed):
            return self._train(arm, seed, gpu)
        return self._assess(arm, seed, gpu)

    def run_all(self, pairs: Sequence[tuple[int, str]], gpus: Sequence[str]) -> list[tuple[int, str]]:
        """Train and assess arms, as many side by side as there are GPUs, and return the (seed, arm) not done.

        An arm waits for the policy that it starts from, and for another arm in the same folder. With several GPUs an
        assessment is a run of its own. Of those that can begin, what others wait for comes first, then what has to be
        trained, which takes longer than an assessment, with exemplars before without. Assessments of trained weights
        come before those of the base model's, which a later machine has anyway. What still runs when the time is up is
        stopped.
        """
        left: list[tuple[int, str]] = list(pairs)
        tried: set[tuple[int, str, bool]] = set()
        run = self._next if len(gpus) > 1 else self.run
        waited_for = {(seed, self.needed(arm)) for seed, arm in left}
        cores = dict(zip(gpus, shares(os.sched_getaffinity(0), len(gpus)), strict=True))
        running: dict[Future[bool], tuple[tuple[int, str], str]] = {}

        def order(pair: tuple[int, str]) -> tuple[bool, bool, bool]:
            arm, trained = self.arms[pair[1]], self.trained(pair[1], pair[0])
            later = not arm.learns if trained else pair not in waited_for
            return trained, later, not arm.shows_exemplars

        def on(gpu: str, arm: str, seed: int) -> bool:
            os.sched_setaffinity(0, cores[gpu])  # of this thread, and of the processes that it starts
            return run(arm, seed, gpu)

        with ThreadPoolExecutor(len(gpus)) as pool:
            try:
                while True:
                    busy = {self.folder(arm, seed).resolve() for (seed, arm), _ in running.values()}
                    free = [gpu for gpu in gpus if gpu not in {of for _, of in running.values()}]
                    for seed, arm in sorted(left, key=order):
                        attempt = (seed, arm, self.trained(arm, seed))
                        if not free or attempt in tried or self.folder(arm, seed).resolve() in busy:
                            continue
                        if not (needed := self.needed(arm)) or self.trained(needed, seed):
                            gpu = free.pop(0)
                            running[pool.submit(on, gpu, arm, seed)] = ((seed, arm), gpu)
                            tried.add(attempt)
                            busy.add(self.folder(arm, seed).resolve())
                    if not running:
                        return left
                    done = wait(running, self.runner.seconds_left, return_when=FIRST_COMPLETED).done
                    if not done:
                        self.runner.stop()
                    for future in done:
                        (seed, arm), _ = running.pop(future)
                        if future.result() and is_done(self.folder(arm, seed), arm):
                            left.remove((seed, arm))
            finally:
                self.runner.stop()

    def trained(self, arm: str, seed: int) -> bool:
        """Return whether the policy of an arm is there."""
        run = self.folder(arm, seed)
        return arm in read_arms(run) or (run / "checkpoints" / self._policy(arm, seed) / "state").is_dir()

    def _policy(self, arm: str, seed: int) -> str:
        """Return the name of the arm's final policy, a checkpoint of its run."""
        policy = read_arms(self.folder(arm, seed)).get(arm, {}).get("policy")
        return policy or ("base" if arm == "base" else f"{self.arms[arm].stage}-final")

    def _train(self, arm: str, seed: int, gpu: str) -> bool:
        minutes = self.runner.minutes_left
        if minutes < LEAST_MINUTES:
            return False
        settings = [*self.arms[arm].settings]
        if self.arms[arm].start:
            settings.append(f"init_from={self._start(arm, seed)}")
        if arm == "stage2-long":
            settings.append(f"self_supervised.rounds={rounds_for(budget(self.config), self.problems, self.config)}")
        if minutes != float("inf"):
            settings.append(f"max_minutes={minutes:.1f}")
        place = [f"name={run_name(arm, seed)}", f"runs_dir={self.runner.folder}", f"seed={seed}"]
        command = ["train", *place, f"stage={self.arms[arm].stage}", *self.runner.overrides, *settings]
        return self.runner.process(run_name(arm, seed), command, gpu=gpu) and self.trained(arm, seed)

    def _assess(self, arm: str, seed: int, gpu: str) -> bool:
        if self.runner.minutes_left < LEAST_MINUTES:
            return False
        run, policy, of_arm = self.folder(arm, seed), self._policy(arm, seed), self.arms[arm]
        figures: dict[str, Any] = {"seed": seed, "policy": policy, "start": of_arm.start}
        options = ["--with-exemplars"] if of_arm.shows_exemplars else []
        what = f"assess {arm}"
        if not self._ask(run, policy, options, what, gpu):
            return False
        # What the same exemplars do for the policy that the arm began with; one given by --have may have lost that.
        if of_arm.shows_exemplars and of_arm.start and (self._start(arm, seed) / "state").is_dir():
            figures["control"] = str(self._start(arm, seed))
            options = ["--split", "train", "--only-with-exemplars"]
            if not self._ask(run, figures["control"], options, f"{what}, control", gpu):
                return False
        figures["training_minutes"] = self._training_minutes(arm, run)
        figures |= read_arms(run).get(arm, {})
        note_arm(run, arm, figures | {"assessment_minutes": self.runner.minutes(run.name, what), "at": time.time()})
        return True

    def _ask(self, run: Path, policy: str, options: list[str], what: str, gpu: str) -> bool:
        """Assess a policy with a run's problems and exemplars; return whether that ended well."""
        command = ["assess", str(run), "--policy", policy, "--samples", str(self.samples), *options]
        if self.assessed is not None:
            command += ["--problems", str(self.assessed)]
        return self.runner.process(run.name, [*command, "assessment.enabled=true", *self._places()], what, gpu)

    def _start(self, arm: str, seed: int) -> Path:
        """Return the checkpoint that an arm's policy starts from."""
        start = self.arms[arm].start
        return self.folder(start, seed) / "checkpoints" / self._policy(start, seed)

    def _training_minutes(self, arm: str, run: Path) -> float:
        """Return the wall minutes of an arm's training; at least those of its steps, as a start that ended with this
        process is not recorded.
        """
        if arm == "base":
            return 0.0
        recorded = self.runner.minutes(run.name, "train") or 0.0
        return max(recorded, stage_minutes(run, self.arms[arm].stage))

    def _places(self) -> list[str]:
        """Return the settings of an assessment that may differ from those that its run was trained with: the problems,
        and where the policy lies on this machine."""
        places = {f"problems.{key}": value for key, value in to_dict(self.config)["problems"].items()}
        places["policy.path"] = self.config.policy.path
        return [f"{key}={json.dumps(value)}" for key, value in places.items()]


def shares(cores: set[int], count: int) -> list[set[int]]:
    """Divide cores into neighbouring shares of one size, for runs side by side; all have all where they are too few.

    A run would otherwise measure on cores on which another compiles.
    """
    size = len(cores) // count
    ordered = sorted(cores)
    return [set(ordered[n * size : (n + 1) * size]) or cores for n in range(count)]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/table"), help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--start", choices=("stage1", "stage2"), default="stage2", help="of stage 3's arms")
    parser.add_argument("--samples", type=int, default=4, help="of each problem, in an assessment (default: 4)")
    parser.add_argument("--problems", type=int, help="of each split, in an assessment (default: all)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="minutes within which all runs end")
    parser.add_argument(
        "--gpus", nargs="+", default=[""], metavar="GPU", help="as many runs at once, each with its GPU"
    )
    parser.add_argument("--have", nargs="+", metavar="ARM=RUN", default=[], help="a run that was trained before")
    parser.add_argument("--unpack", type=Path, nargs="+", help="what another machine packed")
    parser.add_argument("--pack", type=Path, help="write what the next machine needs into this folder")
    parser.add_argument("--limit-mib", type=float, default=120.0, help="of what is packed (default: 120)")
    parser.add_argument("--split-mib", type=float, default=15.0, help="of one file (default: 15)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of all runs")
    return parse_with_settings(parser, arguments, other_keys=ARMS)


def main() -> int:
    arguments, console = parse(), Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by the same way as an interrupt: runs are stopped
    deadline = time.monotonic() + 60 * arguments.minutes
    if arguments.unpack:
        for name in unpack_runs(arguments.unpack, arguments.runs):
            console.print(f"unpacked: {name}", highlight=False)
    runner = Runner(arguments.runs, deadline, [*SHARED, *arguments.overrides], console)
    arms = arms_from(arguments.start)
    table = Table(runner, arguments.samples, arguments.problems, arms)
    pairs = todo(arguments.arms, arguments.seeds, arms)
    for line in take_runs(arguments.have, arguments.runs, runner.overrides, arms):
        console.print(line, highlight=False, markup=False)
    table.check({arm for _, arm in pairs})
    end: BaseException | None = None
    try:
        table.run_all(pairs, arguments.gpus)
    except (SystemExit, KeyboardInterrupt) as stop:
        end = stop  # the runs have ended, and what they have is packed
    left = [(seed, arm) for seed, arm in pairs if not is_done(table.folder(arm, seed), arm)]
    for name, reason in runner.failed.items():
        console.print(f"failed: {name} ({reason})", highlight=False, markup=False)
    if arguments.pack:
        whole_runs = {table.folder(arm, seed) for seed, arm in left}
        whole_runs |= {table.folder(arms[arm].start, seed) for seed, arm in left if table.needs_start(arm, seed)}
        for line in pack_runs(arguments.runs, whole_runs, arguments.pack, arguments.limit_mib, arguments.split_mib):
            console.print(line, highlight=False)
    done = len(pairs) - len(left)
    console.print(f"{done} of {len(pairs)} arms are done" + ("; the same command continues" if left else ""))
    if end is not None:
        raise end
    return 1 if left else 0


if __name__ == "__main__":
    run_command(main)
