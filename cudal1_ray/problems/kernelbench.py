"""Loaders for KernelBench (Ouyang et al., arXiv 2502.10517): a folder of its files, its Parquet table, the
hub."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cudal1_ray.errors import UserError, first_line
from cudal1_ray.problems.other_forms import (
    KERNELBOOK_COLUMNS,
    definition_files,
    kernelbook_source,
    read_definition,
    read_task,
    task_files,
)
from cudal1_ray.problems.problem import Problem, parse_problem, problem_id_of, sorted_by_id
from cudal1_ray.problems.tables import column_names, read_rows, table_files, text_of, whole_number_of
from cudal1_ray.source.text import read_source

COLUMNS = ("code", "level", "name", "problem_id")
_LEVEL_FOLDER = re.compile(r"level[_-]?(\d+)", re.IGNORECASE)
_NUMBERED = re.compile(r"(\d+)[_-](.+)")


def kernelbench_id(level: int | None, number: int) -> str:
    """Return `kernelbench-l1-p009`; without a level, `kernelbench-p009`."""
    return f"kernelbench-p{number:03d}" if level is None else f"kernelbench-l{level}-p{number:03d}"


def load_folder(path: str | Path, levels: Iterable[int] | None = None) -> list[Problem]:
    """Load the problems of a directory: `level1/12_name.py`, or the files of one level, or any `*.py` side by side.

    Definitions of SOL-ExecBench and flashinfer-bench and tasks of robust-kbench are read too, see `other_forms`.
    A file without a leading number takes its own name as problem id, with dashes for what an id may not hold. `levels`
    leaves other level folders unread.

    Raises:
        UserError: naming the directory when it is missing or holds no problem, or the file that is not one.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UserError(f"problems.path: no directory {root}; give the folder that holds the KernelBench files")
    if definitions := definition_files(root):
        return sorted_by_id([problem for file in definitions for problem in read_definition(file)], str(root))
    if tasks := task_files(root):
        return sorted_by_id([read_task(file, read_source(file)) for file in tasks], str(root))
    allowed = None if levels is None else set(levels)
    folders = [(root, _level_of(root))]
    folders += [
        (child, level) for child in root.iterdir() if child.is_dir() and (level := _level_of(child)) is not None
    ]
    files = [
        (file, level)
        for folder, level in folders
        if level is None or allowed is None or level in allowed
        for file in folder.glob("*.py")
        if not file.name.startswith(("_", ".")) and not file.is_dir()
    ]
    if not files:
        chosen = "" if allowed is None else f" (problems.levels={sorted(allowed)})"
        raise UserError(f"problems.path: no problem file, NAME.py, in {root} or in level1/ and so on below it{chosen}")
    return sorted_by_id([_read_file(file, level) for file, level in files], str(root))


def load_parquet(path: str | Path, levels: Iterable[int] | None = None) -> list[Problem]:
    """Load the problems of KernelBench's table: one Parquet file, or a directory of them (`table_files`).

    Columns: `code` (string), `level` (integer), `name` (string), `problem_id` (integer); others are left
    alone.

    Raises:
        UserError: naming the file when it is missing or no Parquet; the column that is missing or holds a value of
            the wrong type; the row whose code is no problem.
    """
    root = Path(path).expanduser()
    if not root.exists():
        raise UserError(f"problems.path: no file {root}; give a KernelBench Parquet file, or a directory of them")
    files = table_files(root) if root.is_dir() else [root]
    if not files:
        raise UserError(f"problems.path: no .parquet file under {root}")
    allowed = None if levels is None else set(levels)
    return sorted_by_id([problem for file in files for problem in _read_table(file, allowed)], str(root))


def load_hub(name: str, revision: str | None = None, levels: Iterable[int] | None = None) -> list[Problem]:
    """Load the problems of a data set on the Hugging Face hub that holds KernelBench's table, by the hub's own cache.

    Raises:
        UserError: when it can neither be downloaded nor found in the cache, besides what `load_parquet` raises.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=["*.parquet"])
    except Exception as error:  # the hub's client raises its own, httpx's and OS errors, by version
        raise UserError(
            f"problems.hub_name: data set {name!r} could not be fetched "
            f"({first_line(error)}); check the name and the connection, or use "
            "problems=kernelbench_parquet with a file of your own"
        ) from error
    return load_parquet(folder, levels)


def _level_of(folder: Path) -> int | None:
    match = _LEVEL_FOLDER.fullmatch(folder.name)
    return int(match.group(1)) if match else None


def _read_file(file: Path, level: int | None) -> Problem:
    source = read_source(file)
    numbered = _NUMBERED.fullmatch(file.stem)
    problem_id = kernelbench_id(level, int(numbered.group(1))) if numbered else problem_id_of(file.stem)
    return parse_problem(source, problem_id, origin=str(file), name=file.stem, level=level)


def _kernelbook_rows(rows: list[dict], file: Path) -> list[Problem]:
    """Return KernelBook's rows that are problems: modules whose inputs are functions of the file."""
    problems = []
    for index, row in enumerate(rows):
        name, code, origin = row["entry_point"], row["python_code"], f"{file}, row {index}"
        if not isinstance(name, str) or not isinstance(code, str) or not name.isidentifier():
            raise UserError(f"{origin}: columns python_code and entry_point must hold a program and a class name")
        number = row.get("uuid")
        identity = f"kernelbook-{index if number is None else number}-{name}"
        source = kernelbook_source(code, name)
        problems.append(parse_problem(source, problem_id_of(identity), origin=f"{origin} ({name})", name=name))
    return problems


def _read_table(file: Path, levels: set[int] | None) -> list[Problem]:
    present = column_names(file)
    if set(KERNELBOOK_COLUMNS) <= set(present):
        columns = [*KERNELBOOK_COLUMNS, *(["uuid"] if "uuid" in present else [])]
        return _kernelbook_rows(read_rows(file, columns), file)
    missing = [column for column in COLUMNS if column not in present]
    if missing:
        raise UserError(f"{file}: no column {missing[0]!r}; a KernelBench table has the columns {', '.join(COLUMNS)}")
    problems = []
    for index, row in enumerate(read_rows(file, COLUMNS)):
        origin = f"{file}, row {index}"
        level, number = (whole_number_of(row, column, origin) for column in ("level", "problem_id"))
        if levels is not None and level not in levels:
            continue
        code, name = (text_of(row, column, origin) for column in ("code", "name"))
        identity, origin = kernelbench_id(level, number), f"{origin} ({name})"
        problems.append(parse_problem(code, identity, origin=origin, name=name, level=level))
    return problems
