"""Writes that survive a kill at any moment, and a folder that refuses another configuration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from cudal1_ray.cli import main
from cudal1_ray.config import load_config, to_yaml
from cudal1_ray.errors import UserError
from cudal1_ray.files import JsonLines, settle_folder, write_atomically
from cudal1_ray.training.packing import parts_of
from cudal1_ray.training.run_folder import RunFolder


def test_json_lines_when_a_line_is_cut_short_keep_the_others(tmp_path):
    path = tmp_path / "rows.jsonl"
    lines = JsonLines(path)
    lines.extend([{"a": 1}, {"a": 2}])
    with open(path, "ab") as file:
        file.write(b'{"a": 3, "b": "half of a')
    reopened = JsonLines(path)
    assert list(reopened) == [{"a": 1}, {"a": 2}]
    reopened.append({"a": 4})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"a": 2}, {"a": 4}]


def test_json_lines_when_kept_replace_all(tmp_path):
    lines = JsonLines(tmp_path / "rows.jsonl")
    lines.extend([{"n": n} for n in range(5)])
    lines.keep([row for row in lines if row["n"] % 2])
    lines.append({"n": 9})
    assert [row["n"] for row in JsonLines(tmp_path / "rows.jsonl")] == [1, 3, 9]


def test_rows_when_acknowledged_before_a_kill_are_there_after_it(tmp_path):
    path = tmp_path / "rows.jsonl"
    script = (
        "import sys; from pathlib import Path; from cudal1_ray.files import JsonLines\n"
        "lines = JsonLines(Path(sys.argv[1]))\n"
        "for n in range(10**9): lines.append({'n': n, 'pad': 'x' * 500}); print(n, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    acknowledged = int(process.stdout.readline())
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        acknowledged = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    rows = [row["n"] for row in JsonLines(path)]
    assert rows == list(range(len(rows))) and len(rows) > acknowledged


def test_atomic_write_when_repeated_leaves_no_partial_file(tmp_path):
    write_atomically(tmp_path / "f.json", "one")
    write_atomically(tmp_path / "f.json", "two")
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"] and (tmp_path / "f.json").read_text() == "two"


def test_run_when_another_command_works_on_it_is_refused(tmp_path, capsys):
    arguments = ["train", "name=r", f"runs_dir={tmp_path}"]
    run = RunFolder(tmp_path / "r")
    with run.claimed():
        assert main(arguments) == 2
    assert "another command trains or assesses this run" in capsys.readouterr().err
    assert os.listdir(run.path) == [".lock"]
    (run.path / "config.yaml").write_text(to_yaml(load_config(arguments[1:])))
    with run.claimed():
        assert main(["assess", str(run.path), "--policy", "base"]) == 2
    assert "another command trains or assesses this run" in capsys.readouterr().err
    assert sorted(os.listdir(run.path)) == [".lock", "config.yaml"]
    with run.claimed():
        pass


def test_run_when_continued_has_the_same_configuration(tmp_path):
    base = [f"runs_dir={tmp_path}", "name=r"]
    RunFolder.open(load_config(base))
    RunFolder.open(load_config([*base, "stage=sft", "cluster.num_cpus=4"]))  # these change nothing that was computed
    (tmp_path / "r" / "metrics.jsonl").write_text('{"stage": "sft", "step": 1}\n')  # a step was finished
    with pytest.raises(UserError, match=r"contrastive.group_size was \d+, is 77"):
        RunFolder.open(load_config([*base, "contrastive.group_size=77"]))
    with pytest.raises(UserError, match=r"contrastive.steps was \d+, is 3, and may only grow"):
        RunFolder.open(load_config([*base, "contrastive.steps=3"]))
    RunFolder.open(load_config([*base, "contrastive.steps=77"]))
    RunFolder.open(load_config([*base, "contrastive.steps=78"]))  # beyond what it grew to
    with pytest.raises(UserError, match="contrastive.steps was 78, is 77"):
        RunFolder.open(load_config([*base, "contrastive.steps=77"]))
    noted = [json.loads(line)["changed"] for line in (tmp_path / "r" / "environment.jsonl").read_text().splitlines()]
    assert noted[0] == {} and noted[1]["cluster.num_cpus"][1] == 4 and noted[-1] == {"contrastive.steps": [77, 78]}


def test_run_when_moved_to_another_cluster_preset_goes_on_there_and_back(tmp_path):
    base = [f"runs_dir={tmp_path}", "name=r", "policy=huggingface", "policy.path=x", "contrastive.steps=2"]
    presets = ("one_gpu", "four_gpus", "one_gpu")
    for preset in presets:
        run = RunFolder.open(load_config([*base, f"cluster={preset}"]))
        run.metrics.write_text('{"stage": "contrastive", "step": 1}\n')
    with pytest.raises(UserError, match=r"another configuration: evaluation\.\S+ was"):
        RunFolder.open(load_config([*base, "cluster=one_gpu", "evaluation=cuda_train"]))


def test_stage_when_a_later_one_began_from_it_is_not_prolonged(tmp_path):
    base = [f"runs_dir={tmp_path}", "name=r", "sft.epochs=2"]
    run = RunFolder.open(load_config(base))
    run.metrics.write_text('{"stage": "self_supervised", "step": 1}\n')
    (run.checkpoints / "self_supervised-000001").mkdir(parents=True)
    with pytest.raises(UserError, match="sft.epochs was 2, is 3, but its self_supervised stage began"):
        RunFolder.open(load_config([*base, "sft.epochs=3"]))


def test_setting_when_corrected_before_a_finished_step_is_taken(tmp_path):
    base = [f"runs_dir={tmp_path}", "name=r"]
    run = RunFolder.open(load_config(base))
    run.policy.mkdir()
    run.exemplars.mkdir()
    run.metrics.write_text("")
    run.verdicts.write_text("")
    names = ("assessments_during.jsonl", "assessments_asked.jsonl", "reviews.jsonl", "hack_cases.parquet")
    left = [run.path / name for name in names]
    for path in left:
        path.write_text("")
    RunFolder.open(load_config([*base, "contrastive.group_size=5"]))
    assert not any(path.exists() for path in left)
    assert run.policy.is_dir() and run.verdicts.exists() and not run.exemplars.exists()
    RunFolder.open(load_config([*base, "contrastive.group_size=5", "evaluation.timing.budget_s=7"]))
    assert run.policy.is_dir() and not run.verdicts.exists()
    RunFolder.open(load_config([*base, "contrastive.group_size=5", "policy.layers=2"]))
    assert not run.policy.exists()
    assert yaml.safe_load((run.path / "config.yaml").read_text())["policy"]["layers"] == 2


def test_exemplars_when_a_killed_rewind_left_them_aside_do_not_come_back_after_settings_changed(tmp_path):
    base = [f"runs_dir={tmp_path}", "name=r"]
    run = RunFolder.open(load_config(base))
    (run.path / ".exemplars.replaced").mkdir()
    RunFolder.open(load_config([*base, "contrastive.group_size=5"]))
    settle_folder(run.exemplars)  # as a run does that is prepared
    assert not run.exemplars.exists()


def test_run_when_its_length_was_no_number_is_refused(tmp_path):
    run = RunFolder.open(load_config([f"runs_dir={tmp_path}"]))
    settings = yaml.safe_load((run.path / "config.yaml").read_text())
    settings["contrastive"]["steps"] = "many"
    (run.path / "config.yaml").write_text(yaml.safe_dump(settings))
    run.metrics.write_text('{"stage": "sft", "step": 1}\n')
    with pytest.raises(UserError, match="contrastive.steps was 'many'"):
        RunFolder.open(load_config([f"runs_dir={tmp_path}"]))


def test_run_when_older_than_a_setting_is_continued_at_its_default_only(tmp_path):
    base = [f"runs_dir={tmp_path}", "name=r"]
    run = RunFolder.open(load_config(base))
    settings = yaml.safe_load((run.path / "config.yaml").read_text())
    del settings["evaluation"]["timing"]["scatter_pairs"], settings["exemplars"]["remember_failures"]
    (run.path / "config.yaml").write_text(yaml.safe_dump(settings))
    run.metrics.write_text('{"stage": "sft", "step": 1}\n')
    RunFolder.open(load_config(base))
    with pytest.raises(UserError, match="exemplars.remember_failures was False, is True"):
        RunFolder.open(load_config([*base, "exemplars.remember_failures=true"]))


def test_run_when_its_policy_brings_a_shape_continues_whatever_shape_was_recorded(tmp_path):
    """Before a shape had to be given, runs recorded the default of a scratch policy, which nothing read."""
    base = [f"runs_dir={tmp_path}", "name=r", "recipe=my_problems_cpu", "policy.path=x", "problems.path=x"]
    run = RunFolder.open(load_config(base))
    settings = yaml.safe_load((run.path / "config.yaml").read_text())
    assert settings["policy"]["kind"] == "huggingface" and settings["policy"]["layers"] is None
    settings["policy"] |= {"hidden_size": 192, "layers": 4, "max_position": 2048}
    (run.path / "config.yaml").write_text(yaml.safe_dump(settings))
    run.metrics.write_text('{"stage": "sft", "step": 1}\n')
    RunFolder.open(load_config(base))


def test_run_folder_when_it_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="runs_dir"):
        RunFolder.open(load_config([f"runs_dir={tmp_path}/file", "name=r"]))


@pytest.mark.parametrize("text", ["", "seed: ["])
def test_run_when_its_configuration_is_damaged_is_neither_continued_nor_packed(tmp_path, text):
    config = load_config([f"runs_dir={tmp_path}"])
    run = RunFolder.open(config)
    (run.path / "config.yaml").write_text(text)
    for work in (lambda: RunFolder.open(config), lambda: parts_of(run)):
        with pytest.raises(UserError, match=r"config\.yaml: "):
            work()
