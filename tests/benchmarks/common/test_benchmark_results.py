"""What benchmarks write and read: whole files by subject, without the folders of a machine; the newest."""

from __future__ import annotations

import json
import re
import sys

import pytest

from benchmarks.common import results
from benchmarks.common.results import latest_result, write_result
from cudal1_ray.errors import UserError


def test_a_result_when_written_keeps_files_names_and_routes_but_no_folders(tmp_path):
    path = tmp_path / "subject" / "result.json"
    result = {
        "arguments": ["--out", str(tmp_path / "out.json")],
        "command": f"cudal1 train name=kb policy.path={tmp_path}/models/qwen {tmp_path}/more",
        "route": "/v1/chat/completions",
        "runs": {"share": 0.5},
    }
    write_result(path, result | {"config": {"path": f"{tmp_path}/problems.parquet", "text": "/ is a sign"}})
    content = json.loads(path.read_text())
    assert content.pop("written") and content.pop("environment")["processor"]
    assert content.pop("benchmark") == "subject" and re.fullmatch("[0-9a-f]{7}|unknown", content.pop("commit"))
    assert content == {
        "arguments": ["--out", "out.json"],
        "command": "cudal1 train name=kb policy.path=qwen more",
        "route": "/v1/chat/completions",
        "runs": {"share": 0.5},
        "config": {"path": "problems.parquet", "text": "/ is a sign"},
    }


def test_a_result_when_it_does_not_say_how_it_was_made_gets_the_command_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/x.py", "--out", f"{tmp_path}/file.json"])
    write_result(tmp_path / "subject" / "result.json", {"commit": "abc1234", "environment": {"cpus": 2}})
    content = json.loads((tmp_path / "subject" / "result.json").read_text())
    assert content["command"].endswith(" --out file.json")
    assert content["commit"] == "abc1234" and content["environment"] == {"cpus": 2}


def test_latest_result_when_two_are_of_one_day_is_the_one_written_last(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "subject").mkdir()
    for name, written in (
        ("2026-11-27-cpu-aaaaaaa", "2026-11-27T09:00:00+00:00"),
        ("2026-11-27-cpu-bbbbbbb", "2026-11-27T08:00:00+00:00"),
        ("2026-11-26-cpu-ccccccc", "2026-11-28T08:00:00+00:00"),
    ):
        (tmp_path / "subject" / f"{name}.json").write_text(json.dumps({"written": written}))
    assert latest_result("subject").stem == "2026-11-27-cpu-aaaaaaa"
    (tmp_path / "subject" / "2026-11-28-cpu-ddddddd.json").write_text("{}")  # of before results had a time
    (tmp_path / "subject" / "2026-11-28-cpu-eeeeeee.json").write_text("{}")
    assert latest_result("subject").stem == "2026-11-28-cpu-eeeeeee"


def test_latest_result_when_a_key_is_asked_for_is_the_newest_that_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "subject").mkdir()
    (tmp_path / "subject" / "2026-11-26-cpu-aaaaaaa.json").write_text('{"other_way_s": 3.0}')
    (tmp_path / "subject" / "2026-11-27-cpu-bbbbbbb.json").write_text("{}")
    assert latest_result("subject", "cpu", "other_way_s").stem == "2026-11-26-cpu-aaaaaaa"
    with pytest.raises(UserError, match="no result on cpu with builds_s"):
        latest_result("subject", "cpu", "builds_s")
