"""A mistake in a benchmark's command is one line that names what is to be given."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.policy_shapes import write_configured_policy
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def test_command_when_a_setting_does_not_exist_ends_with_one_line_and_code_2():
    command = [sys.executable, "-m", "benchmarks.training.adapter_sync", "no_such_setting=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert re.fullmatch(r"training\.adapter_sync: [^\n]*no_such_setting[^\n]*\n", done.stderr)


def test_configured_policy_when_the_recipe_has_no_shape_names_the_option(tmp_path):
    config = load_config(["recipe=kernelbench_one_gpu", "policy.path=folder"])
    with pytest.raises(UserError, match="--model: .*policy=tiny"):
        write_configured_policy(config, tmp_path, "--model")
    assert not list(tmp_path.iterdir())
