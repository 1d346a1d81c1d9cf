"""What benchmarks write: whole files, under the name of a subject, without the folders of a machine."""

from __future__ import annotations

import json

from benchmarks.common.results import write_result


def test_a_result_when_written_keeps_files_names_and_routes_but_no_folders(tmp_path):
    path = tmp_path / "subject" / "result.json"
    result = {
        "arguments": ["--out", str(tmp_path / "out.json")],
        "command": f"cudal1 train name=kb policy.path={tmp_path}/models/qwen {tmp_path}/more",
        "route": "/v1/chat/completions",
        "runs": {"share": 0.5},
    }
    write_result(path, result | {"config": {"path": f"{tmp_path}/problems.parquet", "text": "/ is a sign"}})
    assert json.loads(path.read_text()) == {
        "arguments": ["--out", "out.json"],
        "command": "cudal1 train name=kb policy.path=qwen more",
        "route": "/v1/chat/completions",
        "runs": {"share": 0.5},
        "config": {"path": "problems.parquet", "text": "/ is a sign"},
    }
