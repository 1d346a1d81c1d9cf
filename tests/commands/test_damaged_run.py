"""Commands for a run whose config.yaml is damaged: each names the file and what of it is wrong."""

from __future__ import annotations

import pytest

from cudal1_ray.cli import main
from tests.policy_folder import make_policy_folder

DAMAGE = {
    b"": "holds no settings",
    b"- policy": "holds no settings",
    b"policy": "holds no settings",
    b"policy: [": "cannot be read as YAML",
    b"[" * 100_000: "cannot be read as YAML",
    b"\xff": "cannot be read as YAML",
    b"1: 2": "its top level: must hold settings",
    b"policy: [kind]": "policy: must hold settings",
    b"policy:": "policy: must hold settings",
    b"evaluation: {timing: 3}": "evaluation.timing: must hold settings",
    b"problems: {}\nprompting: {}": "policy: missing",
}


@pytest.fixture
def run(tmp_path):
    """Return a run's folder with a policy, as far as the commands look into it."""
    make_policy_folder(tmp_path / "run" / "checkpoints" / "sft-final" / "policy")
    return tmp_path / "run"


@pytest.mark.parametrize("content", DAMAGE)
@pytest.mark.parametrize("command", ["pack {}", "assess {}", "serve --cfg policy={}"])
def test_command_when_the_configuration_of_its_run_is_damaged_names_file_and_field(run, capsys, command, content):
    (run / "config.yaml").write_bytes(content)
    assert main(command.format(run).split()) == 2
    error = capsys.readouterr().err
    assert f"{run}/config.yaml: {DAMAGE[content]}" in error and error.count("\n") == 1
