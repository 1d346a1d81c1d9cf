"""The command as a stranger meets it: help that explains, one line and exit code 2 for a mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cudal1_ray
from cudal1_ray.cli import main
from cudal1_ray.commands.arguments import add_later_arguments, build_parser
from tests.measured_once import MEASURED_ONCE

SLOWER = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.cat([a, b], dim=0).reshape(2, -1, a.shape[1]).sum(dim=0)
"""
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return []
"""


def cudal1(*arguments: str, cwd: Path | None = None, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cudal1_ray.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout)


@pytest.mark.parametrize("command", ["train", "evaluate", "report", "doctor"])
def test_help_when_given_to_a_command_explains_it(command):
    own = cudal1(command, "--help")
    assert own.returncode == 0 and command in own.stdout and len(own.stdout.splitlines()) > 5


def test_command_when_missing_prints_the_help(capsys):
    assert main([]) == 2
    assert "evaluate" in capsys.readouterr().out


def test_help_when_given_alone_names_every_command():
    top = cudal1("--help")
    assert top.returncode == 0
    for command in ("train", "evaluate", "report", "doctor", "serve", "optimize"):
        assert command in top.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("train", "contrastive.steps=few"), "contrastive.steps"),
        (("train", "no.such.key=1"), "no.such.key"),
        (("train", "policy=unknown"), "policy=unknown"),
        (("train", "problems=kernelbench_folder", "problems.path=missing-folder"), "missing-folder"),
        (("train", "name=x", "runs_dir=FILE"), "runs_dir"),
        (("train", "name=x", "runs_dir=RUNS", "stage=contrastive"), "stage=self_supervised"),
        (("train", "name=x", "runs_dir=RUNS", "stage=contrastive", "init_from=nowhere"), "init_from=nowhere"),
        (("train", "name=x", "runs_dir=RUNS", "policy=gguf", "policy.path=none.gguf"), "recipe=demo"),
        (
            (
                "train",
                "name=x",
                "runs_dir=RUNS",
                "recipe=my_problems_cpu",
                "problems=bundled",
                "policy=gguf",
                "policy.path=none.gguf",
            ),
            "none.gguf",
        ),  # fmt: skip
        (("report", "no-such-run"), "no-such-run"),
        (("evaluate", "missing.py", "problem.py"), "cudal1 evaluate missing.py --problem problem.py"),
        (("evaluate", "missing.py", "--problem", "swish_chain_1"), "missing.py"),
        (("evaluate", "FILE", "--problem", "no_such_problem"), "no_such_problem"),
        (("evaluate", "FILE", "--problem", "FILE"), "Model"),
        (("evaluate", "FILE", "--problem", "."), "a folder"),
        (("evaluate", "FILE", "--problem", "/dev/null"), "/dev/null: no top-level class `Model`"),
        (("evaluate", "FILE", "--problem", "swish_chain_1", "evaluation.device=cuda:99"), "evaluation.device=cuda:99"),
        (
            ("evaluate", "FILE", "--problem", "FILE", "problems.sizes=scaled"),
            "problems.sizes=scaled: is read with --run",
        ),
        (("evaluate", "--manifest", "FILE", "--out", "v", "cluster.num_cpus=2"), "num_cpus=2: is read with --ray"),
        (("evaluate", "--run", ".", "rewards=success"), "rewards=success: is read by `cudal1 train` only"),
        (("evaluate", "--run", ".", "--fail-on", "slower"), "--fail-on: goes with one CANDIDATE"),
        (("collect",), "policy.kind=scratch"),
        (
            ("collect", "policy=endpoint", "policy.url=http://x", "policy.model=m", "collect.out=FILE/x.parquet"),
            "file.py: File exists; give another path",
        ),
        (("train", "--cfg", "name=two\nlines"), "must be a plain folder name"),
        (("train", "--cfg", "problems.path=FILE"), "file.py: problems.source=bundled reads no path"),
        (("train", "--cfg", "policy.path=FILE"), "file.py: policy.kind=scratch makes a policy of its own"),
        (("evaluate", "--run", ".", "problems.path=FILE"), "file.py: problems.source=bundled reads no path"),
        (("train", "--cfg", f"name={'x' * 250}"), "must be a plain folder name"),
        (("train", "--cfg", "problems.path=~no-such-user/x"), "problems.path=~no-such-user/x: there is no such home"),
        (("evaluate", "FILE", "--problem", "x" * 300), "File name too long; give another path"),
        (("pack", "y" * 300), "give another path"),
        (("train", "name=x", "--cfg", "exemplars.strategy=buckett"), "failures_included"),
        (("train", "--cfg", "name=x", "algorithm.name=grpoo"), "dr_grpo"),
        (("train", "name=x", "sft.schedule=slow", "--cfg"), "cosine"),
    ],
)
def test_command_when_given_a_mistake_prints_one_line_and_exits_with_2(arguments, named, tmp_path, monkeypatch, capfd):
    """In this process, which has the heavy packages already; the full disk below sees the command from outside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.py").write_text("x = 1\n")
    command = [a.replace("FILE", str(tmp_path / "file.py")).replace("RUNS", str(tmp_path / "runs")) for a in arguments]
    capfd.readouterr()
    assert main(command) == 2
    error = capfd.readouterr().err
    assert named in error and "Traceback" not in error
    assert len(error.strip().splitlines()) == 1, error


