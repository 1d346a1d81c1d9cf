"""Foreign text is parsed in one place, which keeps Python's warnings about it off the terminal."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cudal1_ray
from cudal1_ray.source.parsing import CANDIDATE, PROBLEM, compile_text, fault, parse, parse_expression

PACKAGE = Path(cudal1_ray.__file__).parent
# One warning each of the tokenizer, of string literals and of the compiler.
WARNINGS = 'HEX = 0xfor 1\nTEXT = "\\d"\nSAME = HEX is 5\n'
# Files that parse what is not foreign, or that have no terminal, and why.
ELSEWHERE = {
    "evaluation/inside/executing.py": "a sandboxed process; it may import nothing of the trusted side",
    "evaluation/inside/memory.py": "a sandboxed process; it may import nothing of the trusted side",
    "problems/sizes/footprint.py": "the process of sizes/worker.py, which ignores warnings",
    "settings/keys.py": "the package's settings",
}
READERS = """
import sys
from cudal1_ray.analysis.techniques import find_techniques
from cudal1_ray.source.candidate import CandidateReading
from cudal1_ray.checking.similarity import features
from cudal1_ray.evaluation.compiling.compiler import Compiler
from cudal1_ray.source.extensions import flags_of
from cudal1_ray.problems import parse_problem
from cudal1_ray.problems.corpus import parse_entry
from cudal1_ray.problems.other_forms import task_source
from cudal1_ray.source.size_constants import size_constants
from cudal1_ray.prompting import parse_answer
from cudal1_ray.serving.optimize.modules import Arguments, complete_module
from cudal1_ray.source.comments import strip_comments
from cudal1_ray.source.findings import look_at
from cudal1_ray.source.operations import operators_of
from cudal1_ray.source.normal_form import bare_code, normalise_code, without_native_comments
from cudal1_ray.source.renaming import with_numbered_names

text = sys.argv[1]
candidate = text + "\\nclass ModelNew: ...\\n"
problem = text + "\\nclass Model: ...\\ndef get_inputs(): ...\\ndef get_init_inputs(): ...\\n"
# A new text for each, so that no cache answers.
texts = (f"{candidate}# {number}\\n" for number in range(100))
assert look_at(next(texts)).unreadable is None
readers = [normalise_code, bare_code, with_numbered_names, without_native_comments, strip_comments, CandidateReading]
for read in (*readers, flags_of):
    read(next(texts))
features(next(texts), problem)
find_techniques(next(texts), problem)
assert Compiler().compile(next(texts)).ok
parse_answer(f"## Code\\n```python\\n{next(texts)}```\\n```python\\n{next(texts)}```\\n")
parse_entry('"Technique: a\\\\nAnalysis: b\\\\nDesign: c"\\n' + next(texts), "p", "e", "origin")
parse_problem(problem, "p", origin="origin")
task_source(problem, "origin")
size_constants(problem)
complete_module(problem)
operators_of(problem)
Arguments.parse("0xfor 1", "inputs")
"""


def test_readers_of_foreign_text_when_it_has_warnings_print_none():
    command = [
        sys.executable,
        "-W",
        "default::SyntaxWarning",
        "-W",
        "default:invalid:DeprecationWarning",
        "-c",
        READERS,
    ]
    done = subprocess.run([*command, WARNINGS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr + done.stdout


def test_the_text_of_these_tests_has_three_warnings_when_python_parses_it():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile(WARNINGS, "file.py", "exec", dont_inherit=True)
    assert len(caught) == 3


@pytest.mark.parametrize("name", [CANDIDATE, PROBLEM])
def test_parse_when_all_filters_were_reset_gives_no_warning(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        parse(WARNINGS, name)
        compile_text(WARNINGS, name)
        parse_expression("0xfor 1")
        compile("1is 2", "file.py", "exec")  # another text's warnings stay
    assert {warning.filename for warning in caught} == {"file.py"}


def test_parse_when_the_text_is_broken_names_the_candidate_and_the_line():
    with pytest.raises(SyntaxError, match=r"\(<candidate>, line 2\)"):
        parse("x = 1\n  y = 2\n")


@pytest.mark.parametrize("read", [parse, parse_expression, compile_text])
@pytest.mark.parametrize(
    "text, words",
    [
        ("\0", "null bytes"),
        ("'1'\n'\ud800'", "line 2: U+D800 is half of a surrogate pair"),
        ("(" * 60000, ""),
        ("-" * 60000 + "1", ""),
        ("0x" + "f" * 4000, "4,300"),
    ],
)
def test_text_when_not_python_in_any_way_is_a_syntax_error(read, text, words):
    with pytest.raises(SyntaxError) as caught:
        read(text)
    assert words in fault(caught.value)
    assert caught.value.filename in (CANDIDATE, "<expression>")


def _parses(node: ast.AST) -> bool:
    """Return whether a node names `ast.parse` or the built-in `compile`."""
    used = isinstance(getattr(node, "ctx", None), ast.Load)
    return used and ast.unparse(node) in ("ast.parse", "compile")


def test_package_when_it_reads_syntax_trees_does_so_in_source_and_behind_the_wall():
    reading = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if re.search(r"^\s*(import|from) (ast|symtable|tokenize)\b", path.read_text(), re.MULTILINE):
            reading.add("/".join(name.split("/")[:-1]) if name.startswith(("source/", "evaluation/inside/")) else name)
    assert reading == {"source", "evaluation/inside", "settings/keys.py"}  # the last reads the package's own settings


def test_package_when_it_parses_foreign_text_does_so_in_source_alone():
    data = ("problems/bundled/", "problems/corpus/")
    parsing = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(data) and any(map(_parses, ast.walk(ast.parse(path.read_text())))):
            parsing.add(name)
    assert parsing == {"source/parsing.py", *ELSEWHERE}


class _Loop:
    """Garbage that lets other threads go on while it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def test_parse_when_threads_parse_at_once_gives_each_its_tree():
    text = "x = 1\n" + "def f(a):\n    return a[:, :1] * 0\n" * 20

    def parsed(_: int) -> int:
        _Loop()
        return len(parse(text).body)

    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(parsed, range(2000))) == {21}
    finally:
        gc.set_threshold(*before)
