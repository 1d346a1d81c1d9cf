"""A contestant's description of its outputs is checked before it is used."""

from __future__ import annotations

import msgspec
import pytest

from cudal1_ray.evaluation.exchange.messages import Build, Fetch, read_answer


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


@pytest.mark.parametrize("key", ["../../../etc/0123456789abcdef", "0123456789abcdef\n", "0123", "0123456789ABCDEF"])
def test_build_key_when_it_is_no_hash_is_refused(key):
    request = Build("", "", "")
    assert read_answer(msgspec.json.encode([[["0123456789abcdef", 0, 1]], []]), request)
    with pytest.raises(ValueError):
        read_answer(msgspec.json.encode([[[key, 0, 1]], []]), request)
    with pytest.raises(ValueError):
        read_answer(msgspec.json.encode([[], [[key, "error"]]]), request)
