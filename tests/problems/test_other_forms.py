"""KernelBook, robust-kbench, SOL-ExecBench and flashinfer-bench, read from samples written for these tests."""

from __future__ import annotations

import json

import pyarrow
import pyarrow.parquet
import pytest

from cudal1_ray.commands.evaluate import read_problem
from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.problems.other_forms import axis_sizes, read_definition

MODULE = """
import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, width, bias=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = bias

    def forward(self, x):
        return x * self.weight + self.bias


def get_inputs():
    return [torch.rand([4, 8])]


def get_init_inputs():
    return [[], {"width": 8}]
"""
TASK = """
import torch
import torch.nn as nn


def forward_fn(x, scale):
    return torch.tanh(x) * scale


class Model(nn.Module):
    def __init__(self, scale: float{default}):
        super().__init__()
        self.scale = scale

    def forward(self, x, fn=forward_fn):
        return fn(x, self.scale)


def get_inputs(batch_size: int = 4):
    return [torch.randn(batch_size, 3)]
"""
DEFINITION = {
    "name": "scaled rows",
    "axes": {
        "rows": {"type": "var"},
        "width": {"type": "const", "value": 6},
        "half": {"type": "expr", "expression": "width // 2"},
    },
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float16"},
        "mask": {"shape": ["half"], "dtype": "bool"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "width"], "dtype": "float16"}},
    "reference": "import torch\n\ndef run(x, mask, eps):\n    return x[:, : mask.numel()] * mask + eps",
}
WORKLOAD = {
    "axes": {"rows": 5},
    "inputs": {"x": {"type": "random"}, "mask": {"type": "random"}, "eps": {"type": "scalar", "value": 0.5}},
}


def call(source: str):
    """Return the output of a problem's model on its own inputs."""
    module: dict = {}
    exec(source, module)
    arguments = module["get_init_inputs"]()
    positional, named = (arguments[0], arguments[1]) if len(arguments) == 2 else (arguments, {})
    return module["Model"](*positional, **named)(*module["get_inputs"]())


def write(folder, definition, workloads):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definition.json").write_text(json.dumps(definition))
    (folder / "workload.jsonl").write_text("".join(json.dumps(workload) + "\n" for workload in workloads))
    return folder / "definition.json"


def test_kernelbook_table_when_read_has_its_class_as_the_model(tmp_path):
    rows = {"entry_point": ["Scaled"], "python_code": [MODULE], "triton_code": ["x"], "uuid": [7]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "book.parquet")
    (problem,) = load_problems(ProblemsConfig(source="parquet", path=str(tmp_path / "book.parquet")))
    assert problem.problem_id == "kernelbook-7-Scaled" and call(problem.source).shape == (4, 8)


def test_robust_kbench_task_when_its_model_has_defaults_is_read(tmp_path):
    (tmp_path / "tanh").mkdir()
    file = tmp_path / "tanh" / "func_forward.py"
    file.write_text(TASK.replace("{default}", " = 2.0"))
    (problem,) = load_problems(ProblemsConfig(source="folder", path=str(tmp_path)))
    assert problem.problem_id == "tanh" and call(problem.source).shape == (4, 3)
    assert read_problem(str(file)).source == problem.source


def test_robust_kbench_task_when_it_has_no_defaults_names_what_to_add(tmp_path):
    (tmp_path / "func_forward.py").write_text(TASK.replace("{default}", ""))
    with pytest.raises(UserError, match=r"Model takes scale without defaults.*add get_init_inputs\(\)"):
        load_problems(ProblemsConfig(source="folder", path=str(tmp_path)))


def test_definition_when_it_has_workloads_is_a_problem_for_each(tmp_path):
    file = write(tmp_path / "L1" / "scaled", DEFINITION, [WORKLOAD, WORKLOAD | {"axes": {"rows": 9}}])
    first, second = load_problems(ProblemsConfig(source="folder", path=str(tmp_path)))
    assert (first.problem_id, second.problem_id) == ("scaled_rows-w0", "scaled_rows-w1")
    assert "dtype=torch.float16" in first.source
    sliced = first.source.replace("dtype=torch.float16", "dtype=torch.float32")
    assert call(sliced).shape == (5, 3) and read_problem(str(file)).problem_id == "scaled_rows-w0"


def test_flashinfer_bench_when_definitions_and_workloads_are_apart_is_read(tmp_path):
    for folder in ("definitions/norm", "workloads/norm"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "definitions/norm/rows.json").write_text(json.dumps(DEFINITION | {"name": "rows"}))
    line = {"definition": "rows", "workload": WORKLOAD, "solution": None}
    (tmp_path / "workloads/norm/rows.jsonl").write_text(json.dumps(line) + "\n")
    (problem,) = load_problems(ProblemsConfig(source="folder", path=str(tmp_path)))
    assert problem.problem_id == "rows-w0" and "0.5," in problem.source


def test_custom_inputs_when_defined_come_from_the_definitions_function(tmp_path):
    reference = (
        "import torch\n\ndef make(sizes, device):\n    return {'x': torch.ones(sizes['rows'])}\n\n"
        "def run(x):\n    return x * 3"
    )
    definition = {
        "name": "own",
        "axes": {"rows": {"type": "var"}},
        "inputs": {"x": {"shape": ["rows"], "dtype": "float32"}},
        "reference": reference,
        "custom_inputs_entrypoint": "make",
    }
    file = write(tmp_path, definition, [{"axes": {"rows": 4}, "inputs": {"x": {"type": "custom"}}}])
    assert call(read_definition(file)[0].source).tolist() == [3.0] * 4


