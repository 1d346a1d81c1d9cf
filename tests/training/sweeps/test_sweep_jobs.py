"""A sweep before anything is started: which jobs there are, what each asks of the cluster, and mistakes in one line."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from rich.console import Console

from cudal1_ray.actors.config import ClusterConfig, RoleConfig
from cudal1_ray.cli import main
from cudal1_ray.config import composing
from cudal1_ray.errors import UserError
from cudal1_ray.training.sweeps.jobs import SweepFolder, SweepJob, make_jobs
from cudal1_ray.training.sweeps.multirun import DEFAULTS, preview_sweep, run_sweep
from cudal1_ray.training.sweeps.reservation import inside, job_bundles, total
from cudal1_ray.training.sweeps.table import SweepTable


def jobs_of(folder: Path, *overrides: str) -> tuple[SweepFolder, list[SweepJob]]:
    """Return what the launcher gets of a command line, by Hydra's own parser and sweeper."""
    arguments = [f"runs_dir={folder}", *overrides]
    named = {override.partition("=")[0] for override in arguments}
    arguments += [f"{key}={value}" for key, value in DEFAULTS.items() if key not in named]
    with composing() as hydra:
        sweep = hydra.compose_config("config", arguments, run_mode=RunMode.MULTIRUN, with_log_configuration=False)
        parser = OverridesParser.create(config_loader=hydra.config_loader)
        parsed = parser.parse_overrides(list(sweep.hydra.overrides.task))
        return make_jobs(hydra.config_loader, sweep, BasicSweeper.split_arguments(parsed, None)[0])


def test_combinations_when_swept_are_runs_in_the_sweeps_folder(tmp_path):
    folder, jobs = jobs_of(tmp_path, "exemplars=uniform,bucket", "seed=range(1,4)", "contrastive.steps=4")
    assert folder.path == tmp_path / "sweep"
    assert [job.name for job in jobs] == [f"exemplars={e},seed={s}" for e in ("uniform", "bucket") for s in (1, 2, 3)]
    for job in jobs:
        assert (job.config.name, job.config.runs_dir) == (job.name, str(tmp_path / "sweep"))
        assert job.config.exemplars.strategy == job.settings["exemplars"]
        assert job.config.seed == int(job.settings["seed"]) and job.config.contrastive.steps == 4


def test_glob_when_swept_takes_every_preset_of_a_group(tmp_path):
    _, jobs = jobs_of(tmp_path, "exemplars=glob(b*)")
    assert {job.config.exemplars.strategy for job in jobs} == {"best_worst", "bucket"}


def test_job_when_its_value_is_no_folder_name_gets_one(tmp_path):
    _, jobs = jobs_of(tmp_path, "init_from=runs/a,runs_a", "name=odd")
    first, second = (job.name for job in jobs)
    assert first != second and first.startswith("init_from=runs_a-") and second == "init_from=runs_a"
    assert [job.config.init_from for job in jobs] == ["runs/a", "runs_a"]


@pytest.mark.parametrize("name", ["é", "x=y", "[a]b", "it's"])
def test_sweep_when_its_name_is_not_in_hydras_grammar_is_composed(name):
    assert f"# runs/{name}/seed=1\n" in preview_sweep([f"name={name}", "seed=1,2"])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (("seed=1,few",), "seed=few"),
        (("exemplars=bucket,unknown",), "unknown"),
        (("no.such.key=1,2",), "no.such.key"),
        (("contrastive.group_size=4,0",), "contrastive.group_size"),
        (("name=a,b",), "name"),
        (("seed=1,2", "hydra/launcher=basic"), "hydra/launcher"),
        (("seed=1,2", "hydra.launcher.max_job=2"), "max_job"),
        (("seed=1,2", "hydra.launcher.max_jobs=0"), "hydra.launcher.max_jobs"),
        (("seed=interval(1,2)",), "sweep type"),
        (("exemplars=glob(nothing*)",), "glob(nothing*)"),
    ],
)
def test_sweep_when_given_a_mistake_prints_one_line_and_starts_nothing(tmp_path, overrides, named):
    with pytest.raises(UserError) as caught:
        run_sweep([f"runs_dir={tmp_path}", *overrides])
    assert named in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "sweep" / "jobs.jsonl").exists()


@pytest.mark.parametrize("flags", [["-m", "--cfg"], ["-m", "--cfg", "job"], ["-c", "job", "-m"]])
def test_cfg_when_given_with_multirun_prints_the_configuration_of_each_run(tmp_path, capsys, flags):
    assert main(["train", *flags, f"runs_dir={tmp_path}", "exemplars=uniform,bucket", "seed=range(1,3)"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [(run["exemplars"]["strategy"], run["seed"]) for run in printed] == [
        ("uniform", 1), ("uniform", 2), ("bucket", 1), ("bucket", 2)
    ]  # fmt: skip
    assert {run["runs_dir"] for run in printed} == {str(tmp_path / "sweep")} and not list(tmp_path.iterdir())


def test_combinations_when_composed_are_those_of_hydras_sweeper(tmp_path):
    _, jobs = jobs_of(tmp_path, "exemplars=glob(b*)", "seed=choice(3,4)", "stage=sft")
    overrides = ["exemplars=glob(b*)", "seed=choice(3,4)", "stage=sft"]
    printed = list(yaml.safe_load_all(preview_sweep([f"runs_dir={tmp_path}", *overrides])))
    assert [run["name"] for run in printed] == [job.name for job in jobs]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-m", "--cfg", "hydra", "seed=1,2"], "--cfg hydra"),
        (["-m", "--cfg", "--explain", "seed=1,2"], "leave out -m"),
        (["-m", "--cfg", "seed=interval(1,2)"], "seed=interval(1,2): its values are not a list"),
        (["-m", "--cfg", "hydra/sweeper=optuna", "seed=1,2"], "hydra/sweeper"),
        (["-m", "--cfg", "seed=1,few"], "seed=few"),
    ],
)
def test_sweep_when_it_cannot_be_printed_is_one_line(capsys, arguments, named):
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("flag", ["--resolve", "--config-name=x", "--info", "--run"])
def test_flag_when_of_hydra_and_not_taken_is_answered_with_what_to_use(capsys, flag):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "-m", "--cfg", flag, "seed=1,2"])
    assert f"unrecognized arguments: {flag} (" in capsys.readouterr().err


