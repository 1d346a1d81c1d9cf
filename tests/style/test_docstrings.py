"""Docstrings of functions, methods and properties start with a verb in the imperative: what a rule can hold of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Folders and files whose docstrings are checked, one a line.
CHECKED = (
    "benchmarks",
    "cudal1_ray/actors",
    "cudal1_ray/adversarial",
    "cudal1_ray/analysis",
    "cudal1_ray/api.py",
    "cudal1_ray/checking",
    "cudal1_ray/cli.py",
    "cudal1_ray/commands",
    "cudal1_ray/config.py",
    "cudal1_ray/errors.py",
    "cudal1_ray/evaluation",
    "cudal1_ray/exemplars",
    "cudal1_ray/files",
    "cudal1_ray/integrations",
    "cudal1_ray/lazy.py",
    "cudal1_ray/learning",
    "cudal1_ray/plugins.py",
    "cudal1_ray/problems",
    "cudal1_ray/prompting",
    "cudal1_ray/rewards",
    "cudal1_ray/rollout",
    "cudal1_ray/serving",
    "cudal1_ray/settings",
    "cudal1_ray/source",
    "cudal1_ray/training",
    "cudal1_ray/uncollected.py",
    "docs",
    "launch",
    "scripts",
    "tests",
)  # fmt: skip
# Candidates, problems and templates: data.
DATA = (
    "tests/adversarial/cpu/",
    "tests/adversarial/cuda/",
    "cudal1_ray/problems/bundled/",
    "cudal1_ray/problems/corpus/",
    "cudal1_ray/prompting/templates/",
)

# First words that are no verbs in any sentence: determiners, pronouns and numerals, question words and conjunctions,
# prepositions, auxiliaries, and nouns and adjectives that describe a value where its function's action belongs. `fault`
# finds plurals, the third person and participles by their ends.
REFUSED = frozenset(
    """
    A All An Another Any Anything Both Each Either Every Everything First Half It Its Last Neither No None Nothing
    One Other Several Some Something That The Their These They This Those Three Two
    Although And As Because But How If Once Or So Than Then What When Where Whether Which While Who Why
    About Above Across After Along Among Around At Before Behind Below Beside Besides Between Beyond By During Except
    For From In Inside Into Like Of Off On Onto Outside Over Per Since Through To Towards Under Until Unto Up Upon With
    Within Without
    Are Can Could Did Does Had Has Is Might Must Never Not Ought Perhaps Shall Should Was Were Will Would
    Calling Correctness Drawn Equal Geometric Itself Log-probability Memory Misbehaviour Newer Plain Resident Room Root
    System Text Token Version Wall
    """.split()
)


def first_sentence(docstring: str) -> str:
    """Return the part of a docstring up to its first full stop, question mark or empty line."""
    return re.split(r"(?<=[.?])\s|\n\n", docstring.strip(), maxsplit=1)[0]


def fault(docstring: str) -> str:
    """Return what keeps a docstring from starting with a verb, empty where nothing does."""
    word = docstring.split()[0].rstrip(".,:;")
    if not re.fullmatch(r"[A-Z][a-z]*(-[a-z]+)*", word):
        return f"{word!r} is no verb"
    if word in REFUSED:
        return f"{word!r} is no verb that says what the function does"
    if word[-1] == "s" and not word.endswith(("as", "is", "ss", "us")):
        return f"{word!r} is a noun, or a verb in the third person: write the imperative"
    if word.endswith("ed") and not word.endswith(("eed", "Embed", "Shed")):
        return f"{word!r} is a participle: write the imperative"
    return "asks a question: write Return whether" if first_sentence(docstring).endswith("?") else ""


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and fault of each function's docstring that does not start with a verb."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and (message := fault(docstring)):
                yield node.lineno, f"{node.name}: {message}"


def python_files(path: Path) -> list[Path]:
    """Return a file by itself, or the Python files of a folder except data and files of tests (`test_*.py`)."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    files = [file for file in files if not file.name.startswith("test_")]
    return [file for file in files if not file.relative_to(ROOT).as_posix().startswith(DATA)]


@pytest.mark.parametrize("name", CHECKED)
def test_docstrings_of_a_checked_package_start_with_a_verb(name):
    files = python_files(ROOT / name)
    assert files, f"no Python file at {name}"
    places = [f"{file.relative_to(ROOT)}:{line}: {text}" for file in files for line, text in faults(file.read_text())]
    assert not places, "\n".join(["docstrings that do not start with a verb:", *places])


@pytest.mark.parametrize("name", CHECKED)
def test_docstrings_of_a_checked_package_are_in_the_imperative(name):
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=D401"]
    command += ["--output-format=concise", *(str(file) for file in python_files(ROOT / name))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "docstring",
    [
        "The folder of the run.",
        "Whether it is there.",
        "`most` rows are read.",
        "float64[n]: the draws.",
        "UserError when the file is missing.",
        "(id, row) of each.",
        "Do inputs that differ give something else? Then it rounds.",
        "Seconds until the next one.",
        "Enters the level, for good.",
        "Refused unless it equals `value`.",
    ],
)
def test_fault_when_a_docstring_starts_with_no_verb_names_it(docstring):
    assert fault(docstring)


@pytest.mark.parametrize(
    "docstring",
    [
        "Return the folder.",
        "Re-read the file.",
        "Do what `run` does: see there.",
        "Empty the cache.\n\nWhy? It is old.",
    ],
)
def test_fault_when_a_docstring_starts_with_a_verb_is_empty(docstring):
    assert not fault(docstring)
