"""JSON lines: what their one writer appends, and what readers beside it see."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.files import JsonLines, read_json_lines, repair_json_lines

TORN = b'{"a": 1}\n{"b": "\xc2\x85"}\n\n{"c": 3'  # U+0085 ends a line for str.splitlines, not for JSON lines


@pytest.fixture
def torn(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(TORN)
    return path


def test_read_json_lines_when_the_last_line_is_torn_leaves_it_out_and_the_file_alone(torn):
    assert read_json_lines(torn) == [{"a": 1}, {"b": "\x85"}]
    assert torn.read_bytes() == TORN


def test_read_json_lines_when_there_is_no_file_makes_none(tmp_path):
    assert read_json_lines(tmp_path / "none.jsonl") == [] and list(tmp_path.iterdir()) == []


def test_repair_json_lines_when_the_last_line_is_torn_cuts_it_off(torn):
    assert repair_json_lines(torn) == [{"a": 1}, {"b": "\x85"}]
    assert torn.read_bytes() == TORN[: TORN.rindex(b"\n") + 1]


def test_json_lines_when_opened_after_a_kill_goes_on_behind_the_whole_lines(torn):
    lines = JsonLines(torn)
    lines.append({"d": 4})
    assert list(lines) == read_json_lines(torn) == [{"a": 1}, {"b": "\x85"}, {"d": 4}]
    lines.keep([{"e": 5}])
    lines.extend([{"f": 6}])
    assert read_json_lines(torn) == [{"e": 5}, {"f": 6}] and len(lines) == 2


@pytest.mark.parametrize("read", [read_json_lines, repair_json_lines, JsonLines])
def test_reading_when_a_whole_line_is_no_json_names_file_and_line(tmp_path, read):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\nnot json\n{"b": 2}\n')
    with pytest.raises(UserError, match="rows.jsonl, line 2: not JSON"):
        read(path)
    assert path.read_text().count("\n") == 3
