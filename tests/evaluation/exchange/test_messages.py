"""A contestant's description of its outputs is checked before it is used."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ray.evaluation.exchange.messages import Fetch, read_answer


@pytest.mark.parametrize(
    "data",
    [None, [], ["float32", [2], [], 0], ["float99", [2], [], 0, 8, "cpu"], ["float32", [-1], [], 0, 8,
    "cpu"],
     ["float32", [2], [1, 1], 0, 8, "cpu"], ["float32", [2], [], 1 << 60, 8, "cpu"],
     ["float32", [True], [], 0, 8, "cpu"], ["float32", [1.5], [], 0, 8, "cpu"]],
)  # fmt: skip
def test_description_when_a_contestant_sends_a_false_one_is_refused(data):
    answer = {"structure": "T", "tensors": [data], "shapes": [[2]]}
    with pytest.raises(ValueError):
        read_answer(msgspec.json.encode(answer), Fetch(0, None))
