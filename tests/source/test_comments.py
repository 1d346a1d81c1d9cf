"""Leaving out comments must not change a program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.problems import load_corpus
from cudal1_ray.source.comments import strip_comments
from cudal1_ray.source.normal_form import normalise_code

SOURCE = '''"""Module."""
import torch  # import


# about the source
source = """
// a comment of CUDA, # and this is no Python comment

__global__ void f() {}
"""


class ModelNew(torch.nn.Module):
    """Class,
    of two lines.
    """

    def forward(self, x):
        """Function."""
        s = "# no comment"  # a comment

        return x + \\
            1

    def only(self):
        """Nothing but this."""
'''
STRIPPED = '''import torch
source = """
// a comment of CUDA, # and this is no Python comment

__global__ void f() {}
"""
class ModelNew(torch.nn.Module):
    def forward(self, x):
        s = "# no comment"
        return x + \\
            1
    def only(self):
        pass
'''


def test_strip_comments_when_applied_removes_comments_docstrings_and_blank_lines_only():
    assert strip_comments(SOURCE) == STRIPPED


def test_strip_comments_when_applied_keeps_the_program():
    assert normalise_code(STRIPPED) == normalise_code(SOURCE)


@pytest.mark.parametrize(
    "code",
    [
        "x = (",
        "def f(:\n",
        "x = '\0'",
        "if x:\n\ty = 1\n        z = 2\n",
        "x = '''never closed",
        "\ufeffx = 1",
        "",
        "# only",
        "'docstring'",
        "x = 1; 'd'; y = 2 # c",
        "def f(): 'd'",
        "def f():\n  'd'; return 1\n",
        "class A:\n  x = 'é' # ü\n  'not a docstring'\n",
        "f'''{x # }\n}'''",
        "x = 1\r\n# c\r\ny = 2\r\n",
        "x = 1\r# c\ry = 2",
        "x = 1\x0c\n\x0c# c\ny = 2",
    ],
)
def test_strip_comments_when_a_source_is_odd_keeps_its_meaning(code):
    assert normalise_code(strip_comments(code)) == normalise_code(code)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "x = 1",
                "# c",
                "",
                "def f():",
                "    'd'",
                "    return 1  # c",
                "'''",
                "s = '''# a",
                "\\",
                "class A:",
                "  ",
            ]
        ),
        max_size=12,
    ).map("\n".join)
)
def test_strip_comments_when_lines_are_arranged_arbitrarily_keeps_their_meaning(code):
    assert normalise_code(strip_comments(code)) == normalise_code(code)


def test_strip_comments_when_applied_to_the_corpus_keeps_its_meaning():
    for entry in load_corpus():
        stripped = strip_comments(entry.code)
        assert normalise_code(stripped) == normalise_code(entry.code)
        assert len(stripped) <= len(entry.code)
