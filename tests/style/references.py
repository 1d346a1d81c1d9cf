"""Names of the project's modules that a file uses and that do not exist: found by reading, nothing is imported.

Read are imports, attributes of imported modules, `setattr(module, "name", ...)`, dotted names in strings, and Python
within strings and Markdown; found are test files of one name, too. `python tests/style/references.py` prints one line
for each such name and exits with 1 if there is any; `make lint` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("cudal1_ray", "tests", "benchmarks", "docs", "launch", "scripts", "examples", "hydra_plugins")
DATA = (
    "cudal1_ray/problems/bundled/", "cudal1_ray/problems/corpus/", "tests/adversarial/cpu/", "tests/adversarial/cuda/",
    "tests/style/test_references.py", "cudal1_ray/serving/page/source/node_modules/",
)  # fmt: skip
DOTTED = re.compile(r"cudal1_ray(?:\.[A-Za-z_]\w*)+")
OWN_IMPORT = re.compile(r"^\s*(?:from|import) (?:cudal1_ray|tests|benchmarks)\b", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """A module or package of the repository: its file, if it has one, and the folder that its submodules are in."""

    root: Path
    name: str

    @property
    def file(self) -> Path | None:
        path = self.root.joinpath(*self.name.split("."))
        return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)

    @property
    def exists(self) -> bool:
        return self.file is not None or self.root.joinpath(*self.name.split(".")).is_dir()

    def below(self, name: str) -> Module:
        return Module(self.root, f"{self.name}.{name}")

    def has(self, name: str) -> bool:
        """Return whether `module.name` is bound at module level, or is a submodule."""
        return self.below(name).exists or (self.file is not None and name in bound_names(self.file))


@cache
def bound_names(file: Path) -> frozenset[str]:
    """Return the names that a module binds outside functions and classes, and those that it declares `global`."""
    names = {"__name__", "__file__", "__doc__", "__path__", "__dict__", "__spec__"}
    pending: list[ast.AST] = [ast.parse(file.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            names.update(name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(names)


@dataclass
class Reader:
    """Reads one file's code; `missing` collects line and name of what does not exist."""

    file: Path
    modules: dict[str, Module] = field(default_factory=dict)  # name in the file -> the module it is bound to
    missing: list[tuple[int, str]] = field(default_factory=list)

    def find(self, name: str, level: int = 0) -> Module | None:
        """Return the module that an import names, None if it is of no folder of the repository."""
        if level:
            package = self.file.parents[level - 1].relative_to(REPOSITORY)
            return Module(REPOSITORY, ".".join([*package.parts, *([name] if name else [])]))
        top = name.partition(".")[0]
        if top != "docs" and (REPOSITORY / top).is_dir() and top in FOLDERS:
            return Module(REPOSITORY, name)
        if REPOSITORY / "cudal1_ray" in self.file.parents:
            return None
        return Module(self.file.parent, name) if (self.file.parent / f"{top}.py").is_file() else None  # run as a script

    def read(self, tree: ast.AST, line: int = 0) -> None:
        """Read a syntax tree whose first line is `line` lines below the file's."""
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._read_import(alias, line + node.lineno)
            elif isinstance(node, ast.ImportFrom):
                self._read_import_from(node, line + node.lineno)
        for name in bound_otherwise(nodes):  # a parameter or variable of the same name: which one is meant is not known
            self.modules.pop(name, None)
        for node in nodes:
            if isinstance(node, ast.Attribute):
                self._read_attribute(node, line + node.lineno)
            elif isinstance(node, ast.Call):
                self._read_setattr(node, line + node.lineno)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.read_text(node.value, line + node.lineno)

    def _read_import(self, alias: ast.alias, line: int) -> None:
        if module := self.find(alias.name):
            if not module.exists:
                self.missing.append((line, alias.name))
            top = Module(module.root, alias.name.partition(".")[0])
            self.modules[alias.asname or top.name] = module if alias.asname else top

    def _read_import_from(self, node: ast.ImportFrom, line: int) -> None:
        module = self.find(node.module or "", node.level)
        if module is None:
            return
        for alias in node.names:
            if alias.name != "*" and not module.has(alias.name):
                self.missing.append((line, f"{module.name}.{alias.name}"))
            elif module.below(alias.name).file and not (module.file and alias.name in bound_names(module.file)):
                self.modules[alias.asname or alias.name] = module.below(alias.name)

    def _module_of(self, node: ast.AST) -> Module | None:
        if isinstance(node, ast.Name):
            return self.modules.get(node.id)
        if isinstance(node, ast.Attribute) and (module := self._module_of(node.value)):
            return module.below(node.attr) if module.below(node.attr).exists else None
        return None

    def _read_attribute(self, node: ast.Attribute, line: int) -> None:
        module = self._module_of(node.value)
        if module and not isinstance(node.ctx, ast.Store) and not module.has(node.attr):
            self.missing.append((line, f"{module.name}.{node.attr}"))

    def _read_setattr(self, node: ast.Call, line: int) -> None:
        match node:
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "delattr"), args=[target, ast.Constant(value=str(name)), *_]
            ):
                if (module := self._module_of(target)) and not module.has(name):
                    self.missing.append((line, f"{module.name}.{name}"))

    def read_text(self, text: str, line: int) -> None:
        if DOTTED.fullmatch(text):
            module, names = Module(REPOSITORY, "cudal1_ray"), text.split(".")[1:]
            while names and module.below(names[0]).exists:
                module = module.below(names.pop(0))
            if names and not module.has(names[0]):
                self.missing.append((line, text))
        elif OWN_IMPORT.search(text):
            try:
                tree = ast.parse(text)
            except SyntaxError:  # prose, or part of a program
                return
            Reader(self.file, missing=self.missing).read(tree, line - 1)


def bound_otherwise(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names that a file binds by anything but an import."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def missing_names(file: Path) -> list[str]:
    """Return `file:line: name` for each name that a Python or Markdown file takes from a module that lacks it."""
    reader, text = Reader(file), file.read_text()
    if file.suffix == ".py":
        reader.read(ast.parse(text))
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if file.suffix == ".md" else ():
        reader.read_text(block[1], text.count("\n", 0, block.start(1)) + 1)
    place = file.relative_to(REPOSITORY) if file.is_relative_to(REPOSITORY) else file.name
    return [f"{place}:{line}: {name}" for line, name in reader.missing]


def checked_files() -> list[Path]:
    """Return the repository's Python and Markdown files, without those in `DATA`."""
    found = [REPOSITORY / "README.md"]
    for folder in FOLDERS:
        found += [path for path in sorted((REPOSITORY / folder).rglob("*")) if path.suffix in (".py", ".md")]
    return [path for path in found if not str(path.relative_to(REPOSITORY)).startswith(DATA)]


def namesakes(files: list[Path]) -> list[str]:
    """Return a line for each test file that has the name of an earlier one: pytest imports them by it alone."""
    first: dict[str, Path] = {}
    tests = [file for file in files if file.name.startswith("test_") and file.suffix == ".py"]
    return [
        f"{file}: has the name of {first[file.name]}" for file in tests if first.setdefault(file.name, file) != file
    ]


def main() -> int:
    files = checked_files()
    missing = [name for file in files for name in missing_names(file)]
    missing += namesakes([file.relative_to(REPOSITORY) for file in files])
    print(*missing, sep="\n", end="\n" if missing else "")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
