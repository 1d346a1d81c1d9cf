"""The boundary between what runs beside a candidate's code and what evaluates it is one of folders."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cudal1_ray.evaluation

EVALUATION = Path(cudal1_ray.evaluation.__file__).parent
SHARED = ("exchange", "sandbox")  # messages and tensors, and the walls that a process raises around itself


def _imported(path: Path) -> set[str]:
    """Return the project's modules that a file imports, as paths below evaluation/; others of the project's as
    "../name"."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and node.level == 0, f"{path}:{node.lineno}: a relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    paths = {name.removeprefix("cudal1_ray.") for name in names if name.startswith("cudal1_ray.")}
    inner = {name.removeprefix("evaluation.").replace(".", "/") for name in paths if name.startswith("evaluation.")}
    return {name for name in inner if (EVALUATION / f"{name}.py").exists()} | {
        f"../{name.replace('.', '/')}" for name in paths if not name.startswith("evaluation.")
    }


def _reached() -> set[str]:
    """Return all modules that those of inside/ import."""
    waiting = {f"inside/{path.stem}" for path in (EVALUATION / "inside").glob("*.py")}
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        if not name.startswith("../"):
            waiting |= _imported(EVALUATION / f"{name}.py") - reached
    return reached


def test_inside_when_imported_reaches_nothing_of_the_trusted_side():
    outside = {name for name in _reached() if not name.startswith(("inside/", *(f"{package}/" for package in SHARED)))}
    assert not outside


@pytest.mark.parametrize("folder", SHARED)
def test_shared_folders_when_imported_reach_neither_side(folder):
    shared = {name for name in _reached() if name.startswith(f"{folder}/")}
    assert shared
    assert not any(module.startswith("inside/") for name in shared for module in _imported(EVALUATION / f"{name}.py"))


def test_trusted_side_when_imported_reaches_nothing_of_inside():
    own = [
        path for path in EVALUATION.rglob("*.py") if path.relative_to(EVALUATION).parts[0] not in ("inside", *SHARED)
    ]
    imports = {path.name: _imported(path) for path in own}
    assert not {name for name, imported in imports.items() if any(module.startswith("inside/") for module in imported)}
    assert (
        "exchange/messages" in imports["trials.py"] and "../errors" in imports["handles.py"]
    )  # the search finds the imports that exist


STAGES = ("screening", "correctness", "timing", "scrutiny")


@pytest.mark.parametrize("number", range(len(STAGES)))
def test_stage_when_it_imports_others_imports_no_later_one(number):
    later = tuple(f"{stage}/" for stage in STAGES[number + 1 :])
    imports = {module for path in (EVALUATION / STAGES[number]).glob("*.py") for module in _imported(path)}
    assert not {module for module in imports if module.startswith(later)}
