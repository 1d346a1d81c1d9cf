"""Problems of other collections, rewritten as KernelBench files; what cannot be rewritten is refused with what to do.

KernelBook: a table of modules under names of their own. robust-kbench: a folder for each task with `func_forward.py`.
SOL-ExecBench and flashinfer-bench: `definition.json` with a function `run`, symbolic shapes and a file of workloads.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

from cudal1_ray.errors import UserError
from cudal1_ray.problems.problem import Problem, parse_problem, problem_id_of
from cudal1_ray.source.expressions import whole_number
from cudal1_ray.source.nodes import class_named, function_named, required_arguments
from cudal1_ray.source.parsing import parse_named
from cudal1_ray.source.text import read_source

KERNELBOOK_COLUMNS = ("python_code", "entry_point")
TASK_FILE = "func_forward.py"
DEFINITION = "definition.json"

FLOATS = {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
# Largest size of an axis: what PyTorch holds.
_LARGEST_SIZE = 2**63 - 1
# Names that a problem made of a definition uses itself where its inputs are arguments.
_OWN_NAMES = {"self", "run"}
# flashinfer-bench's name for it.
SYNONYMS = {"float8_e4m3": "float8_e4m3fn"}


def kernelbook_source(code: str, entry_point: str) -> str:
    """Return KernelBook's module as a KernelBench file: its class under the name `Model` too."""
    if entry_point == "Model":
        return code
    return f"{code.rstrip()}\n\n\nclass Model({entry_point}):\n    pass\n"


def task_source(code: str, origin: str) -> str:
    """Return a file of robust-kbench with the `get_init_inputs()` that it leaves to a configuration file.

    Raises:
        UserError: when its `Model` cannot be constructed without arguments.
    """
    tree = parse_named(code, origin)
    if function_named(tree, "get_init_inputs") is not None:
        return code
    model = class_named(tree, "Model")
    constructor = function_named(model, "__init__") if model else None
    missing = required_arguments(constructor)[1:] if constructor else []
    if missing:
        raise UserError(
            f"{origin}: Model takes {', '.join(missing)} without defaults, which robust-kbench keeps in the "
            "task's configuration; add get_init_inputs() to the file, returning {name: value}"
        )
    return f"{code.rstrip()}\n\n\ndef get_init_inputs():\n    return []\n"


def task_files(root: Path) -> list[Path]:
    """Return the task files of robust-kbench in a folder of tasks, or of one task."""
    return sorted([*root.glob(TASK_FILE), *root.glob(f"*/{TASK_FILE}")])


def definition_files(root: Path) -> list[Path]:
    """Return the definitions of SOL-ExecBench (`definition.json`, in depth) and flashinfer-bench (`definitions/`)."""
    return sorted([*root.rglob(DEFINITION), *root.glob("definitions/**/*.json")])


def read_task(file: Path, code: str) -> Problem:
    """Return the problem of a robust-kbench task, named by its folder."""
    name = file.parent.name
    return parse_problem(task_source(code, str(file)), problem_id_of(name), origin=str(file), name=name)


def read_definition(file: Path) -> list[Problem]:
    """Return one problem for each workload of a definition: `<name>-w0`, `<name>-w1` and so on.

    Workloads are `workload.jsonl` beside it, or flashinfer-bench's `workloads/**/<name>.jsonl`.

    Raises:
        UserError: naming the file, what in it cannot be made into a problem, and what to do.
    """
    definition = _object(file, read_source(file))
    missing = [key for key in ("name", "axes", "inputs", "reference") if key not in definition]
    if missing:
        raise UserError(f"{file}: no {missing[0]!r}; a definition has name, axes, inputs and reference")
    for key in ("name", "reference"):
        if not isinstance(definition[key], str):
            raise UserError(f"{file}: {key!r} is {definition[key]!r:.60}; it must be a text")
    for key in ("axes", "inputs"):
        _require_objects(definition[key], key, str(file))
    for name in definition["inputs"]:
        if not name.isidentifier() or keyword.iskeyword(name) or name in _OWN_NAMES:
            raise UserError(f"{file}: input {name!r} cannot be the name of an argument of forward; rename it")
    reference = parse_named(definition["reference"], f"{file}: 'reference'")
    for function in ("run", definition.get("custom_inputs_entrypoint") or "run"):
        if not isinstance(function, str) or function_named(reference, function) is None:
            raise UserError(f"{file}: 'reference' defines no function {function!r:.60}")
    workloads = list(_workloads(file, definition["name"]))
    if not workloads:
        raise UserError(f"{file}: no workload; put workload.jsonl beside it, which binds the axes of type var")
    return [_problem(file, definition, workload, number) for number, workload in enumerate(workloads)]


