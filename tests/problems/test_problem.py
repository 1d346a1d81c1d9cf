"""Parsing a problem: what is accepted, what is refused, and that nothing in it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.problems import parse_problem

INPUTS = "def get_inputs():\n    return []\n\n\ndef get_init_inputs():\n    return []\n"
MODEL = "class Model:\n    pass\n\n\n"
VALID = MODEL + INPUTS


def test_problem_when_parsed_keeps_its_text_and_labels():
    problem = parse_problem(VALID, "p1", origin="here", family="f", level=2, split="held_out")
    assert (problem.problem_id, problem.source, problem.name) == ("p1", VALID, "p1")
    assert (problem.family, problem.level, problem.held_out) == ("f", 2, True)


def test_problem_source_when_parsed_is_not_run(tmp_path):
    mark = tmp_path / "ran"
    parse_problem(f"open({str(mark)!r}, 'w')\nraise SystemExit\n{VALID}", "p1", origin="here")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (INPUTS, "class `Model`"),
        ("class ModelNew:\n    pass\n" + INPUTS, "class `Model`"),
        ("def f():\n    class Model:\n        pass\n" + INPUTS, "class `Model`"),
        (MODEL, "`get_inputs()`"),
        (VALID.replace("get_init_inputs", "other"), "`get_init_inputs()`"),
        (VALID.replace("get_inputs()", "get_inputs(n)"), "`get_inputs` is called without arguments"),
        (VALID.replace("get_inputs()", "get_inputs(*, n)"), "`get_inputs` is called without arguments"),
        (VALID + "x = (", "not valid Python, line 11"),
        (VALID + "x = '\0'", "not valid Python"),
    ],
)
def test_problem_file_when_it_is_none_is_named(source, says):
    with pytest.raises(UserError) as caught:
        parse_problem(source, "p1", origin="folder/file.py")
    message = str(caught.value)
    assert message.startswith("folder/file.py: ") and says in message and "\n" not in message


def test_get_inputs_when_it_has_default_arguments_is_allowed():
    parse_problem(VALID.replace("get_inputs()", "get_inputs(n=1, *, m=2)"), "p1", origin="here")


@pytest.mark.parametrize("problem_id", ["", "a b", "../up", "a/b", ".hidden", "x" * 121])
def test_problem_id_when_it_is_no_file_name_is_refused(problem_id):
    with pytest.raises(UserError, match="here: problem id"):
        parse_problem(VALID, problem_id, origin="here")


def test_split_when_unknown_is_refused():
    with pytest.raises(UserError, match="split 'test'"):
        parse_problem(VALID, "p1", origin="here", split="test")


def test_problems_package_when_imported_loads_no_torch():
    code = "import sys, cudal1_ray.problems; sys.exit('torch' in sys.modules or 'pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_byte_order_mark_when_at_the_head_is_no_part_of_the_source():
    assert parse_problem("\ufeff" + VALID, "p").source == VALID
