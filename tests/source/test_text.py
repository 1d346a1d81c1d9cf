"""Places in a text are bytes, and lines end where Python ends them."""

from __future__ import annotations

import pytest

from cudal1_ray.source.parsing import parse
from cudal1_ray.source.text import decode_source, line_starts, split_docstring


@pytest.mark.parametrize("text", ["a = 1\nb = 2\n", "a = 1\r\nb = 2", "ä = 1\rb = 2\n", "'\x0c\u2028'\nb = 2"])
def test_line_starts_when_lines_end_in_any_way_are_the_places_of_the_tree(text):
    node, starts = parse(text).body[1], line_starts(text.encode())
    assert text.encode()[starts[node.lineno - 1] + node.col_offset :].strip() == b"b = 2"


@pytest.mark.parametrize(
    "text, parts", [('"""One.\n\n    Two."""\nx = 1\n', ("One.\n\nTwo.", "x = 1\n")), ("x = 1\n", ("", "x = 1\n"))]
)
def test_split_docstring_when_there_is_one_or_none_returns_it_and_the_rest(text, parts):
    assert split_docstring(text, parse(text)) == parts


@pytest.mark.parametrize(
    "data", [b"# coding: hex\n", b"# coding: klingon\n", b"# \xe9\n", b"\n\n# \xe9\n", "x = 1".encode("utf-16")]
)
def test_decode_source_when_bytes_are_no_text_names_the_way_out(data):
    with pytest.raises(ValueError, match="save it as UTF-8"):
        decode_source(data)
