"""A wheel built from the tree works outside the checkout, its presets, problems and templates included."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest


def test_wheel_when_installed_outside_the_checkout_works(repository, tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    subprocess.run([*build, str(repository)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        assert "cudal1_ray/serving/page/static/index.html" in archive.namelist()
        assert not any("page/source" in name or "node_modules" in name for name in archive.namelist())
    script = (
        "import cudal1_ray, pathlib\n"
        "from cudal1_ray.config import config_dir, load_config\n"
        "from cudal1_ray.problems import load_problems, load_corpus\n"
        "from cudal1_ray.prompting import PromptBuilder\n"
        "assert str(cudal1_ray.__file__).startswith(SITE), cudal1_ray.__file__\n"
        "assert str(config_dir()).startswith(SITE)\n"
        "config = load_config(['seed=5'])\n"
        "problems = load_problems(config.problems)\n"
        "assert len(problems) >= 24 and len(load_corpus()) >= 100\n"
        "PromptBuilder(config.prompting, len).one_shot(problems[0])\n"
        "print('works', config.seed)\n"
    ).replace("SITE", repr(str(site)))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "works 5", done.stderr


def set_up(repository, tmp_path, *settings):
    command = ["make", "setup", f"VENV={tmp_path / 'venv'}", *settings]
    return subprocess.run(command, cwd=repository, env={**os.environ, "GPU": ""}, capture_output=True, text=True)


def test_set_up_when_an_interpreter_does_not_run_takes_the_next(repository, tmp_path):
    shim, interpreter = tmp_path / "python3.11", tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'no version is selected' >&2\nexit 127\n")
    interpreter.write_text(f'#!/bin/sh\n[ "$1" != -m ] || {{ echo "$0 $*" >>{tmp_path}/asked; exit 3; }}\n')
    for file in (shim, interpreter):
        file.chmod(0o755)
    assert set_up(repository, tmp_path, f"PYTHON={shim} {interpreter}").returncode == 2
    assert (tmp_path / "asked").read_text() == f"{interpreter} -m venv {tmp_path / 'venv'}\n"


@pytest.mark.parametrize(("settings", "version"), [((), "3.11 or 3.12"), (("GPU=1",), "3.12")])
def test_set_up_when_no_interpreter_suits_says_what_to_give(repository, tmp_path, settings, version):
    done = set_up(repository, tmp_path, *settings, f"PYTHON={tmp_path / 'none-here'}")
    command = " ".join(["make setup", *settings, "PYTHON=/path/to/python"])
    assert done.stderr.splitlines()[0] == f"setup: Python {version} is needed; say where: {command}"
