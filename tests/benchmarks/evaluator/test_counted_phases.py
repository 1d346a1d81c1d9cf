"""The benchmark of phases counts functions by name: they are there, or a window on a GPU would show it first."""

from __future__ import annotations

import pytest

from benchmarks.evaluator.phases import COUNTED


@pytest.mark.parametrize("label", COUNTED)
def test_a_counted_phase_is_a_function_of_its_owner(label):
    owner, name = COUNTED[label]
    assert callable(getattr(owner, name, None)), f"{owner.__name__} has no {name}"