@pytest.mark.parametrize(
    "command",
    [("train", "--help-me"), ("doctor", "more"), ("samples", "runs/x", "--bset"), ("pack", "runs/x", "x.pack", "more")],
)
def test_option_when_it_does_not_exist_is_answered_with_the_commands_usage(command, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(list(command))
    assert capsys.readouterr().err.startswith(f"usage: cudal1 {command[0]} ")


@pytest.mark.parametrize(("command", "missing"), [("optimize", "file"), ("assess", "run_folder"), ("unpack", "files")])
def test_argument_when_it_is_missing_is_the_only_one_that_is_asked_for(command, missing, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([command])
    assert capsys.readouterr().err.endswith(f"the following arguments are required: {missing}\n")


@pytest.mark.parametrize(
    ("command", "name", "value"),
    [
        (["pack", "runs/x", "--limit-mib", "8", "x.pack"], "pack_file", "x.pack"),
        (["pack", "runs/x", "x.pack", "--limit-mib", "8"], "pack_file", "x.pack"),
        (["unpack", "x.001", "--to", "runs/y", "x.002"], "files", ["x.001", "x.002"]),
        (["assess", "runs/x", "seed=1", "--samples", "2", "name=y"], "overrides", ["seed=1", "name=y"]),
    ],
)
def test_arguments_when_some_stand_behind_options_are_taken_in_their_order(command, name, value):
    arguments, rest = build_parser().parse_known_args(command)
    add_later_arguments(arguments.parser, arguments, rest)
    assert getattr(arguments, name) == value


def test_evaluate_when_given_a_candidate_prints_its_verdict(tmp_path, monkeypatch, capfd):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "candidate.py").write_text(SLOWER)
    settings = ["evaluation.timing.budget_s=0.5", *MEASURED_ONCE]
    done = cudal1("evaluate", "candidate.py", "--problem", "problem.py", "--json", *settings, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "accepted" and verdict["speedup_low"] <= verdict["speedup"] <= verdict["speedup_high"]
    (tmp_path / "wrong.py").write_text(SLOWER.replace("sum(dim=0)", "mean(dim=0)"))
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "wrong.py", "--problem", "problem.py"]) == 0
    output = capfd.readouterr().out
    assert "rejected" in output and "wrong_output" in output


@pytest.mark.parametrize("command", ["train --help", "train --cfg", "doctor"])
def test_command_when_its_reader_closes_the_pipe_succeeds(command):
    """Help and settings are printed by Python, the lines of doctor by rich."""
    script = f"{sys.executable} -m cudal1_ray.cli {command} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1 and not done.stderr, done.stderr


def test_command_when_the_disk_is_full_prints_one_line(tmp_path):
    """On a real file system of 64 KiB, mounted in a namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    train = f"{sys.executable} -m cudal1_ray.cli train name=x runs_dir={disk}"
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*mount, f"mount -t tmpfs none {disk}"], capture_output=True).returncode:
        pytest.skip("no user namespaces on this machine")
    script = f"mount -t tmpfs -o size=64k none {disk} && {train}"
    done = subprocess.run([*mount, script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "checkpoint.min_free_mib" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("mkdir gone && cd gone && rmdir ../gone && {cudal1} doctor", "the current folder does not exist any more"),
        ("PYTHONIOENCODING=ascii {cudal1} samples j\u00f6rg", r"run folder 'j\xf6rg' does not exist"),
        ("{cudal1} --version >&- && {cudal1} samples nothing <&- >&-", "run folder 'nothing' does not exist"),
    ],
)
def test_command_when_its_surroundings_lack_something_prints_one_line(tmp_path, script, message):
    script = script.format(cudal1=f"{sys.executable} -m cudal1_ray.cli")
    environment = os.environ | {"PYTHONPATH": str(Path(cudal1_ray.__file__).parents[1])}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
