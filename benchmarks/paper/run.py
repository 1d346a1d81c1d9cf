"""The runs of the paper's table: every arm for every seed, by ordinary `cudal1 train`, which assesses what it trained,
and `cudal1 assess` for the base model.

    python -m benchmarks.paper.run --runs runs/table --seeds 1 2 3 recipe=kernelbench_one_gpu policy.path=FOLDER \
        problems.path=FILE.parquet [--minutes 25] [--pack FOLDER]
    python -m benchmarks.paper.run --runs runs/table --unpack FOLDER ...      on the next machine, then as before
    python -m benchmarks.paper.run --runs runs/table --gpus 0 1 2 3 ...       as many runs side by side, a GPU each

A finished arm is not run again, a broken one goes on from its last checkpoint. With `--minutes`, and at SIGTERM, a run
under way ends with a checkpoint; `--minutes 0` starts none. `--pack` writes what the next machine needs, whenever an
arm ends and at the end: of finished runs their results, and their adapters where there is room, of others and of what
they start from all that goes on. Another process of this command, with the same runs, may be at work meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from rich.console import Console

from benchmarks.common.command_line import parse_with_settings, run_command
from benchmarks.paper.arms import ARMS, SHARED, Arm, arms_from, budget, rounds_for, run_name, todo
from benchmarks.paper.records import is_done, note_arm, stage_minutes
from benchmarks.paper.travel import pack_runs, unpack_runs
from benchmarks.training.ablation_runs import Runner, is_finished
from cudal1_ray.config import load_config, to_dict
from cudal1_ray.errors import UserError
from cudal1_ray.problems import load_problems
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.training.checkpoints import CheckpointStore
from cudal1_ray.training.policy_assessment import BASE

# Minutes that a run gets to end in before the time is up: its step, a checkpoint and the next start would not fit.
LEAST_MINUTES = 4.0
# Seconds between two looks whether an arm can begin: a policy is there two minutes before its own assessment ends.
LOOK_S = 2.0


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

    def check(self, names: Collection[str]) -> None:
        """Raise UserError when the table has no such arm, or one trains the base model further, of random weights."""
        if absent := [name for name in names if name not in self.arms]:
            why = "nothing starts from it with --start stage1; stage2-long is stages 1 + 2 then"
            raise UserError(f"--arms {' '.join(absent)}: {why}")
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
        return bool(self.arms[arm].start) and (self.arms[arm].has_control or not begun)

    def needed(self, arm: str) -> str:
        """Return the arm whose policy or folder this one needs; empty for one that needs none."""
        return "stage1" if arm == "base" else self.arms[arm].start

    def lacks(self, arm: str, seed: int) -> str:
        """Return the arm whose policy this one needs and that is not there; empty when it can run."""
        needed = self.needed(arm) if arm == "base" or self.needs_start(arm, seed) else ""
        return needed if needed and not self.trained(needed, seed) else ""

    def run(self, arm: str, seed: int, gpu: str = "") -> bool:
        """Train and assess an arm; return whether it is done.

        Args:
            gpu: that the processes see, as in CUDA_VISIBLE_DEVICES; empty: what this process sees.
        """
        if is_done(self.folder(arm, seed), arm):
            return True
        if self.runner.minutes_left < LEAST_MINUTES:
            return False
        return self._train(arm, seed, gpu) if self.arms[arm].stage else self._assess(arm, seed, gpu)

    def run_all(
        self, pairs: Sequence[tuple[int, str]], gpus: Sequence[str], after_each: Callable[[], None] = lambda: None
    ) -> list[tuple[int, str]]:
        """Train and assess arms, as many side by side as there are GPUs, and return the (seed, arm) not done.

        Args:
            after_each: called whenever an arm has been run and others are left, once the next ones run.

        An arm waits for the policy that it starts from, not for its assessment, and for another arm in the same folder.
        Of those that can begin, what others wait for comes first, then those whose policies learn, with exemplars
        before without, and at last those with the base model's weights. What still runs when the time is up is stopped.
        """
        left, arm_ended = self.left(pairs), False
        tried: set[tuple[int, str]] = set()
        waited_for = {(seed, self.needed(arm)) for seed, arm in left}
        cores = dict(zip(gpus, shares(os.sched_getaffinity(0), len(gpus)), strict=True))
        running: dict[Future[bool], tuple[tuple[int, str], str]] = {}

        for seed, arm in left:
            if (lacking := self.lacks(arm, seed)) and (seed, lacking) not in left:
                reason = f"needs the policy of {self.folder(lacking, seed)}, whose checkpoint is not there; "
                self.runner.fail(run_name(arm, seed), f"{reason}unpack a pack that has it, or delete that folder")

        def order(pair: tuple[int, str]) -> tuple[bool, bool, bool]:
            arm = self.arms[pair[1]]
            return pair not in waited_for, not arm.learns, not arm.shows_exemplars

        def on(gpu: str, arm: str, seed: int) -> bool:
            os.sched_setaffinity(0, cores[gpu])  # of this thread, and of the processes that it starts
            return self.run(arm, seed, gpu)

        with ThreadPoolExecutor(len(gpus)) as pool:
            try:
                while True:
                    busy = {self.folder(arm, seed) for (seed, arm), _ in running.values()}
                    free = [gpu for gpu in gpus if gpu not in {of for _, of in running.values()}]
                    for seed, arm in sorted(left, key=order):
                        if not free or (seed, arm) in tried or self.folder(arm, seed) in busy:
                            continue
                        if not self.lacks(arm, seed):
                            gpu = free.pop(0)
                            running[pool.submit(on, gpu, arm, seed)] = ((seed, arm), gpu)
                            tried.add((seed, arm))
                            busy.add(self.folder(arm, seed))
                    if not running:
                        return left
                    if arm_ended:
                        after_each()
                    done = wait(running, LOOK_S, return_when=FIRST_COMPLETED).done
                    if self.runner.seconds_left == 0.0:
                        self.runner.stop()
                    outcomes = {running.pop(future)[0]: future.result() for future in done}
                    left, arm_ended = [pair for pair in left if not outcomes.get(pair)], any(outcomes.values())
            finally:
                self.runner.stop()

    def pack(self, pairs: Sequence[tuple[int, str]], out: Path, limit_mib: float, split_mib: float) -> Iterator[str]:
        """Pack the runs into a folder: of arms that are not done, and of what they start from, all that goes on.

        Raises:
            UserError: the results do not fit.
        """
        left = self.left(pairs)
        whole_runs = {self.folder(arm, seed) for seed, arm in left}
        whole_runs |= {self.folder(self.arms[arm].start, seed) for seed, arm in left if self.needs_start(arm, seed)}
        return pack_runs(self.runner.folder, whole_runs, out, limit_mib, split_mib)

    def left(self, pairs: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
        """Return the (seed, arm) that are not done."""
        return [(seed, arm) for seed, arm in pairs if not is_done(self.folder(arm, seed), arm)]

    def trained(self, arm: str, seed: int) -> bool:
        """Return whether the policy of an arm is there."""
        return (self.folder(arm, seed) / "checkpoints" / self._policy(arm) / "state").is_dir()

    def _policy(self, arm: str) -> str:
        """Return the name of the arm's final policy, a checkpoint of its run."""
        return f"{self.arms[arm].stage}-final" if self.arms[arm].stage else BASE

    def _train(self, arm: str, seed: int, gpu: str) -> bool:
        """Train an arm's policy and assess it, in one process; return whether that ended well."""
        minutes, run, of_arm = self.runner.minutes_left, self.folder(arm, seed), self.arms[arm]
        settings = [*of_arm.settings]
        if of_arm.start:
            settings.append(f"init_from={self._start(arm, seed)}")
        if arm == "stage2-long":
            settings.append(f"self_supervised.rounds={rounds_for(budget(self.config), self.problems, self.config)}")
        if minutes != float("inf"):
            settings.append(f"max_minutes={minutes:.1f}")
        place = [f"name={run.name}", f"runs_dir={self.runner.folder}", f"seed={seed}"]
        assessment = [f"assessment.samples_per_problem={self.samples}"]
        if self.assessed is not None:
            assessment.append(f"assessment.problems={self.assessed}")
        command = ["train", *place, f"stage={of_arm.stage}", *assessment, *self.runner.overrides, *settings]
        if not self.runner.process(run.name, command, gpu=gpu) or not is_finished(run, of_arm.stage):
            return False
        training = stage_minutes(run, of_arm.stage)
        whole = self.runner.minutes(run.name, "train")
        self._note(arm, seed, training, None if whole is None else round(whole - training, 2))
        return True

    def _assess(self, arm: str, seed: int, gpu: str) -> bool:
        """Assess the policy with which a run began; return whether that ended well."""
        run, what = self.folder(arm, seed), f"assess {arm}"
        command = ["assess", str(run), "--policy", BASE, "--samples", str(self.samples)]
        if self.assessed is not None:
            command += ["--problems", str(self.assessed)]
        if not self.runner.process(run.name, [*command, *self._places()], what, gpu):
            return False
        self._note(arm, seed, 0.0, self.runner.minutes(run.name, what))
        return True

    def _note(self, arm: str, seed: int, training: float, other: float | None) -> None:
        figures = {"seed": seed, "policy": self._policy(arm), "start": self.arms[arm].start}
        minutes = {"training_minutes": training, "assessment_minutes": other}
        note_arm(self.folder(arm, seed), arm, figures | minutes | {"at": time.time()})

    def _start(self, arm: str, seed: int) -> Path:
        """Return the checkpoint that an arm's policy starts from."""
        start = self.arms[arm].start
        return self.folder(start, seed) / "checkpoints" / self._policy(start)

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
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), help="default: all")
    parser.add_argument("--start", choices=("stage1", "stage2"), default="stage2", help="of stage 3's arms")
    parser.add_argument("--samples", type=int, default=4, help="of each problem, in an assessment (default: 4)")
    parser.add_argument("--problems", type=int, help="of each split, in an assessment (default: all)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="minutes within which all runs end")
    parser.add_argument(
        "--gpus", nargs="+", default=[""], metavar="GPU", help="as many runs at once, each with its GPU"
    )
    parser.add_argument("--unpack", type=Path, nargs="+", help="what another machine packed")
    parser.add_argument("--pack", type=Path, help="write into this folder what the next machine needs")
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
    pairs = todo(arguments.arms or list(arms), arguments.seeds, arms)
    table.check(dict.fromkeys([*(arguments.arms or ()), *(arm for _, arm in pairs)]))

    def pack() -> None:
        if arguments.pack:
            for line in table.pack(pairs, arguments.pack, arguments.limit_mib, arguments.split_mib):
                console.print(line, highlight=False)

    def pack_meanwhile() -> None:
        try:
            pack()
        except (UserError, OSError) as error:  # of a run under way a file may just be replaced
            console.print(f"not packed yet: {error}", highlight=False, markup=False)

    end: BaseException | None = None
    try:
        table.run_all(pairs, arguments.gpus, pack_meanwhile)
    except (SystemExit, KeyboardInterrupt) as stop:
        end = stop  # the runs have ended, and what they have is packed
    left = table.left(pairs)
    for name, reason in runner.failed.items():
        console.print(f"failed: {name} ({reason})", highlight=False, markup=False)
    pack()
    done = len(pairs) - len(left)
    console.print(f"{done} of {len(pairs)} arms are done" + ("; the same command continues" if left else ""))
    if end is not None:
        raise end
    return 1 if left else 0


if __name__ == "__main__":
    run_command(main)
