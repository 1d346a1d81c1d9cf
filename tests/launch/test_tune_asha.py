"""launch/tune_asha.py: scores as runs write them, room for a run, and bad runs that really stop and go on later."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.training.sweeps.reservation import total
from tests.small_stage import STAGE_1


@pytest.fixture(scope="module")
def script(repository: Path):
    """Yield the script as a module; without bytecode, which would lie beside it."""
    spec = importlib.util.spec_from_file_location("tune_asha", repository / "launch" / "tune_asha.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name], before, sys.dont_write_bytecode = module, sys.dont_write_bytecode, True
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    yield module
    del sys.modules[spec.name]


def test_score_when_a_stage_has_steps_is_the_mean_of_the_last(script, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    score = script.Score("geomean_speedup", "max", window=2)
    assert score.of(metrics, "contrastive") == []
    rows = [{"stage": "sft", "step": 1, "loss": 2.0}, {"stage": "self_supervised", "step": 1, "geomean_speedup": 9.0}]
    rows += [{"stage": "contrastive", "step": n, "geomean_speedup": float(n)} for n in (1, 2, 3)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    metrics.write_text(text + '{"stage": "contrastive", "step": 4, "geom')  # the run is writing it
    assert score.of(metrics, "contrastive") == [1.0, 1.5, 2.5]


def test_trial_when_placed_asks_for_its_driver_and_all_actors(script):
    config = load_config([])
    cluster = config.cluster
    driver, actors = script.room_of(config)
    roles = (cluster.rollout, cluster.learner, cluster.evaluator, cluster.compiler, cluster.exemplars)
    assert driver == {"CPU": script.DRIVER_CPUS}
    assert actors == {"CPU": sum(role.count * role.num_cpus for role in roles)}
    cluster.evaluator.num_gpus, cluster.evaluator.accelerator_type = 1, "A100"
    _, actors = script.room_of(config)
    assert actors["GPU"] == cluster.evaluator.count and "accelerator_type:A100" in actors
    assert total([driver, actors])["CPU"] == driver["CPU"] + actors["CPU"]


def test_trial_when_nothing_samples_its_policy_asks_for_no_rollout_engine(script):
    settings = ["recipe=kernelbench_one_gpu", "policy.path=x", "problems.path=x", "stage=sft"]
    (_, sampled), (_, unsampled) = (
        script.room_of(load_config([*settings, f"assessment.enabled={enabled}"])) for enabled in ("true", "false")
    )
    rollout = load_config(settings).cluster.rollout
    assert rollout.count * rollout.num_gpus > 0
    for resource, amount in (("CPU", rollout.num_cpus), ("GPU", rollout.num_gpus)):
        assert sampled[resource] - unsampled[resource] == pytest.approx(rollout.count * amount)


def test_combinations_when_composed_are_jobs_of_one_sweep(script, tmp_path):
    sweep = [f"runs_dir={tmp_path}", "name=s", "contrastive.learning_rate=1e-3,1e-4", "seed=1,2", "stage=contrastive"]
    folder, jobs = script.compose(sweep)
    assert folder.path == tmp_path / "s" and len(jobs) == 4
    assert {(job.config.contrastive.learning_rate, job.config.seed) for job in jobs} == {
        (rate, seed) for rate in (1e-3, 1e-4) for seed in (1, 2)
    }
    assert script.stage_of(jobs[0].config) == ("contrastive", jobs[0].config.contrastive.steps)
    with pytest.raises(UserError, match="sft.epochz"):
        script.compose([*sweep, "sft.epochz=1"])


def test_tune_commands_when_printed_compose(script, repository, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [(repository / "launch" / "README.md").read_text(), script.__doc__]
    commands = [words for text in texts for words in re.findall(r"launch/tune_asha.py ([^`\n]+)", text)]
    assert len(commands) >= 3
    for number, words in enumerate(commands):
        overrides = script.build_parser().parse_args(words.split()).overrides
        _, jobs = script.compose([*overrides, f"name=command-{number}"])
        assert len(jobs) > 1


def test_grace_when_beyond_the_last_step_is_named(script, tmp_path, capsys):
    sweep = [f"runs_dir={tmp_path}", "stage=contrastive", "contrastive.steps=4", "seed=1,2"]
    assert script.main(["--grace", "4", *sweep]) == 2
    error = capsys.readouterr().err
    assert "--grace 4" in error and len(error.strip().splitlines()) == 1


QUICK = [*STAGE_1, "sft.epochs=16"]


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_run_when_behind_at_a_rung_is_stopped_and_can_be_continued(repository, tmp_path):
    """Two learning rates, the second one far too small: it is behind at the first rung."""
    good, bad = [f"sft.learning_rate={rate}" for rate in ("0.005", "1e-07")]
    asha = ["--metric", "loss", "--mode", "min", "--window", "1", "--grace", "1"]
    settings = [f"runs_dir={tmp_path}", "name=rates", *QUICK]
    both = "sft.learning_rate=0.005,1e-07"
    command = [sys.executable, str(repository / "launch" / "tune_asha.py"), *asha, *settings, both]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "rates"
    journal = [(row["state"], row["job"]) for row in rows(folder / "jobs.jsonl")]
    assert journal == [("started", good), ("finished", good), ("started", bad), ("interrupted", bad)]
    assert "stopped by ASHA after 1 of 16 steps" in rows(folder / "jobs.jsonl")[-1]["cause"]
    assert (folder / good / "checkpoints" / "sft-final" / "policy").is_dir()
    assert not (folder / bad / "checkpoints" / "sft-final").exists()
    steps = [row["step"] for row in rows(folder / bad / "metrics.jsonl")]
    assert steps and steps[-1] < 16
    assert f"not in the table: {bad} (interrupted)" in done.stdout

    train = [sys.executable, "-m", "cudal1_ray.cli", "train", f"runs_dir={folder}", f"name='{bad}'", *QUICK, bad]
    done = subprocess.run(train, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0 and "continuing from" in done.stdout, done.stdout + done.stderr
    assert [row["step"] for row in rows(folder / bad / "metrics.jsonl")] == list(range(1, 17))
