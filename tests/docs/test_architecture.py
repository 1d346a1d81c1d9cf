"""The rules of docs/architecture.md and CONTRIBUTING.md about imports, held against the package's own files."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import cudal1_ray

ROOT = Path(cudal1_ray.__file__).parent
DATA = ("problems/bundled/", "problems/corpus/", "prompting/templates/")
WITH_RAY = {"actors", "serving", "training"}
PACKAGES = {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").is_file()}
# Folder -> what it must not import by CONTRIBUTING.md: packages here, or others.
FORBIDDEN = {
    "files": PACKAGES - {"files"},
    "settings": PACKAGES - {"settings"},
    "source": PACKAGES - {"source"} | {"torch"},
    "problems": PACKAGES - {"problems", "settings", "source"},
    "prompting": {"torch"},
    "exemplars": {"rollout"},
    "rollout": {"learning"},
    "evaluation": {"prompting", "rollout", "learning"},
    "checking": {"rewards"},
    "learning": {"evaluation"},
    "serving": {"training"},
    "adversarial": {"evaluation"},
    "integrations": {"training"},
}  # fmt: skip


def imported(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Yield the dotted names of modules that a syntax tree imports, what only type checkers read left out."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imported(child, package)


def place(parts: list[str]) -> str:
    """Return the package that a module of the project belongs to; its `config.py`, the schema, is one of its own."""
    return ".".join(parts[1:3]) if parts[2:3] == ["config"] else parts[1]


@functools.cache
def modules() -> dict[str, set[str]]:
    """Return what each module imports, by dotted names."""
    read = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(DATA) and name != "__init__.py":
            parts = ["cudal1_ray", *name.removesuffix(".py").split("/")]
            read[".".join(parts)] = set(imported(ast.parse(path.read_text()), parts[:-1]))
    return read


@functools.cache
def packages() -> dict[str, set[str]]:
    """Return what each package imports: packages here by name, others by their first name."""
    graph: dict[str, set[str]] = {}
    for importer, names in modules().items():
        targets = graph.setdefault(place(importer.split(".")), set())
        for name in names:
            first, *rest = name.split(".")
            if first != "cudal1_ray":
                targets.add(first)
            elif rest:
                targets.add(place([first, *rest]))
    return {name: targets - {name} for name, targets in graph.items()}


def reached(module: str) -> set[str]:
    """Return the dotted names that a module imports, itself or by other modules of the project."""
    names: set[str] = set()
    waiting = [module]
    while waiting:
        for name in modules()[waiting.pop()] - names:
            names.add(name)
            waiting += [own for own in (name, name.rpartition(".")[0]) if own in modules()]
    return names


def test_ray_when_it_is_imported_is_in_actors_serving_or_training():
    assert {name for name, targets in packages().items() if "ray" in targets} == WITH_RAY


def test_private_part_of_ray_when_it_is_used_has_a_comment():
    places = []
    for path in ROOT.rglob("*.py"):
        above = ""
        for line in path.read_text().splitlines():
            if re.search(r"\bray\.(\w+\.)*_private\b", line):
                places.append((path.name, "#" in line or above.lstrip().startswith("#")))
            above = line
    assert {name for name, _ in places} == {"application.py", "placement.py"} and all(
        explained for _, explained in places
    )


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_package_when_the_guide_forbids_an_import_does_without(folder):
    targets = packages()[folder] | packages().get(f"{folder}.config", set())
    assert targets and not targets & FORBIDDEN[folder]


def test_module_when_it_has_an_actor_of_a_fleet_does_without_rllib():
    """RLlib is two CPU seconds of imports, for the driver's fleets only."""
    actors = [
        path for path in (ROOT / "actors").glob("*.py") if re.search(r"^class \w+\(FleetMember", path.read_text(), re.M)
    ]
    assert {path.stem for path in actors} >= {"evaluation", "exemplars", "learner", "rollout_member"}
    for path in actors:
        assert not [name for name in reached(f"cudal1_ray.actors.{path.stem}") if name.startswith("ray.rllib")], path
    assert "ray.rllib.utils.actor_manager.FaultTolerantActorManager" in reached("cudal1_ray.training.crew")


def test_packages_when_sorted_by_imports_have_no_circle():
    own = {name: targets & packages().keys() for name, targets in packages().items()}
    for name, targets in own.items():
        targets -= {f"{name}.config"}  # a package and its schema are one where the package itself is meant
    assert set(TopologicalSorter(own).static_order()) == packages().keys()


def folders(top: Path, pattern: str) -> set[str]:
    """Return the folders below `top` that hold a file of this name, by their path from there."""
    files = (path.relative_to(top) for path in top.rglob(pattern) if path.name != "__init__.py")
    return {file.parent.as_posix() for file in files if not file.as_posix().startswith((*DATA, "adversarial/c"))}


def test_tests_when_compared_with_the_tree_have_its_folders():
    tests, package = folders(ROOT.parent / "tests", "test_*.py"), folders(ROOT, "*.py")
    elsewhere = {folder for folder in tests if not any((top / folder).is_dir() for top in (ROOT, ROOT.parent))}
    assert package <= tests and elsewhere == {"style"}  # that reads all files


def test_guide_when_a_folder_is_there_has_a_row_for_it():
    guide = (ROOT.parent / "CONTRIBUTING.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)/` \|", guide, re.MULTILINE))
    assert rows == PACKAGES >= FORBIDDEN.keys()


def test_class_names_when_read_over_the_package_stand_for_one_class_each():
    modules: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(DATA):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    modules.setdefault(node.name, []).append(name)
    assert "Evaluator" in modules
    assert {kind: places for kind, places in modules.items() if len(places) > 1} == {}
