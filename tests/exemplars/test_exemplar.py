"""The identity of a candidate: what makes two of them the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.exemplars import Exemplar, exemplar_id
from cudal1_ray.source.normal_form import normalise_code

PLAIN = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""
DRESSED = '''
"""A module."""
import torch  # the library


class ModelNew( torch.nn.Module ):
    """A class."""
    # a comment
    def forward(self,x):
        """A function."""

        return (x+1)
'''


def test_formatting_comments_and_docstrings_do_not_matter():
    assert normalise_code(PLAIN) == normalise_code(DRESSED)
    assert exemplar_id("p", PLAIN) == exemplar_id("p", DRESSED)


@pytest.mark.parametrize("other", [PLAIN.replace("+ 1", "+ 2"), PLAIN.replace("x", "y"), PLAIN + "\ny = 'x  # x'\n"])
def test_another_program_is_another_candidate(other):
    assert exemplar_id("p", PLAIN) != exemplar_id("p", other)


def test_comments_inside_cuda_source_are_part_of_the_program():
    assert normalise_code('s = """// a\nint x;"""') != normalise_code('s = """// b\nint x;"""')


def test_the_same_code_of_another_problem_is_another_exemplar():
    assert exemplar_id("p", PLAIN) != exemplar_id("q", PLAIN)


def test_a_body_of_docstring_only_stays_valid():
    compile(normalise_code('def f():\n    """only this"""\n'), "f", "exec")
    assert normalise_code('def f():\n    "only"') == normalise_code("def f():\n    pass")


def test_text_that_is_not_python_is_compared_stripped():
    assert normalise_code("  class (:\n") == "class (:"
    assert normalise_code("x = '\0'") == "x = '\0'"
    assert normalise_code(" º") == normalise_code("º") == "o"  # an indented line is Python, too, once it is stripped
    assert normalise_code("(" * 3000) == "(" * 3000


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=200))  # lone surrogates too
def test_any_text_has_an_identity(text):
    assert exemplar_id("p", text) == exemplar_id("p", normalise_code(text))
    assert len(exemplar_id("p", text)) == 20


def test_new_fills_in_the_identity():
    assert Exemplar.new("p", PLAIN, 1.5, step=3).exemplar_id == exemplar_id("p", PLAIN)


def test_configuration_and_identity_need_no_heavy_import():
    code = (
        "import sys, cudal1_ray.exemplars.config, cudal1_ray.prompting.config, cudal1_ray.rewards.config\n"
        "from cudal1_ray.exemplars import exemplar_id\n"
        "heavy = {'numpy', 'pyarrow', 'jinja2', 'torch', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
