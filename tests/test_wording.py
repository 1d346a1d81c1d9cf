"""A number and its noun agree."""

from __future__ import annotations

import pytest

from cudal1_ray.wording import counted


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (1000, "1,000 rounds"), (2**20, "1,048,576 rounds")],
)
def test_noun_when_counted_is_in_the_plural_unless_there_is_one(number, text):
    assert counted(number, "round") == text
