"""The table of all arms: which runs it makes, which it takes from elsewhere, and the winners of its runs."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.paper import arms, records, run, travel
from benchmarks.training.ablation_runs import Runner
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.stated_rules import rules_in_force
from tests.benchmarks.paper.tiny_table import write_lines, write_table

# A table on bundled problems; those have no scaled sizes, which would be computed.
OF_BUNDLED = [
    "recipe=kernelbench_one_gpu", "policy.path=y", "problems=bundled", *arms.SHARED, "problems.sizes=published",
]  # fmt: skip


def freedom_command() -> list[str]:
    """Return the arguments of the documented command for runs with the paper's own freedom."""
    page = (Path(__file__).parents[3] / "docs" / "ablations.md").read_text().replace(" \\\n", " ")
    (command,) = re.findall(r"^python -m benchmarks.paper.run (.*runs/freedom.*)$", page, re.M)
    return shlex.split(command)


def test_todo_when_an_arm_is_wanted_has_what_it_starts_from_before_it():
    assert arms.todo(["bucket"], [1]) == [(1, "stage1"), (1, "stage2"), (1, "bucket")]
    for arm in ("bucket", "stage2-long"):  # these two are compared, and start where the other does
        assert arms.todo([arm], [1], arms.arms_from("stage1")) == [(1, "stage1"), (1, arm)]
    pairs = arms.todo(list(arms.ARMS), [1, 2])
    assert pairs[len(arms.ARMS)][0] == 2 and (2, "island") not in pairs and (2, "grpo") in pairs
    assert all(pairs.index((s, arms.ARMS[a].start)) < pairs.index((s, a)) for s, a in pairs if arms.ARMS[a].start)


@pytest.mark.parametrize("samples", [1, 500, 1920, 5000])
def test_rounds_when_stage_2_gets_the_samples_of_stage_3_come_nearest_to_them(samples):
    config = load_config(["self_supervised.samples_per_problem=4"])

    def samples_of(rounds: int) -> int:
        return 40 * 4 * (2 * rounds - 1)  # from the second round on with exemplars as well

    rounds = arms.rounds_for(samples, 40, config)
    assert all(abs(samples_of(rounds) - samples) <= abs(samples_of(other) - samples) for other in range(1, 60))


@pytest.mark.parametrize("arm", [name for name, arm in arms.ARMS.items() if arm.stage])
def test_settings_of_an_arm_when_composed_with_the_recipe_hold(arm):
    config = load_config(
        ["recipe=kernelbench_one_gpu", "policy.path=x", "problems.path=x", *arms.SHARED, *arms.ARMS[arm].settings]
    )
    assert config.exemplars.seed_from == "kernelbench" and config.contrastive.ask_again == 0
    assert (config.exemplars.strategy == "none") == (arm == "grpo")
    assert (config.contrastive.learning_rate == 0) == (arm == "evolution")


def test_freedom_when_its_documented_command_is_composed_asks_for_no_own_kernel():
    arguments = run.parse(freedom_command())
    for arm in arguments.arms:
        config = load_config([*arms.SHARED, *arguments.overrides, *arms.ARMS[arm].settings])
        rules = config.evaluation.rules
        assert (rules.own_kernel, rules.compilers, rules.same_operations) == ("any", "allow", "flag")
        assert (config.problems.sizes, config.problems.paper_path) == ("paper", "SIZES.parquet")
        assert config.rewards.kind == "speedup" and config.recipe == "kernelbench_one_gpu"
        assert not any("kernel of your own" in text or "compile" in text for text in rules_in_force(config.evaluation))
    assert [name for _, name in arms.todo(arguments.arms, arguments.seeds, arms.arms_from(arguments.start))] == [
        "stage1", "grpo", "bucket", "base",
    ]  # fmt: skip


def test_settings_when_they_follow_options_of_several_words_are_settings():
    words = "--seeds 1 2 recipe=x --gpus 0 1 problems.path=y --unpack a b +c.d=1 --pack p e=f"
    arguments = run.parse(words.split())
    assert (arguments.seeds, arguments.gpus, list(map(str, arguments.unpack))) == ([1, 2], ["0", "1"], ["a", "b"])
    assert arguments.pack == Path("p")
    assert arguments.overrides == ["recipe=x", "problems.path=y", "+c.d=1", "e=f"]


@pytest.mark.parametrize(("names", "policy", "refused"), [
    (["stage1", "bucket", "evolution"], [], True),
    (["base", "stage1", "stage2", "bucket", "random"], [], False),
    (["evolution"], ["policy=huggingface", "policy.path=somewhere"], False),
])  # fmt: skip
def test_table_when_an_arm_would_start_from_random_weights_refuses_it_before_any_run(tmp_path, names, policy, refused):
    runner = Runner(tmp_path, math.inf, ["recipe=demo", *policy, *arms.SHARED], Console(quiet=True))
    table = run.Table(runner, samples=1)
    if refused:
        with pytest.raises(UserError, match="--arms evolution: .*policy.path"):
            table.check(names)
    else:
        table.check(names)


