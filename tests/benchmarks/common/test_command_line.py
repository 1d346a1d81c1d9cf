"""A mistake in a benchmark's command is one line that names what is to be given."""

from __future__ import annotations

import re
import runpy
import sys

import pytest

from benchmarks.common.policy_shapes import write_configured_policy
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError


def test_command_when_a_setting_does_not_exist_ends_with_one_line_and_code_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["adapter_sync", "no_such_setting=1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("benchmarks.training.adapter_sync", run_name="__main__", alter_sys=True)
    assert ended.value.code == 2
    assert re.fullmatch(r"training\.adapter_sync: [^\n]*no_such_setting[^\n]*\n", capsys.readouterr().err)


def test_configured_policy_when_the_recipe_has_no_shape_names_the_option(tmp_path):
    config = load_config(["recipe=kernelbench_one_gpu", "policy.path=folder"])
    with pytest.raises(UserError, match="--model: .*policy=tiny"):
        write_configured_policy(config, tmp_path, "--model")
    assert not list(tmp_path.iterdir())
