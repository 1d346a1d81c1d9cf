"""The hack-case database: what identifies a case, and a file that is whole at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from cudal1_ray.adversarial import load_samples
from cudal1_ray.checking import HackCase, HackCases
from cudal1_ray.checking.hack_cases import CATEGORIES, SHIPPED, case_id, read_cases
from cudal1_ray.errors import UserError
from cudal1_ray.source.normal_form import bare_code, without_native_comments
from scripts.build_hack_cases import build

CODE = "class ModelNew:\n    def forward(self, x):\n        return self.stored  # quick\n"
REFORMATTED = 'class ModelNew:\n\n\n    def forward( self,x ):\n        """Honest."""\n        return (self.stored)\n'
KERNEL = 'source = """\n#include <torch/extension.h>\n{comment}int one() {{ return 1; }}\n"""\n'


def hack(code: str = CODE, problem_id: str = "p", **fields) -> HackCase:
    return HackCase.new(problem_id, "result_cache", "returns what it stored", code, **fields)


def test_case_id_when_comments_docstrings_or_formatting_differ_is_the_same():
    assert case_id("p", CODE) == case_id("p", REFORMATTED) != case_id("q", CODE)
    assert case_id("p", CODE) != case_id("p", CODE.replace("stored", "kept"))


def test_case_id_when_comments_or_white_space_of_a_kernel_differ_is_the_same():
    plain, talking = KERNEL.format(comment=""), KERNEL.format(comment="// this one is honest\n/* really */\n\n")
    assert case_id("p", plain) == case_id("p", talking)
    assert case_id("p", plain) != case_id("p", plain.replace("return 1", "return 2"))
    assert "honest" in talking and "honest" not in without_native_comments(talking)
    assert without_native_comments(CODE) == CODE


TRITON = """
@triton.jit
def kernel(x, n, B):
    rows = n // 2 + 1  # half
    if n:
        rows = rows + B
    rows = rows * 2
"""


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (TRITON, TRITON.replace("n // 2 + 1", "n // 4 * B")),
        (TRITON, TRITON.replace("    rows = rows * 2", "        rows = rows * 2")),
        ("@triton.jit\ndef {name}(n): n // 2", "@triton.jit\ndef {name}(n): n // 4"),
        ('__global__ void k() { u = "http://a"; f(); }', '__global__ void k() { u = "http://a"; g(); }'),
        ('__global__ void k() { u = "/*"; f(); v = "*/"; }', '__global__ void k() { u = "/*"; g(); v = "*/"; }'),
        ("__global__ void k() { u = '\"'; // '\"'\n f(); }", "__global__ void k() { u = '\"'; // '\"'\n g(); }"),
        ('__global__ void k() { u = R"(")"; v = "//"; f(); }', '__global__ void k() { u = R"(")"; v = "//"; g(); }'),
        ('__global__ void k() { printf("a  b"); }', '__global__ void k() { printf("a b"); }'),
    ],
)
def test_case_id_when_a_kernel_differs_after_what_is_no_comment_is_another(source, other):
    assert case_id("p", f"source = {source!r}") != case_id("p", f"source = {other!r}")


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (TRITON, TRITON.replace("# half", "# honest\n\n")),
        ("__global__ void k() { n = 1'000; }", "__global__ void k() { n = 1'000; // it's @triton's\n}"),
        ('__global__ void k() { u = "\\"//"; }', '__global__ void k() {/* "quoted" */ u = "\\"//";\n}'),
    ],
)
def test_case_id_when_only_comments_of_a_kernel_differ_is_the_same(source, other):
    assert case_id("p", f"source = {source!r}") == case_id("p", f"source = {other!r}")


def test_comments_when_a_kernel_is_triton_or_has_literals_are_removed_alone():
    triton, cuda = f"source = '''{TRITON}'''", "source = '''__global__ k() { u = \"//a\"; f(); } // why'''"
    assert without_native_comments(triton) == triton.replace("'''\n", "'''", 1).replace("  # half", "")
    assert without_native_comments(cuda) == cuda.replace("// why", " ")


