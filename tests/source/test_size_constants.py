"""Integers that only a problem's inputs depend on are found, and rewritten without another byte."""

from __future__ import annotations

from cudal1_ray.source.size_constants import rewrite, size_constants
from tests.problems.sized_sources import SCALE

CONVOLUTION = """
import torch

class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3)

    def forward(self, x):
        return self.conv(x)

batch_size = 128 * 4  # images
channels = 64
height = width = 256

def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]

def get_init_inputs():
    return [channels]
"""


def test_size_constants_when_read_are_those_of_inputs_alone():
    sizes = {name: constant.value for name, constant in size_constants(CONVOLUTION).items()}
    assert sizes == {"batch_size": 512, "height": 256}


def test_size_constants_when_unpacked_or_in_a_tuple_are_found():
    source = SCALE.format(constants="a, b = 8, 4\nshape = (32, 2 * 3)", shape="a, *shape", other="a, 1, b")
    sizes = {name: constant.value for name, constant in size_constants(source).items()}
    assert sizes == {"a": 8, "b": 4, "shape[0]": 32, "shape[1]": 6}


def test_size_constants_when_the_model_depends_on_them_are_left_out():
    source = SCALE.format(constants="n = 8\nm = 4\nlimit = m\nk = 2\nk = 3", shape="n, m, k", other="n, 1, 1")
    assert set(size_constants(source.replace("x * y", "x[:, :limit] * y"))) == {"n"}


def test_rewrite_when_applied_changes_only_the_values():
    text = rewrite(CONVOLUTION, {"batch_size": 2, "height": 32})
    assert text == CONVOLUTION.replace("128 * 4", "2").replace("= 256", "= 32")


def test_rewrite_when_text_is_beyond_ascii_keeps_every_other_byte():
    source = SCALE.format(constants="größe = 8; n = 4  # Länge", shape="größe, n", other="größe, 1")
    assert rewrite(source, {"größe": 16, "n": 2}) == source.replace("= 8", "= 16").replace("= 4", "= 2")