def _problem(file: Path, definition: dict[str, Any], workload: dict[str, Any], number: int) -> Problem:
    name = f"{_identity(definition['name'])}-w{number}"
    origin = f"{file}, workload {number}"
    inputs, values, bound = definition["inputs"], workload.get("inputs") or {}, workload.get("axes") or {}
    if not isinstance(bound, dict):
        raise UserError(f"{origin}: 'axes' is {bound!r:.60}; it must be an object with the size of each axis")
    _require_objects(values, "inputs", origin)
    sizes = axis_sizes(definition["axes"], bound, origin)
    entry = definition.get("custom_inputs_entrypoint")
    if entry and any(values.get(key, {}).get("type") == "custom" for key in inputs):
        scalars = {key: _scalar(key, item, origin) for key, item in values.items() if item.get("type") == "scalar"}
        drawn = [f"    made = {entry}({sizes | scalars!r}, torch.device('cpu'))"]
        drawn.append(f"    return [made[name] for name in {list(inputs)!r}]")
    else:
        lines = [
            _drawn(key, spec, values.get(key) or {"type": "random"}, sizes, origin) for key, spec in inputs.items()
        ]
        drawn = ["    return [", *(f"        {line}," for line in lines), "    ]"]
    names, reference = ", ".join(inputs), str(definition["reference"]).strip()
    imports = ["import torch", "import torch.nn as nn", ""]
    head = [*imports, reference]
    if "__future__" in reference:  # which has to come first
        head = [reference, "", *imports]
    source = "\n".join(
        [
            *head,
            "",
            "",
            "class Model(nn.Module):",
            f"    def forward(self, {names}):",
            f"        return run({names})",
            "",
            "",
            "def get_inputs():",
            *drawn,
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
    )
    return parse_problem(source, name, origin=origin, name=name)


def _identity(name: str) -> str:
    """Return what ids of a definition's problems begin with, short enough for the number of a workload."""
    identity = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip("._-")
    return identity[:100] or problem_id_of(name)


def _drawn(name: str, spec: dict[str, Any], entry: dict[str, Any], sizes: dict[str, int], origin: str) -> str:
    """Return the expression that draws an input."""
    dtype = SYNONYMS.get(str(spec.get("dtype")), str(spec.get("dtype")))
    kind, shape = entry.get("type"), spec.get("shape")
    if kind == "scalar":
        return repr(_scalar(name, entry, origin))
    advice = "write a KernelBench file whose get_inputs() makes it"
    if kind != "random":
        raise UserError(f"{origin}: input {name!r} is {kind}, which is not read here; {advice}")
    if shape is None:
        raise UserError(f"{origin}: input {name!r} is a scalar without a value; give it one in the workload")
    if not isinstance(shape, list):
        raise UserError(f"{origin}: input {name!r} has the shape {shape!r:.60}; it must be a list of axes")
    extents = [axis if _is_size(axis) else sizes.get(str(axis)) for axis in shape]
    if None in extents:
        raise UserError(
            f"{origin}: input {name!r} has the axis {shape[extents.index(None)]!r:.60}, which is not defined"
        )
    if dtype == "bool":
        return f"torch.rand({extents!r}) < 0.5"
    if dtype not in FLOATS:
        raise UserError(
            f"{origin}: input {name!r} is random {dtype}, whose range the definition does not state; {advice}"
        )
    if dtype.startswith("float8"):
        return f"torch.randn({extents!r}).clamp(-2.0, 2.0).to(torch.{dtype})"
    return f"torch.randn({extents!r}, dtype=torch.{dtype})"


def _scalar(name: str, entry: dict[str, Any], origin: str) -> float | str:
    """Return the value of an input that is none of tensors. Raises UserError where there is none."""
    value = entry.get("value")
    if not isinstance(value, (bool, int, float, str)) or (isinstance(value, float) and not math.isfinite(value)):
        raise UserError(f"{origin}: input {name!r} has the value {value!r:.60}; a scalar is a number, a text or a bool")
    return value


def axis_sizes(axes: dict[str, Any], bound: dict[str, Any], origin: str) -> dict[str, int]:
    """Return {axis: size} of constant axes, of those that a workload binds, and of expressions over them.

    Raises:
        UserError: for an axis without a value, and for an expression that is no arithmetic.
    """
    sizes: dict[str, int] = {}
    for name, axis in axes.items():
        value = axis.get("value") if axis.get("type") == "const" else bound.get(name)
        if _is_size(value):
            sizes[name] = value
        elif axis.get("type") != "expr":
            raise UserError(
                f"{origin}: axis {name!r} has no size of 0 to {_LARGEST_SIZE}; bind it in the workload's axes"
            )
    for name, axis in axes.items():
        if axis.get("type") == "expr":
            expression = str(axis.get("expression"))
            value = whole_number(expression, sizes)
            if value is None:
                raise UserError(
                    f"{origin}: axis {name!r}: {expression!r} is no arithmetic over the axes {', '.join(sizes)}"
                )
            if not _is_size(value):
                raise UserError(f"{origin}: axis {name!r}: {expression!r} is {value}; a size is 0 to {_LARGEST_SIZE}")
            sizes[name] = value
    return sizes


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_SIZE


def _workloads(file: Path, name: str) -> Iterator[dict[str, Any]]:
    beside = file.parent / "workload.jsonl"
    roots = [parent for parent in file.parents if parent.name == "definitions"]
    workload_files = roots[0].parent.glob("workloads/**/*.jsonl") if roots else ()
    shared = sorted(
        path for path in workload_files if path.name == f"{name}.jsonl"
    )  # a name may hold what patterns hold
    for path in [beside, *shared]:
        if path.is_file():
            for number, line in enumerate(read_source(path).split("\n"), start=1):
                if line.strip():
                    row = _object(f"{path} line {number}", line)
                    workload = row.get("workload") or row
                    if not isinstance(workload, dict):
                        raise UserError(f"{path} line {number}: 'workload' is {workload!r:.60}; it must be an object")
                    yield workload


def _object(origin: object, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{origin}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{origin}: holds no JSON object")
    return value


def _require_objects(value: object, key: str, origin: str) -> None:
    if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
        raise UserError(f"{origin}: {key!r} is {value!r:.60}; it must be an object with an object for each name")
