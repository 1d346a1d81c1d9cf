"""A mistake in a benchmark's command is one line that names what is to be given."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys

import pytest

from benchmarks.common.policy_shapes import write_configured_policy
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError


@pytest.mark.parametrize(
    ("module", "words", "named"),
    [
        ("training.adapter_sync", ["no_such_setting=1"], "no_such_setting"),
        ("corpus.emit", ["gone.parquet", "folder"], "gone.parquet"),
        ("corpus.collect", ["gone.jsonl"], "gone.jsonl"),
        ("corpus.collect", ["--add", "gone.jsonl"], "gone.jsonl"),
        ("corpus.generated", ["run"], "triton"),
        ("corpus.check", ["compile", "gone.parquet"], "triton"),
    ],
)
def test_command_when_its_user_is_mistaken_ends_with_one_line_and_code_2(module, words, named, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "triton" else find(name, *rest)
    )
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{module}", run_name="__main__", alter_sys=True)
    assert ended.value.code == 2
    assert re.fullmatch(rf"{re.escape(module)}: [^\n]*{named}[^\n]*\n", capsys.readouterr().err)


def test_configured_policy_when_the_recipe_has_no_shape_names_the_option(tmp_path):
    config = load_config(["recipe=kernelbench_one_gpu", "policy.path=folder"])
    with pytest.raises(UserError, match="--model: .*policy=tiny"):
        write_configured_policy(config, tmp_path, "--model")
    assert not list(tmp_path.iterdir())
