"""The committed split of KernelBench, and the draw that makes it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.problems.kernelbench import load_parquet
from cudal1_ray.problems.splits import FILE, kernelbench_split
from scripts.kernelbench_split import as_text, operators, split_of
from tests.problems.published_table import TABLE

VALID = "class Model:\n    pass\ndef get_inputs():\n    return []\ndef get_init_inputs():\n    return []\n"
MODEL = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.{layer}(3, 4, 3)
    def forward(self, x):
        return {forward}
"""


@pytest.fixture
def level_1(tmp_path) -> ProblemsConfig:
    """Return a folder with the numbers of KernelBench's level 1, and one file without a number."""
    (tmp_path / "level1").mkdir()
    for number in range(1, 101):
        (tmp_path / "level1" / f"{number}_p.py").write_text(VALID)
    (tmp_path / "own.py").write_text(VALID)
    return ProblemsConfig(source="folder", path=str(tmp_path))


def test_committed_split_when_read_covers_each_problem_once():
    levels = json.loads(FILE.read_text())["levels"]
    sizes = {level: len(sides["train"]) + len(sides["held_out"]) for level, sides in levels.items()}
    assert sizes == {"1": 100, "2": 100, "3": 50} and len(kernelbench_split()) == 250
    assert list(kernelbench_split().values()).count("held_out") >= 60


def test_committed_split_when_read_puts_each_cluster_on_one_side():
    for sides in json.loads(FILE.read_text())["levels"].values():
        clusters = [set(cluster) for members in sides["clusters"].values() for cluster in members]
        assert set.union(*clusters) == set(sides["train"]) | set(sides["held_out"])
        for cluster in clusters:
            assert cluster <= set(sides["train"]) or cluster <= set(sides["held_out"])


@pytest.mark.skipif(not TABLE.exists(), reason="no KernelBench Parquet")
def test_split_when_the_table_is_the_published_one_is_the_committed_file():
    problems = load_parquet(TABLE, (1, 2, 3))
    assert as_text(split_of(problems)) == FILE.read_text()
    assert split_of(problems, seed=1) != split_of(problems)


def test_operators_when_problems_are_near_twins_are_equal():
    relu = operators(MODEL.format(layer="Conv2d", forward="torch.relu(self.layer(x)) * 2"))
    mish = operators(MODEL.format(layer="Conv3d", forward="nn.functional.mish(self.layer(x)).view(-1)"))
    pooled = operators(MODEL.format(layer="Conv2d", forward="torch.relu(self.layer(x)).mean()"))
    transposed = operators(MODEL.format(layer="ConvTranspose2d", forward="torch.relu(self.layer(x))"))
    assert relu == mish == {"conv", "pointwise"}
    assert pooled == relu | {"mean"} and transposed == {"convtranspose", "pointwise"}


def test_split_setting_when_given_keeps_one_side_of_the_committed_split(level_1):
    train = {p.problem_id for p in load_problems(replace(level_1, split="train"))}
    held_out = {p.problem_id for p in load_problems(replace(level_1, split="held_out"))}
    assert train | held_out == {p.problem_id for p in load_problems(level_1)} and not train & held_out
    committed = {key for key, side in kernelbench_split().items() if "-l1-" in key and side == "held_out"}
    assert held_out - {"own"} == committed


def test_held_out_fraction_when_given_overrides_the_committed_split(level_1):
    assert not [p for p in load_problems(replace(level_1, held_out_fraction=0.0)) if p.held_out]


def test_split_setting_when_unknown_is_an_error_naming_the_field():
    with pytest.raises(UserError, match="problems.split=test: must be one of all, train, held_out"):
        load_problems(ProblemsConfig(split="test"))
