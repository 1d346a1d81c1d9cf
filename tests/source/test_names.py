"""What a module binds at its top level, and what it takes from elsewhere."""

from __future__ import annotations

import pytest

from cudal1_ray.source.names import free_names, top_level_names
from cudal1_ray.source.parsing import parse


@pytest.mark.parametrize(
    "text, names",
    [
        ("import a.b, c as d\nfrom e import f", {"a", "d", "f"}),
        ("try:\n    import a\nexcept ImportError:\n    def a(): b = 1", {"a"}),
        ("if x:\n    class A:\n        b = 1\nelse:\n    (c, d), e[0] = 1", {"A", "c", "d"}),
        ("for a in b:\n    pass\nwith c as d:\n    while e := f():\n        pass", {"a", "d", "e"}),
    ],
)
def test_top_level_names_when_bound_in_statements_are_those_outside_functions_and_classes(text, names):
    assert top_level_names(parse(text)) == names


def test_free_names_when_a_function_uses_globals_are_those_that_nothing_binds():
    text = "import a\ndef f(b):\n    c = b\n    return a + c + d + len(e)\ntry: pass\nexcept E as g: g"
    assert free_names(parse(text)) == {"d", "e", "E"}
