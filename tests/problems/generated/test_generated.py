"""Generated problems: both texts come from one description, and nothing held out is among them."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.corpus.check import small_source
from benchmarks.corpus.generated import draws, small_sizes
from cudal1_ray.evaluation import Evaluator
from cudal1_ray.evaluation.rules import RulesConfig
from cudal1_ray.evaluation.screening.static_check import StaticCheck, check_static
from cudal1_ray.problems.generated import drawing, generate
from cudal1_ray.problems.problem import parse_problem

ROOT = Path(__file__).parents[3]
PAIRS = list(draws(0, 200))
# Held-out problems of KernelBench as patterns of a generated problem's name.
PRODUCT, ADD, SCALE = "(Gemm|Matmul)", "(Add|BiasAdd|AddInput)", "(Scale|Multiply|MultiplyInput|Double)"
HELD_OUT = (
    "(SumNorm|Normalize)",
    f"{PRODUCT}_Subtract_{SCALE}_ReLU",
    f"{PRODUCT}_{SCALE}_LeakyReLU",
    f"{PRODUCT}_Mish_Mish",
    f"{PRODUCT}_{SCALE}_ResidualAdd",
    f"{PRODUCT}_Sigmoid_Sum",
    f"{PRODUCT}_Swish_{SCALE}",
    f"{PRODUCT}_ReLU_Divide",
    f"{PRODUCT}_{ADD}_ReLU",
    f"{PRODUCT}_Divide_GELU",
    f"{PRODUCT}_GELU_Softmax",
    "(Conv2d|ConvTranspose1d)(_(stride|padding|output_padding|dilation|grouped))*",
    "Conv2d_InstanceNorm_Divide",
    "Conv3d_GroupNorm_Mean",
    "ConvTranspose3d_Softmax_Sigmoid",
    ".*(CrossEntropy|KLDiv|Triplet|MatrixVector|Diagonal).*",
)


def names(count: int) -> list[str]:
    return [generate(np.random.default_rng(seed), "drawn")[0].name for seed in range(count)]


def held_out(drawn: list[str]) -> list[str]:
    return [name for name in drawn if re.fullmatch("|".join(f"({pattern})" for pattern in HELD_OUT), name)]


def functions(source: str, of_class: str) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class, by name."""
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    return {node.name: node for node in classes[of_class].body if isinstance(node, ast.FunctionDef)}


def test_pair_when_drawn_with_one_seed_twice_is_the_same():
    assert list(draws(3, 5)) == list(draws(3, 5))
    assert len({problem.source for problem, _ in PAIRS}) > 0.95 * len(PAIRS)
    assert len({entry.code for _, entry in PAIRS}) > 0.9 * len(PAIRS)


def test_generated_problem_when_parsed_is_a_problem():
    for problem, _ in PAIRS:
        assert parse_problem(problem.source, problem.problem_id, name=problem.name) == problem


def test_generated_candidate_when_checked_statically_has_no_flag():
    rules = RulesConfig(findings="refuse", compilers="refuse")
    for problem, entry in PAIRS:
        assert check_static(entry.code, rules) == StaticCheck(), problem.problem_id


def test_generated_candidate_when_read_has_a_kernel_and_the_arguments_of_its_reference():
    for problem, entry in PAIRS:
        reference, candidate = functions(problem.source, "Model"), functions(entry.code, "ModelNew")
        for name in ("__init__", "forward"):
            assert ast.dump(reference[name].args) == ast.dump(candidate[name].args), problem.problem_id
        assert entry.problem_id == problem.problem_id and "@triton.jit" in entry.code


def test_generated_convolution_when_alone_is_computed_by_the_candidates_own_kernel():
    returned = re.compile(r"return self\.\w+\(x\)\n\n\n[a-z]")
    alone = [pair for pair in PAIRS if pair[0].name.startswith("Conv") and returned.search(pair[0].source)]
    kinds = {problem.name.split("_")[0] for problem, _ in alone}
    assert len(alone) > 0.05 * len(PAIRS) and kinds == {"Conv1d", "Conv3d", "ConvTranspose2d", "ConvTranspose3d"}
    for problem, entry in alone:
        assert not re.search(r"self\.\w+\(x\)|F\.conv", entry.code), problem.problem_id


def test_generated_candidate_when_described_has_numbered_sentences():
    for problem, entry in PAIRS:
        lines = entry.design.splitlines()
        assert [line.partition(". ")[0] for line in lines] == [str(n) for n in range(1, len(lines) + 1)]
        assert all(line.endswith(".") for line in (*lines, entry.analysis)), problem.problem_id
        assert not re.search(r"[{}]|None|AXES|  | ,|\.\.", entry.analysis + entry.design), problem.problem_id


@pytest.mark.parametrize("number", range(30))
def test_reference_when_run_at_small_sizes_returns_a_finite_tensor(number, namespace_of):
    torch.manual_seed(number)
    problem = PAIRS[number][0]
    names_of = namespace_of(small_source(problem.source, small_sizes(problem)))
    model = names_of["Model"](*names_of["get_init_inputs"]())
    with torch.no_grad():
        output = model(*names_of["get_inputs"]())
    assert output.dtype == (torch.int64 if problem.name.startswith("Arg") else torch.float32)
    assert output.isfinite().all()


def test_names_when_many_are_drawn_hold_no_held_out_problem(monkeypatch):
    assert held_out(names(2000)) == []
    monkeypatch.setattr(drawing, "is_held_out", lambda layer, words: False)
    assert held_out(names(2000)), "the grammar has none of them, so the test shows nothing"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) >= "2.4.0",
    reason="Triton 3.6 interprets loop bounds as arrays of one element, which NumPy 2.4 takes for no integer",
)
def test_candidates_when_interpreted_on_the_cpu_equal_their_references():
    command = [sys.executable, "-m", "benchmarks.corpus.generated", "run", "--count", "31"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_candidates_when_on_a_gpu_are_accepted_with_a_kernel_of_their_own():
    from cudal1_ray.config import load_config

    config = load_config(["evaluation=cuda_train", "evaluation.rules.own_kernel=required"]).evaluation
    with Evaluator(config) as evaluator:
        verdicts = {problem.name: evaluator.evaluate(problem, entry.code) for problem, entry in PAIRS[:12]}
    refused = {
        name: f"{verdict.reasons} {verdict.detail}" for name, verdict in verdicts.items() if not verdict.accepted
    }
    assert not refused
    assert all(verdict.own_kernel for verdict in verdicts.values())