def test_table_when_an_arm_has_no_place_in_it_refuses_it_before_any_run(tmp_path):
    runner = Runner(tmp_path, math.inf, ["recipe=demo", *arms.SHARED], Console(quiet=True))
    table = run.Table(runner, samples=1, arms=arms.arms_from("stage1"))
    table.check(["stage1", "stage2-long", "bucket"])
    with pytest.raises(UserError, match="--arms stage2: .*stage2-long is stages 1"):
        table.check(["stage1", "stage2", "bucket"])


@pytest.mark.parametrize(("arm", "needs"), [("bucket", True), ("grpo", False), ("stage2-long", False)])
def test_arm_when_begun_needs_its_start_for_its_control_alone(tmp_path, arm, needs):
    runner = Runner(tmp_path, math.inf, ["recipe=demo", *arms.SHARED], Console(quiet=True))
    table = run.Table(runner, samples=1, arms=arms.arms_from("stage1"))
    assert table.needs_start(arm, 1)
    (table.folder(arm, 1) / "checkpoints" / f"{table.arms[arm].stage}-000001" / "state").mkdir(parents=True)
    assert table.needs_start(arm, 1) == needs


def ended_run(table: run.Table, failing: str = ""):
    """Return what stands for a process: it leaves the checkpoint and the assessment of a finished run, unless it is
    that of the run `failing`."""

    def process(name: str, command: list[str], gpu: str) -> tuple[int, str]:
        if name == failing:
            return 1, "broken"
        if command[0] == "train":
            stage = next(word for word in command if word.startswith("stage=")).removeprefix("stage=")
            folder = table.runner.folder / name
            (folder / "checkpoints" / f"{stage}-final" / "state").mkdir(parents=True, exist_ok=True)
            write_lines(folder / "assessments.jsonl", [{"stage": stage}])
            write_lines(folder / "metrics.jsonl", [{"stage": stage, "step": 1, "wall_s": 60.0}])
        return 0, ""

    return process


def test_arm_when_trained_is_assessed_by_its_run_on_the_tables_problems(tmp_path, monkeypatch):
    commands: list[list[str]] = []
    runner = Runner(tmp_path, math.inf, [*OF_BUNDLED, "problems.limit=1"], Console(quiet=True))
    table = run.Table(runner, samples=2, assessed=40, arms=arms.arms_from("stage1"))
    end = ended_run(table)
    monkeypatch.setattr(runner, "_process", lambda *words: commands.append(words[1]) or end(*words))
    assert all(table.run(arm, 2) for arm in ("stage1", "bucket", "base"))
    start = tmp_path / "seed-2-stage1" / "checkpoints" / "sft-final"
    assert [command[0] for command in commands] == ["train", "train", "assess"]
    assert {"assessment.samples_per_problem=2", "assessment.problems=40", f"init_from={start}"} <= set(commands[1])
    assert commands[2][1:8] == [str(tmp_path / "seed-2-stage1"), *"--policy base --samples 2 --problems 40".split()]
    assert {"problems.limit=1", 'problems.split="all"', 'policy.path="y"'} <= set(commands[2])
    record = records.read_arms(tmp_path / "seed-2-bucket")["bucket"]
    assert record["training_minutes"] == 1.0 and record["policy"] == "contrastive-final"
    assert all(table.run(arm, 2) for arm in ("stage1", "bucket", "base")) and len(commands) == 3


@pytest.mark.parametrize(("starts", "is_recorded"), [(1, True), (2, False)])
def test_assessment_minutes_when_a_start_has_no_attempt_are_unknown(tmp_path, monkeypatch, starts, is_recorded):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table = run.Table(runner, samples=2)
    end = ended_run(table)
    monkeypatch.setattr(runner, "_process", end)
    (folder := table.folder("stage1", 1)).mkdir()
    write_lines(folder / "environment.jsonl", [{"at": ""}] * starts)
    assert table.run("stage1", 1)
    assert table.run("base", 1)
    notes = records.read_arms(folder)
    assert (notes["stage1"]["assessment_minutes"] is not None) == is_recorded
    assert notes["base"]["assessment_minutes"] is not None


