"""What a module binds at its top level, what it takes from elsewhere, and which scope binds a name."""

from __future__ import annotations

import ast

import pytest

from cudal1_ray.source.names import Names, ScopeNames, free_names, top_level_names
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


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("def f(x=x, *, y: x = x): return x", "Module Module Module FunctionDef"),
        ("@x\ndef f(x): x", "Module FunctionDef"),
        ("class A(x, y=x): x = x", "Module Module ClassDef ClassDef"),
        ("class A:\n  def f(self):\n    global x\n    x = x", "Module Module"),
        ("def f(x):\n  def g():\n    nonlocal x\n    x = x", "FunctionDef FunctionDef"),
    ],
)
@pytest.mark.parametrize("reader", [Names, ScopeNames])
def test_binder_when_a_name_is_bound_in_two_scopes_is_the_scope_that_python_takes(reader, text, kinds):
    names = reader(parse(f"x = 1\n{text}"))
    uses = [node for node in ast.walk(names.tree) if isinstance(node, ast.Name) and node.id == "x"]
    uses.sort(key=lambda node: (node.lineno, node.col_offset))
    assert [type(names.binder(node)).__name__ for node in uses[1:]] == kinds.split()


def test_binder_when_a_comprehension_binds_a_name_is_the_comprehension():
    names = ScopeNames(parse("def f(x): return [x for x in x if (y := [x for z in x])] + [x, y, z]"))
    uses = [node for node in ast.walk(names.tree) if isinstance(node, ast.Name)]
    uses.sort(key=lambda node: node.col_offset)
    kinds = [(node.id, type(names.binder(node)).__name__) for node in uses]
    inner, outer = "ListComp", "FunctionDef"
    expected = [("x", inner), ("x", inner), ("x", outer), ("y", outer), ("x", inner), ("z", inner), ("x", inner)]
    assert kinds == [*expected, ("x", outer), ("y", outer), ("z", "NoneType")]
