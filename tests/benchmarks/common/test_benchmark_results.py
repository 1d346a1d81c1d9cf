"""What benchmarks write and read: whole files of one form by subject, without the folders of a machine; the newest."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.common import results
from benchmarks.common.results import FOLDER, NAME, deviations, latest_result, read_result, write_result
from cudal1_ray.errors import UserError


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*/*.json")), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_result_when_stored_has_the_form_its_subject_and_its_commit(file):
    content = json.loads(file.read_text(encoding="utf-8"))
    assert deviations(content) == [] and content["benchmark"] == file.parent.name
    assert (name := NAME.fullmatch(file.stem)) and name["commit"] in content["commit"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": "a GPU"}, "machine: no key of a result"),
        ({"metrics": {}}, "metrics: needs a dict"),
        ({"command": None}, "command: needs a str"),
        ({"environment": "two GPUs"}, "environment: needs a dict"),
        ({"note": ""}, "note: needs a str"),
    ],
)
def test_result_when_it_has_another_form_is_refused_by_key(tmp_path, change, message):
    write_result(path := tmp_path / "result.json", {"share": 0.5}, {})
    content = read_result(path)
    path.write_text(json.dumps(content | change))
    with pytest.raises(UserError, match=f"result.json: {message}"):
        read_result(path)
    path.write_text(json.dumps({"benchmark": "subject"}))
    with pytest.raises(UserError, match="commit: missing; command: missing"):
        read_result(path)
    assert deviations(content | {"configuration": "not recorded", "environment": "not recorded", "note": "x"}) == []


def test_a_result_when_written_keeps_files_names_and_routes_but_no_folders(tmp_path):
    path = tmp_path / "subject" / "result.json"
    configuration = {
        "out": tmp_path / "out.json",
        "rows": slice(0, 250, 5),
        "overrides": (f"policy.path={tmp_path}/models/qwen",),
    }
    metrics = {"route": "/v1/chat/completions", "share": 0.5, "text": f"/ is a sign, {tmp_path}/problems.parquet not"}
    metrics["quoted"] = f'File "{tmp_path}/candidate.py", line 3 ({tmp_path}/other.py)'
    write_result(path, metrics, configuration, command=f"cudal1 train {tmp_path}/models/qwen {tmp_path}/more", note="")
    content = read_result(path)
    assert content["benchmark"] == "subject" and content["environment"]["processor"] and "note" not in content
    assert content["command"] == "cudal1 train qwen more"
    assert content["configuration"] == {
        "out": "out.json", "rows": "slice(0, 250, 5)", "overrides": ["policy.path=qwen"],
    }  # fmt: skip
    texts = {"text": "/ is a sign, problems.parquet not", "quoted": 'File "candidate.py", line 3 (other.py)'}
    assert content["metrics"] == metrics | texts


def test_result_when_written_to_a_bare_name_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results.write_result(Path("x.json"), {"speedup": 1.0}, {})
    assert results.read_result(Path("x.json"))["benchmark"] == tmp_path.name


def test_a_result_when_it_does_not_say_how_it_was_made_gets_the_command_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/x.py", "--out", f"{tmp_path}/file.json"])
    path = tmp_path / "subject" / "result.json"
    write_result(path, {"share": 0.5}, {}, commit="abc1234", environment={"cpus": 2}, note="alone")
    content = read_result(path)
    assert content["command"].endswith(" --out file.json")
    assert [content[key] for key in ("commit", "environment", "note")] == ["abc1234", {"cpus": 2}, "alone"]


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Return a function that puts a result of the subject `subject` into an empty folder of results."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)

    def put(name, written, **metrics):
        path = tmp_path / "subject" / f"{name}.json"
        write_result(path, {"share": 0.5, **metrics}, {}, environment={"cpus": 2})
        path.write_text(json.dumps(read_result(path) | {"written": written}))

    return put


def test_latest_result_when_two_are_of_one_day_is_the_one_written_last(put):
    put("2026-11-27-cpu-aaaaaaa", "2026-11-27T09:00:00+00:00")
    put("2026-11-27-cpu-bbbbbbb", "2026-11-27T08:00:00+00:00")
    put("2026-11-26-cpu-ccccccc", "2026-11-28T08:00:00+00:00")
    assert latest_result("subject").stem == "2026-11-27-cpu-aaaaaaa"


def test_latest_result_when_a_key_is_asked_for_is_the_newest_that_has_it(put):
    put("2026-11-26-cpu-aaaaaaa", "2026-11-26T09:00:00+00:00", other_way_s=3.0)
    put("2026-11-27-cpu-bbbbbbb", "2026-11-27T09:00:00+00:00")
    assert latest_result("subject", "cpu", "other_way_s").stem == "2026-11-26-cpu-aaaaaaa"
    with pytest.raises(UserError, match="no result on cpu with builds_s"):
        latest_result("subject", "cpu", "builds_s")


@pytest.mark.parametrize(("archived", "commit"), [
    ("0123456789abcdef0123456789abcdef01234567\n", "0123456"), ("$Format:%H$\n", "unknown"), (None, "unknown"),
])  # fmt: skip
def test_commit_when_the_code_is_an_archive_is_the_one_that_it_was_made_of(tmp_path, monkeypatch, archived, commit):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "benchmarks" / "results")
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(results, "ARCHIVED_COMMIT", tmp_path / "archived_commit.txt")
    if archived is not None:
        results.ARCHIVED_COMMIT.write_text(archived)
    assert results.current_commit() == commit