def test_case_id_when_text_is_not_python_is_that_of_its_stripped_text():
    assert bare_code("  not python (\n") == "not python ("
    assert case_id("p", "lone \ud800 surrogate (") == case_id("p", " lone \ud800 surrogate (")


def test_hack_case_when_its_category_is_unknown_is_an_error():
    with pytest.raises(ValueError, match="being_clever"):
        HackCase.new("p", "being_clever", "", CODE)


def test_hack_cases_when_added_and_saved_are_read_back(tmp_path):
    cases = HackCases.open(tmp_path / "cases.parquet")
    shipped = len(cases)
    case = hack(speedup=7.5, reference="class Model: ...", source="a test", confirmed_by="recheck")
    assert cases.add(case) and not cases.add(case)
    assert not cases.add(hack(REFORMATTED))  # the same candidate in other words
    cases.add(hack("lone \ud800 surrogate ("))
    cases.save()
    again = HackCases.open(tmp_path / "cases.parquet")
    assert len(again) == shipped + 2
    assert again.find("p", REFORMATTED) == case
    assert again.find("q", REFORMATTED) is None
    assert [p.name for p in tmp_path.iterdir()] == ["cases.parquet"]


def test_hack_when_the_same_candidate_has_an_honest_case_replaces_it():
    cases = HackCases(None, [HackCase.new("p", "", "honest", CODE)])
    assert not cases.hacks()
    assert cases.add(hack(REFORMATTED)) and len(cases) == 1
    assert not cases.add(HackCase.new("p", "", "honest", CODE))
    assert cases.find("p", CODE).is_hack


def test_hack_cases_when_another_file_is_given_start_from_it(tmp_path):
    other = HackCases(tmp_path / "other.parquet", [hack()])
    other.save()
    started = HackCases.open(tmp_path / "run" / "cases.parquet", tmp_path / "other.parquet")
    assert [case.case_id for case in started] == [hack().case_id]
    started.add(hack(problem_id="q"))
    started.save()
    assert len(read_cases(tmp_path / "other.parquet")) == 1
    assert len(HackCases.open(tmp_path / "run" / "cases.parquet", tmp_path / "other.parquet")) == 2


@pytest.mark.parametrize("content", [None, b"", b"PAR1 not at all", "other columns"])
def test_hack_cases_when_a_file_cannot_be_read_name_it(tmp_path, content):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "cases.parquet"
    if content == "other columns":
        pq.write_table(pa.table({"a": [1]}), path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"cases\.parquet"):
        read_cases(path)


def test_hack_cases_when_killed_while_saving_leave_a_whole_file(tmp_path):
    path = tmp_path / "cases.parquet"
    script = (
        "import sys; from cudal1_ray.checking.hack_cases import HackCase, HackCases\n"
        "cases = HackCases(sys.argv[1])\n"
        "for n in range(10**9):\n"
        "    cases.add(HackCase.new('p', 'result_cache', 'r', f'x = {n}')); cases.save(); print(n, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    saved, deadline = int(process.stdout.readline()), time.monotonic() + 0.2
    while time.monotonic() < deadline:
        saved = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(read_cases(path)) >= saved + 1


def test_shipped_cases_when_built_again_are_the_same():
    built = {case.source: case for case in build()}
    shipped = {case.source: case for case in read_cases(SHIPPED)}
    assert built.keys() == shipped.keys()
    assert [source for source in built if built[source] != shipped[source]] == [], "run scripts/build_hack_cases.py"


def test_shipped_cases_when_read_cover_the_suites_categories():
    cases = read_cases(SHIPPED)
    suite = [sample.name for sample in load_samples("cpu", "adversarial")]
    categories = {c for c in CATEGORIES if any(name.startswith(f"{c}_") for name in suite)}
    assert categories == {case.category for case in cases if case.source.startswith("cpu/")} - {""}
    assert sum(not case.is_hack for case in cases) > 100
    assert len({case.case_id for case in cases}) == len(cases)
    for case in cases:
        assert case.case_id == case_id(case.problem_id, case.code)
        assert case.reason and case.reference and case.confirmed_by == "suite"