def test_folder_when_of_one_sweep_refuses_another(tmp_path):
    jobs_of(tmp_path, "exemplars=uniform,bucket", "seed=1,2")
    jobs_of(tmp_path, "exemplars=uniform,island", "seed=2,3,4", "cluster.num_cpus=4")  # more values, another machine
    with pytest.raises(UserError, match="varied was exemplars seed, is seed"):
        jobs_of(tmp_path, "seed=1,2")
    with pytest.raises(UserError, match="shared was nothing, is contrastive.steps=4"):
        jobs_of(tmp_path, "exemplars=uniform,bucket", "seed=1,2", "contrastive.steps=4")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "config.yaml").write_text("")
    with pytest.raises(UserError, match="holds a run, not a sweep"):
        jobs_of(tmp_path, "seed=1,2", "name=demo")


def test_jobs_when_finished_are_known_and_another_stage_is_run(tmp_path):
    folder, (first, second) = jobs_of(tmp_path, "seed=1,2", "stage=sft")
    folder.note(first, "started")
    folder.note(first, "finished")
    folder.note(second, "started")
    folder.note(second, "failed", "a reason")
    assert folder.is_finished(first) and not folder.is_finished(second)
    _, again = jobs_of(tmp_path, "seed=1,2", "stage=sft", "checkpoint.keep=5")
    assert folder.is_finished(again[0])
    _, later = jobs_of(tmp_path, "seed=1,2", "stage=self_supervised")
    assert not folder.is_finished(later[0])
    rows = [json.loads(line) for line in (folder.path / "jobs.jsonl").read_text().splitlines()]
    assert [row["state"] for row in rows] == ["started", "finished", "started", "failed"]
    assert rows[-1]["cause"] == "a reason"


def test_job_when_placed_asks_for_its_driver_and_every_actor():
    cluster = ClusterConfig(
        rollout=RoleConfig(count=2, num_cpus=4, num_gpus=1),
        evaluator=RoleConfig(count=3, num_cpus=1, num_gpus=1, accelerator_type="A100"),
        compiler=RoleConfig(count=4, num_cpus=0.5),
        exemplars=RoleConfig(count=1, num_cpus=0.0),
        learner=RoleConfig(count=1, num_cpus=2, num_gpus=1),
    )
    bundles = job_bundles(cluster, driver_cpus=0.5)
    assert len(bundles) == 1 + 2 + 3 + 4 + 1  # an actor that asks for nothing needs no bundle
    assert bundles[0] == {"CPU": 0.5}
    assert bundles.count({"CPU": 1, "GPU": 1, "accelerator_type:A100": 0.001}) == 3
    assert total(bundles) == {"CPU": 15.5, "GPU": 6, "accelerator_type:A100": 0.003}
    spread = dataclasses.replace(cluster, evaluator=RoleConfig(count=3, num_gpus=1, scheduling="SPREAD"))
    assert inside(spread).evaluator == RoleConfig(count=3, num_gpus=1) and inside(spread).rollout == cluster.rollout
    assert total(job_bundles(dataclasses.replace(cluster, rollout=RoleConfig(count=1)), 0.0))["GPU"] == 4


def test_sweep_table_when_printed_shows_where_each_run_is(tmp_path):
    folder, jobs = jobs_of(tmp_path, "seed=1,2,3,4")
    done, running, failed, _ = jobs
    (folder.path / running.name).mkdir()
    row = {"stage": "self_supervised", "step": 2, "success_rate": 0.25, "geomean_speedup": 1.5}
    (folder.path / running.name / "metrics.jsonl").write_text(json.dumps(row) + '\n{"stage": "contrastive", "st')
    table = SweepTable(folder.path, jobs, {done.name})
    table.started(running)
    table.started(failed)
    table.ended(failed, "failed", "a reason")
    columns = [[str(cell) for cell in column._cells] for column in table.render().columns]
    assert columns[1] == ["finished", "running", "failed", "waiting"]
    assert (columns[2][1], columns[3][1], columns[4][1], columns[5][1]) == ("self supervised", "2", "25%", "1.50x")
    assert columns[-1] == ["before", "", "a reason", ""]


def test_sweep_table_when_names_have_brackets_prints_them_as_they_are(tmp_path):
    _, jobs = jobs_of(tmp_path, "problems.ids=[x],[y]")
    log = io.StringIO()
    table = SweepTable(Path("[a]b"), jobs, set(), Console(file=log, width=400))
    table.ended(jobs[0], "failed", "problems.ids: [x] is unknown")
    table.console.print(table.render())
    assert all(text in log.getvalue() for text in ("[a]b", jobs[1].name, "problems.ids: [x] is unknown"))
