"""JSON lines: what their one writer appends, and what readers beside it see."""

from __future__ import annotations

import json
import resource

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.files import (
    JsonLines,
    read_json_lines,
    read_last_json_line,
    repair_json_lines,
    salvage_json_lines,
)

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
@pytest.mark.parametrize("line, words", [("not json", "not JSON"), ("[2]", "no JSON object")])
def test_reading_when_a_whole_line_is_no_json_object_names_file_and_line(tmp_path, read, line, words):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n{{"b": 2}}\n')
    with pytest.raises(UserError, match=f"rows.jsonl, line 2: {words}"):
        read(path)
    assert path.read_text().count("\n") == 3


def test_salvage_json_lines_when_lines_are_damaged_gives_the_others_and_counts_them(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert salvage_json_lines(path) == ([], 0)
    path.write_bytes(b'{"a": 1}\nnot json\n[2]\n\n{"b": "\xff"}\n{"c": 3}')
    assert salvage_json_lines(path) == ([{"a": 1}, {"b": "\ufffd"}, {"c": 3}], 2)


def test_read_last_json_line_when_the_file_grows_gives_the_last_whole_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_last_json_line(path) == {}
    path.write_text('{"a": 1')
    assert read_last_json_line(path) == {}
    path.write_text("".join(json.dumps({"n": n, "pad": "x" * 300}) + "\n" for n in range(200)) + '{"n": 2')
    assert read_last_json_line(path)["n"] == 199


def test_append_when_the_file_may_not_grow_names_it_and_so_does_close(tmp_path):
    rows, limits = JsonLines(tmp_path / "rows.jsonl"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limits[1]))
    try:
        for write in (lambda: rows.append({"a": 1}), rows.close):
            with pytest.raises(OSError) as refused:
                write()
            assert refused.value.filename == str(tmp_path / "rows.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
