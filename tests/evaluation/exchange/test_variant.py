"""Inputs made by recipe: a contestant makes what the referee meant, and the referee knows what must come back."""

from __future__ import annotations

import random

import msgspec
import pytest
import torch

from cudal1_ray.evaluation.exchange.channel import SharedRegion
from cudal1_ray.evaluation.exchange.tensors import WINDOW, Region, Row, TensorSpec
from cudal1_ray.evaluation.exchange.variant import Variant
from cudal1_ray.evaluation.inside.cpu_device import CpuDevice


@pytest.fixture
def pool():
    region = SharedRegion(1 << 22, others_read_only=False)
    yield region
    region.close()


def place(pool: SharedRegion, *tensors: torch.Tensor) -> tuple[TensorSpec, ...]:
    writer = Region(pool.fd, pool.size, writable=True)
    row = Row(writer)
    specs = tuple(row.put(tensor) for tensor in tensors)
    writer.close()
    return specs


@pytest.mark.parametrize("cut", [0, 1, 7, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_inputs_when_a_contestant_makes_them_are_those_of_the_referee(pool, cut, dtype):
    values = (torch.arange(24) % 5).to(dtype).reshape(4, 6)
    specs = place(pool, values)
    variant = Variant(specs, (cut,), lasting=True)
    reader = Region(pool.fd, pool.size, writable=False)
    (tensor,) = CpuDevice(1).inputs(reader, msgspec.json.decode(msgspec.json.encode(variant), type=Variant))
    assert torch.equal(tensor, values.reshape(-1).roll(-cut).reshape(4, 6)) and tensor.dtype == dtype
    assert tensor.reshape(-1).view(torch.uint8).numpy().tobytes() == variant.values(pool.memory, 0, None)
    reader.close()


def test_factor_when_applied_changes_floats_only(pool):
    floats, integers = torch.randn(50), torch.arange(50)
    variant = Variant(place(pool, floats, integers), (0, 0), factor=1.25)
    reader = Region(pool.fd, pool.size, writable=False)
    inputs = CpuDevice(1).inputs(reader, variant)
    assert torch.equal(inputs[0], floats * 1.25) and torch.equal(inputs[1], integers)
    assert inputs[0].view(torch.uint8).numpy().tobytes() == variant.values(pool.memory, 0, [0.5])
    reader.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_sets_when_two_are_mixed_are_turned_and_joined(pool, dtype):
    sets = [(torch.randn(4, 9).to(dtype), torch.arange(36), torch.randn(9, 4).to(dtype).t()) for _ in range(2)]
    flat = [tensor if tensor.is_contiguous() else tensor.t() for s in sets for tensor in s]  # in the order of memory
    specs = list(place(pool, *flat))
    for number in (2, 5):  # the third tensor keeps its own layout
        old = specs[number]
        specs[number] = TensorSpec(old.dtype, (4, 9), (1, 4), old.offset, old.nbytes)
    variant = Variant(tuple(specs[:3]), (5, 7, 0), 1.0, True, tuple(specs[3:]), (11, 1, 0), 0.75)
    reader = Region(pool.fd, pool.size, writable=False)
    mixed = CpuDevice(1).inputs(reader, msgspec.json.decode(msgspec.json.encode(variant), type=Variant))
    first, second = (s[0].reshape(-1).roll(-cut).reshape(4, 9) for s, cut in zip(sets, (5, 11), strict=True))
    assert torch.allclose(mixed[0], torch.lerp(first, second, 0.75))
    whole = torch.arange(36)  # a quarter is the first set's, the rest the second's
    assert torch.equal(mixed[1], torch.cat([whole.roll(-7)[:9], whole.roll(-1)[9:]]))
    assert torch.allclose(mixed[2], torch.lerp(sets[0][2], sets[1][2], 0.75))
    for number, tensor in enumerate(mixed):
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert not variant.changed(pool.memory, number, None, data)
    wide = mixed[0].double()
    digits, other = (wide * (1 + torch.finfo(dtype).eps)).to(dtype), (wide + 0.5).to(dtype)
    for tensor, is_other in ((digits, False), (other, True)):  # another device may round differently
        assert variant.changed(pool.memory, 0, None, tensor.view(torch.uint8).numpy().tobytes()) is is_other
    assert variant.changed(pool.memory, 1, None, (mixed[1] + 1).view(torch.uint8).numpy().tobytes())
    assert variant.changed(pool.memory, 0, None, b"")
    reader.close()


def test_windows_when_an_input_is_large_are_those_that_come_back(pool):
    values = torch.randn(8 * WINDOW + 777)
    picks, device = [random.Random(3).random() for _ in range(5)], CpuDevice(1)
    variant = Variant(place(pool, values), (len(values) - 12345,))
    reader = Region(pool.fd, pool.size, writable=False)
    (tensor,) = device.inputs(reader, variant)
    back = device.dense(tensor, picks)
    assert back.shape == (5 * WINDOW,)
    assert back.view(torch.uint8).numpy().tobytes() == variant.values(pool.memory, 0, picks)
    tensor[int(picks[2] * (len(values) - WINDOW)) + 5] += 1
    assert device.dense(tensor, picks).view(torch.uint8).numpy().tobytes() != variant.values(pool.memory, 0, picks)
    reader.close()
