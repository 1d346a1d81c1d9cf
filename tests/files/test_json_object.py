"""One JSON object in a file: what is none is named by its file."""

from __future__ import annotations

import pytest

from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_object


def test_object_when_a_file_holds_one_is_returned(tmp_path):
    file = tmp_path / "one.json"
    file.write_text('{"a": [1]}')
    assert read_json_object(file) == {"a": [1]}


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe{}", b"[" * 100_000])
def test_object_when_a_file_is_no_json_is_refused_by_its_name(tmp_path, content):
    file = tmp_path / "one.json"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"one\.json: cannot be read as JSON"):
        read_json_object(file)


@pytest.mark.parametrize("content", ["[1]", "null", '"text"', "1"])
def test_object_when_a_file_holds_another_value_is_refused_by_its_name(tmp_path, content):
    file = tmp_path / "copy.json"
    file.write_text(content)
    with pytest.raises(UserError, match="theirs.json: holds no JSON object"):
        read_json_object(file, tmp_path / "theirs.json")


def test_object_when_there_is_no_file_or_a_folder_is_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_json_object(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        read_json_object(tmp_path)
