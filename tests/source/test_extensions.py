"""C++ flags of an extension are read from the text that names them."""

from __future__ import annotations

import pytest

from cudal1_ray.source.extensions import flags_of


@pytest.mark.parametrize(
    "arguments, flags",
    [
        ("name='f', cpp_sources=S", ()),
        ("'f', S, extra_cflags=['-O3', '-march=native']", ("-O3", "-march=native")),
        ("'f', S, extra_cflags=['-include', 'x.h']", None),
        ("'f', S, extra_cflags=FLAGS", None),
        ("'f', S, no_implicit_headers=True", None),
    ],
)
def test_header_flags_when_read_are_those_written_out_and_harmless(arguments, flags):
    assert flags_of(f"import torch.utils.cpp_extension as c\nm = c.load_inline({arguments})") == flags
