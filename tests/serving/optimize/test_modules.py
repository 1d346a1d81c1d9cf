"""A plain module becomes a problem by its syntax tree; the evaluator then finds it right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.errors import UserError
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.serving.optimize.examples import TensorExample, expression_of
from cudal1_ray.serving.optimize.modules import Arguments, complete_module

NET = '''\
"""Ours."""

import torch.nn as nn


class Block(nn.Module):
    def __init__(self, width):
        super(Block, self).__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)


class Net(nn.Module):  # the é one
    """Blocks."""

    def __init__(self, width, depth=2, act=nn.ReLU, *, bias=True):
        super(Net, self).__init__()
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.act = act()

    def forward(self, x, scale=1.0):
        return self.act(self.blocks(x)) * scale
'''
RIGHT = {"inputs": "randn(4, 8)", "init_inputs": "8"}


def complete(source=NET, class_name="", **texts: str) -> str:
    """Return a module completed with arguments as they are given in a shell."""
    arguments = {name: Arguments.parse(text, name) for name, text in texts.items()}
    return complete_module(source, class_name=class_name, **arguments)


def namespace_of(source: str) -> dict:
    """Return what the completed source defines. It is one of these tests', so it may run here."""
    space: dict = {"__name__": "module"}
    exec(compile(source, "module", "exec"), space)
    return space


def test_module_when_it_is_a_problem_stays_as_it_is():
    for problem in load_problems(ProblemsConfig())[:3]:
        assert complete_module(problem.source) == problem.source


def test_outermost_class_when_completed_becomes_the_model_and_keeps_its_text():
    completed = complete(inputs="randn(4, 8), scale=2", init_inputs="8, depth=3")
    assert completed.startswith(NET.replace("Net", "Model"))
    space = namespace_of(completed)
    model = space["Model"](*space["get_init_inputs"]())
    assert len(model.blocks) == 3 and model(*space["get_inputs"]()).shape == (4, 8)


@pytest.mark.parametrize(
    "arguments, lines",
    [
        (RIGHT, ("return [torch.randn(4, 8)]", "return [8]")),
        ({"inputs": "x=torch.ones(2, 8)", "init_inputs": "width=8, depth=1"}, ("[torch.ones(2, 8)]", "return [8, 1]")),
        (
            {"inputs": "randn(4, 8, dtype=float16)", "init_inputs": "8, act=nn.GELU, depth=1"},
            ("float16", "[8, 1, nn.GELU]"),
        ),
        ({"inputs": "[Block(2) for Block in (1,)]", "init_inputs": "(8)"}, ("[Block(2) for Block in (1,)]",)),
    ],
)
def test_arguments_when_given_by_position_or_name_are_completed(arguments, lines):
    completed = complete(**arguments)
    assert all(line in completed for line in lines), completed


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "no get_inputs.*example inputs"),
        ({"init_inputs": "8"}, "no get_inputs"),
        ({"inputs": "randn(4, 8)"}, "init_inputs.*'width' is missing"),
        (RIGHT | {"init_inputs": "8, 2, nn.ReLU, 4"}, "4 given, but Net.__init__ takes"),
        (RIGHT | {"init_inputs": "8, act=nn.ReLU, colour=1"}, "'colour' is none of them"),
        (RIGHT | {"init_inputs": "8, width=9"}, "'width' is there already"),
        (RIGHT | {"init_inputs": "8, bias=False"}, "'bias' is none of them"),
        (RIGHT | {"inputs": "randn(4, 8), 1, 2"}, r"3 given, but Net.forward takes \(x, scale=...\)"),
        (RIGHT | {"inputs": "rndn(4, 8)"}, "'rndn' is not defined"),
        (RIGHT | {"inputs": "randn(4, 8"}, "like the arguments of a call"),
        (RIGHT | {"inputs": "*[1]"}, "without"),
        (RIGHT | {"inputs": "1) + f(2"}, "like the arguments of a call"),
        (RIGHT | {"inputs": "(yield)"}, "without yield"),
        (RIGHT | {"class_name": "Missing"}, "no top-level class 'Missing'; there are Block, Net"),
        (RIGHT | {"source": NET + "\n\nclass Other(Net):\n    pass\n"}, None),
        (RIGHT | {"source": NET + "\n\nclass Other(nn.Module):\n    pass\n"}, "which class is meant: Net, Other"),
        (
            RIGHT | {"source": NET + "\n\nclass Other(nn.Module):\n    pass\n", "class_name": "Other"},
            "Other has no forward",
        ),
        (RIGHT | {"source": NET + "\nModel = 3\n"}, "'Model' means something else"),
        (RIGHT | {"source": NET + "\nNet = 3\n"}, "'Net' means something else"),
        (RIGHT | {"source": NET + "\ndef get_inputs():\n    return []\n"}, "has get_inputs.. already"),
        (RIGHT | {"source": "x = 1"}, "no top-level class that is an nn.Module"),
        (RIGHT | {"source": "class Net(:"}, "not valid Python, line 1"),
        (RIGHT | {"source": "(" * 60000}, "not valid Python"),
        (RIGHT | {"source": "-" * 60000 + "1"}, "not valid Python"),
        (RIGHT | {"source": "a" + ".a" * 30000}, "not valid Python"),
        (RIGHT | {"source": "\x00"}, "not valid Python"),
    ],
)
def test_arguments_when_they_do_not_fit_are_named(arguments, message):
    if message is None:
        assert "class Model(Net)" in complete(**arguments)
        return
    with pytest.raises(UserError, match=message):
        complete(**arguments)