@pytest.mark.parametrize(
    ("definition", "workload", "says"),
    [
        ({"inputs": {"i": {"shape": ["rows"], "dtype": "int32"}}}, {"inputs": {}}, "'i' is random int32"),
        ({}, {"inputs": {"x": {"type": "safetensors", "path": "a", "tensor_key": "b"}}}, "'x' is safetensors"),
        ({}, {"axes": {}}, "axis 'rows' has no size"),
        ({}, {"inputs": {"x": {"type": "random"}, "mask": {"type": "random"}}}, "'eps' is a scalar without a value"),
        ({"axes": {"half": {"type": "expr", "expression": "open('x')"}}}, {}, "no arithmetic"),
        ({"reference": "def run(x): ("}, {}, "not valid Python"),
        ({"reference": "x = 1"}, {}, "'reference' defines no function 'run'"),
        ({"reference": None}, {}, "'reference' is None"),
        ({"custom_inputs_entrypoint": "make; import os"}, {}, "no function 'make; import os'"),
        ({"name": ["a"]}, {}, "'name' is "),
        ({"inputs": {"x": None}}, {}, "'inputs' is "),
        ({"inputs": {"x y": {"shape": [], "dtype": "float32"}}}, {}, "input 'x y' cannot be the name"),
        ({"inputs": {"self": {"shape": [], "dtype": "float32"}}}, {}, "input 'self' cannot be the name"),
        ({"inputs": {"x": {"shape": [-3], "dtype": "float32"}}}, {}, "input 'x' has the axis -3"),
        ({"inputs": {"x": {"shape": [True], "dtype": "float32"}}}, {}, "input 'x' has the axis True"),
        (
            {"axes": {"half": {"type": "expr", "expression": "width - 10"}}},
            {},
            "axis 'half': 'width - 10' is -4; a size",
        ),
        ({}, {"axes": {"rows": 2**64}}, "axis 'rows' has no size"),
        ({"inputs": {"x": {"shape": 4, "dtype": "float32"}}}, {}, "input 'x' has the shape 4"),
        ({"inputs": {"x": {"shape": [["rows"]], "dtype": "float32"}}}, {}, "which is not defined"),
        ({"axes": {"width": {"type": "const", "value": -4}}}, {}, "axis 'width' has no size of 0 to "),
        ({"axes": {"width": 4}}, {}, "'axes' is "),
        ({"axes": {"half": {"type": "expr", "expression": "2**2**2**2**9"}}}, {}, "no arithmetic"),
        ({"axes": {"half": {"type": "expr", "expression": "-" * 9999 + "1"}}}, {}, "no arithmetic"),
        ({}, {"axes": [1]}, "workload 0: 'axes' is "),
        ({}, {"inputs": {"eps": "random"}}, "workload 0: 'inputs' is "),
        ({}, {"inputs": {"eps": {"type": "scalar"}}}, "input 'eps' has the value None"),
        ({}, {"workload": "w"}, "line 1: 'workload' is 'w'"),
    ],
)
def test_definition_when_it_leaves_something_open_is_refused_in_one_line(tmp_path, definition, workload, says):
    axes = {**DEFINITION["axes"], **definition.get("axes", {})}
    file = write(tmp_path, DEFINITION | definition | {"axes": axes}, [WORKLOAD | workload])
    with pytest.raises(UserError, match=says) as refused:
        read_definition(file)
    assert "\n" not in str(refused.value)
    file.write_bytes(b"\xff{")
    with pytest.raises(UserError, match="definition.json: "):
        read_definition(file)


def test_definition_when_it_has_no_workloads_names_the_missing_file(tmp_path):
    (tmp_path / "definition.json").write_text(json.dumps(DEFINITION))
    with pytest.raises(UserError, match="put workload.jsonl beside it"):
        load_problems(ProblemsConfig(source="folder", path=str(tmp_path)))


@pytest.mark.parametrize("name", ["n" * 200, "é", "a**b[0]", ""])
def test_definition_when_its_name_is_odd_has_an_id_for_each_workload(tmp_path, name):
    for folder in ("definitions", "workloads"):
        (tmp_path / folder).mkdir()
    (tmp_path / "definitions" / "odd.json").write_text(json.dumps(DEFINITION | {"name": name}))
    lines = "".join(json.dumps({"workload": WORKLOAD}) + "\n" for _ in range(2))
    (tmp_path / "workloads" / f"{name}.jsonl").write_text(lines)
    first, second = (
        problem.problem_id for problem in load_problems(ProblemsConfig(source="folder", path=str(tmp_path)))
    )
    assert first == second[:-1] + "0" and len(first) > len("-w0")
    other = read_definition(write(tmp_path / "other", DEFINITION | {"name": "ü"}, [WORKLOAD]))
    assert other[0].problem_id != first


def test_definition_when_its_reference_begins_with_a_future_import_runs(tmp_path):
    reference = f'"""Scale."""\nfrom __future__ import annotations\n{DEFINITION["reference"]}'
    file = write(tmp_path, DEFINITION | {"reference": reference}, [WORKLOAD])
    assert call(read_definition(file)[0].source).shape == (5, 3)


def test_axis_expressions_when_evaluated_are_arithmetic():
    axes = {"a": {"type": "const", "value": 7}, "b": {"type": "expr", "expression": "(a + 1) // 2 * 3"}}
    assert axis_sizes(axes, {}, "here") == {"a": 7, "b": 12}
