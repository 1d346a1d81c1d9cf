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


def test_identity_when_formatting_comments_or_docstrings_differ_is_the_same():
    assert normalise_code(PLAIN) == normalise_code(DRESSED)
    assert exemplar_id("p", PLAIN) == exemplar_id("p", DRESSED)


@pytest.mark.parametrize("other", [PLAIN.replace("+ 1", "+ 2"), PLAIN.replace("x", "y"), PLAIN + "\ny = 'x  # x'\n"])
def test_identity_when_the_program_differs_is_another(other):
    assert exemplar_id("p", PLAIN) != exemplar_id("p", other)


def test_identity_when_comments_in_cuda_source_differ_is_another():
    assert normalise_code('s = """// a\nint x;"""') != normalise_code('s = """// b\nint x;"""')


def test_identity_when_the_problem_differs_is_another():
    assert exemplar_id("p", PLAIN) != exemplar_id("q", PLAIN)


def test_normal_form_when_a_body_is_a_docstring_is_valid():
    compile(normalise_code('def f():\n    """only this"""\n'), "f", "exec")
    assert normalise_code('def f():\n    "only"') == normalise_code("def f():\n    pass")


def test_normal_form_when_text_is_not_python_is_stripped():
    assert normalise_code("  class (:\n") == "class (:"
    assert normalise_code("x = '\0'") == "x = '\0'"
    assert normalise_code(" º") == normalise_code("º") == "o"  # an indented line is Python, too, once it is stripped
    assert normalise_code("(" * 3000) == "(" * 3000


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=200))  # lone surrogates too
def test_identity_when_text_is_arbitrary_exists(text):
    assert exemplar_id("p", text) == exemplar_id("p", normalise_code(text))
    assert len(exemplar_id("p", text)) == 20


def test_exemplar_when_new_has_its_identity():
    assert Exemplar.new("p", PLAIN, 1.5, step=3).exemplar_id == exemplar_id("p", PLAIN)


def test_configuration_and_identity_when_imported_load_no_heavy_package():
    code = (
        "import sys, cudal1_ray.exemplars.config, cudal1_ray.prompting.config, cudal1_ray.rewards.config\n"
        "from cudal1_ray.exemplars import exemplar_id\n"
        "heavy = {'numpy', 'pyarrow', 'jinja2', 'torch', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