def test_module_when_it_has_one_of_the_functions_gets_the_other():
    source = NET + "\n\ndef get_init_inputs():\n    return [8]\n"
    completed = complete(source, inputs="randn(4, 8)")
    assert completed.count("def get_init_inputs") == 1 and namespace_of(completed)["get_inputs"]()[0].shape == (4, 8)


@pytest.mark.parametrize(
    "example, message",
    [
        (TensorExample((-1,)), "shape"),
        (TensorExample((1,) * 9), "shape"),
        (TensorExample((2**20, 2**20)), "elements"),
        (TensorExample((2,), "int64"), "wants high"),
        (TensorExample((2,), "int8", 0, 200), "high=200"),
        (TensorExample((2,), "float32", 1.0, 1.0), "below"),
        (TensorExample((2,), "float32", float("nan"), 1.0), "finite"),
        (TensorExample((2,), "float8"), "float8"),
        ("", "expression"),
        ("x" * 3000, "expression"),
    ],
)
def test_example_when_it_makes_no_tensor_is_named(example, message):
    with pytest.raises(UserError, match=message):
        expression_of(example, "inputs[0]")


SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
TENSORS = st.one_of(
    st.builds(
        TensorExample, SHAPES, st.sampled_from(["float16", "bfloat16", "float32", "float64", "complex64", "bool"])
    ),
    st.builds(TensorExample, SHAPES, st.sampled_from(["float32", "float64"]), st.floats(-9, 0), st.floats(0.5, 9)),
    st.builds(
        TensorExample, SHAPES, st.sampled_from(["int8", "int32", "int64"]), st.integers(-128, 0), st.integers(1, 128)
    ),
)


@settings(max_examples=60, deadline=None)
@given(TENSORS)
def test_example_when_turned_into_an_expression_has_its_shape_and_type(example):
    import torch

    tensor = eval(expression_of(example, "inputs[0]"), {"torch": torch})
    assert tuple(tensor.shape) == example.shape and str(tensor.dtype) == f"torch.{example.dtype}"
    if example.high is not None and tensor.numel():
        lowest, highest = tensor.min().item(), tensor.max().item()  # an int8 of 27 is not below an int8 of 128
        assert example.low <= lowest and highest <= example.high


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.from_regex(r"[(\[{:=.,'\"a-z0-9 \n*@-]{0,80}", fullmatch=True))
def test_module_when_its_text_is_arbitrary_is_completed_or_refused(text):
    for arguments in ({"source": text, "inputs": "1"}, RIGHT | {"inputs": text}, RIGHT | {"init_inputs": text}):
        try:
            compile(complete(**arguments), "module", "exec", dont_inherit=True)
        except UserError as error:
            assert str(error)
