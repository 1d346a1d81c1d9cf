"""Problems at other sizes: which constants change, to what, and that nothing else does."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.problems.kernelbench import load_parquet
from cudal1_ray.problems.sizes import KERNELBENCH, digest
from cudal1_ray.problems.sizes.footprint import footprint
from cudal1_ray.problems.sizes.scaling import HIGHEST, LOWEST, MIB, same_problem, scale
from cudal1_ray.source.size_constants import rewrite
from tests.problems.published_table import TABLE
from tests.problems.sized_sources import SCALE

CONVOLUTION = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size)

    def forward(self, x):
        batch, channels, height, width = x.shape
        return torch.relu(self.conv(x)).mean(dim=(2, 3), keepdim=True)

batch_size = 128 * 4  # images
channels = 64
height = width = 256
kernel_size = 3

def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]

def get_init_inputs():
    return [channels, kernel_size]
"""


def test_scale_when_a_call_is_too_large_shrinks_the_batch_before_the_image():
    scaled = scale(CONVOLUTION)
    assert scaled.values == {"batch_size": 16} and scaled.bytes == 256 * MIB and scaled.published_bytes == 8192 * MIB


def test_scale_when_the_batch_is_spent_shrinks_equal_extents_together():
    source = CONVOLUTION.replace("128 * 4", "2").replace("= 256", "= 2048")
    assert scale(source).values == {"height": 512}


def test_scale_when_extents_must_agree_shrinks_both():
    source = SCALE.format(constants="batch_size = 32768\nn = 32768", shape="batch_size, n", other="batch_size")
    assert scale(source).values == {"batch_size": 4096, "n": 4096}


def test_scale_when_a_call_leaves_the_device_idle_grows_it():
    source = SCALE.format(constants="batch_size = 64\ndim = 1024", shape="batch_size, dim", other="dim")
    scaled = scale(source)
    assert scaled.values == {"batch_size": 16384} and LOWEST <= scaled.bytes <= HIGHEST


def test_scale_when_small_inputs_give_enough_work_leaves_them():
    source = CONVOLUTION.replace("128 * 4", "16").replace("= 256", "= 64")
    scaled = scale(source)
    assert not scaled.values and scaled.fits and scaled.reason == "small inputs, but enough work"


def test_scale_when_the_code_does_not_run_on_meta_says_so():
    scaled = scale(CONVOLUTION.replace("torch.relu(", "torch.relu(x.max().item() * "))
    assert not scaled.fits and scaled.reason.startswith("does not run on the meta device: RuntimeError")


def test_same_problem_when_operators_parameters_or_broadcasts_differ_is_false():
    whole = footprint(CONVOLUTION)
    assert same_problem(whole, footprint(CONVOLUTION.replace("128 * 4", "2")))
    assert not same_problem(whole, footprint(CONVOLUTION.replace("128 * 4", "1")))
    assert not same_problem(whole, footprint(CONVOLUTION.replace("channels = 64", "channels = 32")))
    assert not same_problem(whole, footprint(CONVOLUTION.replace("torch.relu", "torch.tanh")))


def folder(tmp_path: Path, **changes) -> ProblemsConfig:
    (tmp_path / "1_conv.py").write_text(CONVOLUTION)
    return replace(ProblemsConfig(source="folder", path=str(tmp_path)), **changes)


def test_scaled_problems_when_of_a_folder_are_rewritten(tmp_path):
    (problem,) = load_problems(folder(tmp_path, sizes="scaled"))
    assert problem.source == rewrite(CONVOLUTION, {"batch_size": 16}) and problem.problem_id == "kernelbench-p001"


def test_paper_sizes_when_given_replace_the_source_of_each_problem(tmp_path):
    def table(number: int) -> str:
        row = {"code": CONVOLUTION.replace("128 * 4", "4"), "level": 1, "name": "1_conv", "problem_id": number}
        path = tmp_path / f"{number}.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
        return str(path)

    (tmp_path / "level1").mkdir()
    config = folder(tmp_path / "level1", sizes="paper")
    (problem,) = load_problems(replace(config, paper_path=table(1)))
    assert "batch_size = 4 " in problem.source
    with pytest.raises(UserError, match="2.parquet has no problem kernelbench-l1-p001"):
        load_problems(replace(config, paper_path=table(2)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"sizes": "large"}, "problems.sizes=large"), ({"sizes": "paper"}, "problems.paper_path: needed")],
)
def test_sizes_when_wrong_are_an_error_naming_the_field(tmp_path, changes, says):
    with pytest.raises(UserError, match=says):
        load_problems(folder(tmp_path, **changes))


@pytest.mark.skipif(not TABLE.exists(), reason="no KernelBench Parquet")
def test_committed_sizes_when_read_are_for_the_published_problems():
    entries = json.loads(KERNELBENCH.read_text())["problems"]
    published = {problem.problem_id: problem for problem in load_parquet(TABLE, (1, 2, 3))}
    assert {key: digest(problem.source) for key, problem in published.items()} == {
        key: entry["sha256"] for key, entry in entries.items()
    }
    for key in ("kernelbench-l1-p005", "kernelbench-l1-p100", "kernelbench-l2-p002", "kernelbench-l3-p017"):
        assert scale(published[key].source).values == entries[key]["values"] != {}


@pytest.mark.skipif(not TABLE.exists(), reason="no KernelBench Parquet")
def test_kernelbench_when_scaled_differs_in_integers_only():
    config = ProblemsConfig(source="parquet", path=str(TABLE))
    pairs = list(zip(load_problems(config), load_problems(replace(config, sizes="scaled")), strict=True))
    changed = [(before, after) for before, after in pairs if before.source != after.source]
    assert len(changed) == 135
    for before, after in changed:
        assert _without_integers(before.source) == _without_integers(after.source)


def _without_integers(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.BinOp) for n in ast.walk(node.value)):
            if all(isinstance(n, ast.BinOp | ast.Constant | ast.operator) for n in ast.walk(node.value)):
                node.value = ast.Constant(0)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            node.value = 0
    return ast.dump(tree)
