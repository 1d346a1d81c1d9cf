"""Candidates for stage 1 and for the first exemplars, from wherever a user has them: a folder, a table, the package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.problems.corpus import FIELDS, WRONG_PREFIX, CorpusEntry, load_corpus, parse_entry
from cudal1_ray.problems.kernelbench import kernelbench_id
from cudal1_ray.problems.tables import column_names, read_rows, table_files, text_of, whole_number_of
from cudal1_ray.source.text import clean_text, read_source

BUNDLED = "bundled"
# Name of the kernels that this project wrote for KernelBench's training problems.
KERNELBENCH = "kernelbench"
# Sizes of KernelBench's problems (problems.sizes) in which the corpus `kernelbench` was measured.
KERNELBENCH_SIZES = "scaled"
_KERNELBENCH_FILE = Path(__file__).parent / "corpus" / "kernelbench_kernels.parquet"
# Columns that name the problem: `problem` with a run's problem id, or KernelBench's number beside its level.
_PROBLEM_COLUMNS = ("problem", "problem_id")
_MODEL_NEW = re.compile(r"^(?:class[ \t]+ModelNew\b|ModelNew[ \t]*=)", re.MULTILINE)
# What makes the first sentence of a design an item of a list: a number, a dash or a star.
_LIST_MARK = re.compile(r"^(?:\d+[.)]|[-*])\s+")
_KERNELS = (
    ("Triton", re.compile(r"@triton\.jit\b[^\n]*\n(?:@[^\n]*\n)*\s*def\s+(\w+)")),
    ("CUDA", re.compile(r"__global__\s+(?:__\w+__\s*\([^)]*\)\s*)?void\s+(?:__\w+__\s*\([^)]*\)\s*)?(\w+)")),
)


def read_corpus(source: str, key: str = "sft.corpus") -> list[CorpusEntry]:
    """Return the candidates that `source` holds, in its order.

    Args:
        source: `bundled`; `kernelbench`, this project's kernels for KernelBench's training problems; a folder
            `<problem id>/<any name>.py`, whose files may open with the docstring of the bundled corpus; or a Parquet
            file (or a folder of them) with the columns `problem` (a problem id) or `problem_id` and `level`
            (KernelBench's), and `code`. Columns that may be there: `analysis`, `design`, `techniques`, `speedup` or
            `credited_speedup`, as an evaluator measured it, `hardware`, the name of the device that it measured, and
            `speedups`, a map from names of devices to what each measured; rows with a `status` other than "accepted"
            are left out.
        key: the setting that names it, for messages.

    Raises:
        UserError: naming the key and the file, row or column at fault.
    """
    if source == BUNDLED:
        return load_corpus()
    tables, files = _find(source, key)
    if files:
        return [_from_file(file) for file in files]
    folder = Path(source).expanduser()
    return [entry for table in tables for entry in _from_table(table, folder)]


def sizes_measured_in(source: str, sizes: str) -> str:
    """Return the sizes that a corpus was measured in, where those of the problems are others; empty where they are the
    same, and for a corpus that does not state them.
    """
    return KERNELBENCH_SIZES if source == KERNELBENCH and sizes != KERNELBENCH_SIZES else ""


def require_corpus(source: str, key: str, *others: str) -> None:
    """Raise the UserError of `read_corpus` where nothing is, without reading what is there.

    Args:
        others: what the setting takes besides, for the message.
    """
    if source != BUNDLED:
        _find(source, key, *others)


def _find(source: str, key: str, *others: str) -> tuple[list[Path], list[Path]]:
    """Return the tables and the files of candidates that a source names."""
    path = _KERNELBENCH_FILE if source == KERNELBENCH else Path(source).expanduser()
    tables = table_files(path) if path.is_dir() else [path] if path.suffix == ".parquet" else []
    files = sorted(file for file in path.glob("*/*.py") if not file.name.startswith("_")) if path.is_dir() else []
    if not path.exists() or not (tables or files):
        *names, last = BUNDLED, KERNELBENCH, *others
        named = f"{', '.join(names)} or {last}"
        raise UserError(f"{key}={source}: give a Parquet file, a folder <problem id>/<candidate>.py, {named}")
    return tables, files


def _from_file(file: Path) -> CorpusEntry:
    text = read_source(file)
    if all(f"{field}:" in text for field in FIELDS):
        return parse_entry(text, file.parent.name, file.stem, str(file))
    return make_entry(file.parent.name, file.stem, text, str(file))


def make_entry(
    problem_id: str,
    name: str,
    code: str,
    origin: str,
    *,
    analysis: str = "",
    design: str = "",
    technique: str = "",
    speedup: float = 0.0,
    hardware: str = "",
    speedups: Mapping[str, float] | None = None,
) -> CorpusEntry:
    """Return an entry whose missing parts are read from the code itself. Raises UserError naming `origin`."""
    if not _MODEL_NEW.search(code):
        raise UserError(f"{origin}: the code defines no ModelNew")
    kernels = {language: pattern.findall(code) for language, pattern in _KERNELS}
    parts = [f"{language} kernels: {', '.join(names)}." for language, names in kernels.items() if names]
    own = " ".join(parts) or "PyTorch operations only."
    return CorpusEntry(
        problem_id,
        f"{problem_id}/{name}",
        code.strip("\n") + "\n",
        technique or "unknown",
        analysis.strip() or "The reference launches its operations one after another.",
        design.strip() or own,
        expected="rejected" if name.startswith(WRONG_PREFIX) else "accepted",
        reason=_first_sentence(design) or own,
        speedup=speedup,
        hardware=hardware,
        speedups=speedups or {},
    )


def _from_table(file: Path, folder: Path) -> list[CorpusEntry]:
    names, rows = column_names(file), read_rows(file)
    if "code" not in names or not set(_PROBLEM_COLUMNS) & set(names):
        raise UserError(
            f"{file}: has the columns {', '.join(names)}; needed are code, and problem (an id) or level and problem_id"
        )
    accepted = (numbered for numbered in enumerate(rows) if numbered[1].get("status") in (None, "accepted"))
    # Below a folder, tables of one name are common, and their candidates differ.
    table = file.relative_to(folder).with_suffix("").as_posix() if folder in file.parents else file.stem
    return [_from_row(row, f"{table}-{number}", f"{file}, row {number}") for number, row in accepted]


def _from_row(row: dict[str, Any], name: str, origin: str) -> CorpusEntry:
    techniques = row.get("techniques") or row.get("technique") or ""
    analysis, design = (text_of(row, name, origin) if row.get(name) else "" for name in ("analysis", "design"))
    return make_entry(
        _problem_id(row, origin),
        name,
        clean_text(text_of(row, "code", origin)),
        origin,
        analysis=analysis,
        design=design,
        technique=", ".join(map(str, techniques)) if isinstance(techniques, list) else str(techniques),
        speedup=_speedup(row, origin),
        hardware=text_of(row, "hardware", origin) if row.get("hardware") else "",
        speedups=_speedups(row, origin),
    )


def _problem_id(row: dict[str, Any], origin: str) -> str:
    column = next((name for name in _PROBLEM_COLUMNS if row.get(name) is not None), None)
    if column is None:
        raise UserError(f"{origin}: no problem; give a problem id, or a number beside a level")
    if isinstance(row[column], str) and (column == "problem" or not row[column].isdecimal()):
        return str(row[column])  # "12" is the id of a problem file 12.py
    level = None if row.get("level") is None else whole_number_of(row, "level", origin)
    return kernelbench_id(level, whole_number_of(row, column, origin))


def _speedup(row: dict[str, Any], origin: str) -> float:
    value = row.get("credited_speedup", row.get("speedup"))
    try:
        speedup = float(value or 0.0)
    except (TypeError, ValueError):
        speedup = -1.0
    if not 0.0 <= speedup < float("inf"):
        raise UserError(f"{origin}: speedup {value!r:.60}: must be a number of 0 or more")
    return speedup


def _speedups(row: dict[str, Any], origin: str) -> dict[str, float]:
    """Return what each device measured: of a map, as Arrow yields it, or of a struct, which has gaps."""
    value = row.get("speedups")
    try:
        pairs = dict(() if value is None else value).items()
        speedups = {device: speedup for device, speedup in pairs if speedup is not None}
        if all(isinstance(device, str) and 0.0 < speedup < float("inf") for device, speedup in speedups.items()):
            return {device: float(speedup) for device, speedup in speedups.items()}
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"{origin}: column 'speedups' holds {value!r:.60}; it must be a map from names of devices to numbers above 0"
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence, without the number or the dash that makes it an item of a list."""
    return re.split(r"(?<=[.!?])\s", _LIST_MARK.sub("", text.strip()), maxsplit=1)[0]