def test_arm_when_its_run_ends_before_its_assessment_is_not_done(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table = run.Table(runner, samples=2)
    (tmp_path / "seed-1-stage1" / "checkpoints" / "sft-final" / "state").mkdir(parents=True)
    monkeypatch.setattr(runner, "_process", lambda *_: (0, ""))
    assert not table.run("stage1", 1) and table.trained("stage1", 1)
    assert not records.is_done(table.folder("stage1", 1), "stage1")


def test_arms_when_there_are_several_gpus_run_side_by_side_each_after_what_it_starts_from(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table = run.Table(runner, samples=2, arms=arms.arms_from("stage1"))
    started, together, end = [], threading.Barrier(2, timeout=60), ended_run(table, failing="seed-1-bucket")

    def process(name, command, gpu):
        started.append((name, command[0], gpu))
        if name != "seed-1-stage1":
            (table.folder("stage1", 1) / "checkpoints" / "sft-final" / "state").stat()  # what it starts from is there
            together.wait()  # breaks unless the other arm is trained at the same time
        return end(name, command, gpu)

    monkeypatch.setattr(runner, "_process", process)
    pairs = arms.todo(["base", "grpo", "bucket"], [1], table.arms)
    assert table.run_all(pairs, ["2", "3"]) == [(1, "bucket")] and "broken" in runner.failed["seed-1-bucket"]
    assert started[0] == ("seed-1-stage1", "train", "2") and {gpu for *_, gpu in started} == {"2", "3"}
    assert started[-1][:2] == ("seed-1-stage1", "assess")
    assert all(records.is_done(table.folder(arm, 1), arm) for arm in ("stage1", "base", "grpo"))


def test_arm_when_the_policy_it_starts_from_is_still_assessed_begins(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table, begun = run.Table(runner, samples=2, arms=arms.arms_from("stage1")), threading.Event()
    end = ended_run(table)

    def process(name, command, gpu):
        if name == "seed-1-stage1":
            (table.folder("stage1", 1) / "checkpoints" / "sft-final" / "state").mkdir(parents=True)
            assert begun.wait(60), "GRPO waits for the assessment of stage 1"
        begun.set()
        return end(name, command, gpu)

    monkeypatch.setattr(runner, "_process", process)
    assert table.run_all(arms.todo(["grpo"], [1], table.arms), ["0", "1"]) == []


def test_arms_when_others_wait_for_nothing_come_in_the_order_of_what_they_learn(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table, started = run.Table(runner, samples=2, arms=arms.arms_from("stage1")), []
    end = ended_run(table)
    monkeypatch.setattr(runner, "_process", lambda *words: started.append(words[0]) or end(*words))
    pairs = arms.todo(["base", "evolution", "grpo", "bucket"], [1], table.arms)
    assert table.run_all(pairs, ["0"]) == []
    assert [name.removeprefix("seed-1-") for name in started] == ["stage1", "bucket", "grpo", "evolution", "stage1"]


def test_arm_when_the_policy_it_starts_from_was_left_out_of_a_pack_is_named(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table = run.Table(runner, samples=2, arms=arms.arms_from("stage1"))
    records.note_arm(table.folder("stage1", 1), "stage1", {"at": 1.0})  # done, and its checkpoint is not here
    monkeypatch.setattr(runner, "_process", ended_run(table))
    assert table.run_all([(1, "stage1"), (1, "grpo")], ["0"]) == [(1, "grpo")]
    assert re.search("needs the policy of .*seed-1-stage1, .* not there", runner.failed["seed-1-grpo"])


def test_arms_when_one_is_done_go_on_while_the_runs_are_packed(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table = run.Table(runner, samples=2, arms=arms.arms_from("stage1"))
    begun, packed, end = threading.Event(), [], ended_run(table)

    def process(name, *words):
        if name == "seed-1-grpo":
            begun.set()
        return end(name, *words)

    monkeypatch.setattr(runner, "_process", process)
    pairs = arms.todo(["grpo"], [1], table.arms)
    assert table.run_all(pairs, ["0"], lambda: packed.append(begun.wait(20))) == [] and packed == [True]
    assert table.run_all(pairs, ["0"], lambda: packed.append(False)) == [] and packed == [True]  # none was left


def test_runs_when_none_goes_on_are_left_to_the_caller_to_pack(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table, packed = run.Table(runner, samples=2, arms=arms.arms_from("stage1")), []
    monkeypatch.setattr(runner, "_process", ended_run(table, failing="seed-1-bucket"))
    pairs = arms.todo(["grpo", "bucket"], [1], table.arms)
    assert table.run_all(pairs, ["0"], lambda: packed.append(table.left(pairs))) == [(1, "bucket")]
    assert packed == [[(1, "grpo"), (1, "bucket")]]  # once stage 1 is done, not again when GRPO is


def test_arms_when_the_time_is_up_are_stopped_whatever_they_do(tmp_path, monkeypatch):
    runner = Runner(tmp_path, time.monotonic(), OF_BUNDLED, Console(quiet=True))
    table, stopped = run.Table(runner, samples=2, arms=arms.arms_from("stage1")), threading.Event()
    monkeypatch.setattr(run, "LEAST_MINUTES", -math.inf)
    monkeypatch.setattr(runner, "_process", lambda *_: (143, "") if stopped.wait(60) else (0, ""))
    stop = runner.stop
    monkeypatch.setattr(runner, "stop", lambda: (stop(), stopped.set()))
    pairs = [(1, "stage1"), (1, "evolution")]
    assert table.run_all(pairs, ["0"]) == pairs and "exit code 143" in runner.failed["seed-1-stage1"]


def test_arms_when_others_wait_for_them_come_first_each_with_cores_of_its_own(tmp_path, monkeypatch):
    runner = Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True))
    table, started = run.Table(runner, samples=2, arms=arms.arms_from("stage1")), []
    monkeypatch.setattr(run, "shares", lambda cores, count: [cores] * count)
    monkeypatch.setattr(runner, "_process", lambda name, command, gpu: started.append((name, gpu)) or (1, ""))
    assert len(table.run_all(arms.todo(["evolution", "grpo"], [1, 2], table.arms), ["0"])) == 6
    assert [name for name, _ in started] == ["seed-1-stage1", "seed-2-stage1", "seed-1-evolution", "seed-2-evolution"]


def test_shares_when_cores_are_divided_are_neighbours_or_all_where_there_are_too_few():
    assert run.shares(set(range(10)), 4) == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert run.shares({3}, 2) == [{3}, {3}]


@pytest.mark.parametrize("end", [SystemExit(143), None])
def test_table_when_it_is_stopped_packs_what_the_runs_have(tmp_path, monkeypatch, end):
    runs = write_table(tmp_path / "runs", {"stage1": 1.0}, (1,))

    def run_all(table, pairs, gpus, after_each):
        after_each()
        shutil.rmtree(tmp_path / "packed")  # what follows is packed at the end
        if end:
            raise end

    monkeypatch.setattr(run.Table, "run_all", run_all)
    words = ["--runs", str(runs), "--seeds", "1", "--arms", "stage1", "grpo", "--pack", str(tmp_path / "packed")]
    monkeypatch.setattr(run.sys, "argv", ["run", *words, "--start", "stage1", *OF_BUNDLED])
    if end:
        with pytest.raises(SystemExit):
            run.main()
    else:
        assert run.main() == 1  # without grpo
    assert list(travel.unpack_runs([tmp_path / "packed"], tmp_path / "there")) == ["seed-1-stage1"]


@pytest.mark.parametrize("signals", [1, 2], ids=["after_its_step", "at_once"])
def test_processes_when_the_table_is_stopped_in_the_background_end_by_themselves(tmp_path, monkeypatch, signals):
    """What a shell starts in the background ignores interrupts; a run ends within its step at the second SIGTERM."""
    runner = Runner(tmp_path, math.inf, [], Console(quiet=True))
    code = f"""import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("up", flush=True)
for _ in range({signals}):
    signal.sigwait([signal.SIGTERM])
sys.exit(7)
"""
    (tmp_path / "run.py").write_text(code)
    (tmp_path / "cudal1").write_text(f"#!/bin/sh\ntrap '' INT\nexec {sys.executable} {tmp_path / 'run.py'}\n")
    (tmp_path / "cudal1").chmod(0o755)
    monkeypatch.setattr("benchmarks.training.ablation_runs.sys.executable", str(tmp_path / "cudal1"))
    if signals > 1:
        monkeypatch.setattr("benchmarks.training.ablation_runs._STOP_S", 1.0)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(runner.process, "one", ["train"])
        while not (log := tmp_path / "logs" / "one.log").exists() or "up" not in log.read_text():
            time.sleep(0.01)
        runner.stop()
        assert not ended.result(60) and "exit code 7" in runner.failed["one"] and runner.late


@pytest.mark.parametrize(("arm", "needed"), [("grpo", False), ("bucket", True)])
def test_start_of_an_arm_when_the_arm_has_a_checkpoint_is_needed_for_the_control_alone(tmp_path, arm, needed):
    table = run.Table(Runner(tmp_path, math.inf, OF_BUNDLED, Console(quiet=True)), samples=2)
    assert table.needs_start(arm, 2) and not table.needs_start("stage1", 2)
    (table.folder(arm, 2) / "checkpoints" / "contrastive-000016" / "state").mkdir(parents=True)
    assert table.needs_start(arm, 2) == needed and table.lacks(arm, 2) == ("stage2" if needed else "")
