"""Folders of KernelBench generations, scored as KernelBench does."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.cli import main
from cudal1_ray.commands.evaluate_run import read_generations, score_level
from cudal1_ray.errors import UserError
from cudal1_ray.problems import parse_problem
from tests.measured_once import MEASURED_ONCE

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
"""
_MODEL = PROBLEM.split("def get_inputs")[0]
RIGHT = _MODEL.replace("class Model(", "class ModelNew(").replace("torch.relu(x)", "x.clamp(0)")
QUICK = ["evaluation=cpu_train", "evaluation.timing.budget_s=0.1", "evaluation.slots=1", *MEASURED_ONCE]


def problems(*ids):
    return [parse_problem(PROBLEM, f"kernelbench-l1-p{i:03d}", origin="test", level=1) for i in ids]


def row(speedup, *reasons):
    return {"verdict": "rejected" if reasons else "accepted", "credited_speedup": speedup, "reasons": list(reasons)}


def test_score_level_when_problems_have_several_samples_counts_sample_zero():
    rows = {
        "level_1_problem_1_sample_0": row(2.5),
        "level_1_problem_1_sample_1": row(3.0),
        "level_1_problem_2_sample_0": row(0.0, "wrong_output"),
        "level_1_problem_2_sample_1": row(1.2),
        "level_1_problem_3_sample_0": row(0.9),
        "level_2_problem_1_sample_0": row(9.0),
    }
    score = score_level(1, problems(1, 2, 3, 4), rows)
    assert (score["problems"], score["evaluated"], score["compiled"], score["correct"]) == (4, 3, 3, 2)
    assert score["fast_p"] == {"0.0": 0.5, "0.5": 0.5, "0.8": 0.5, "1.0": 0.25, "1.5": 0.25, "2.0": 0.25}
    assert score["best_of_n"]["1.0"] == 0.5 and score["samples"] == 2
    assert score["geometric_mean"] == pytest.approx((2.5 * 0.9) ** 0.5)


def test_read_generations_when_a_problem_is_unknown_skips_it_and_keeps_the_order(tmp_path):
    for name in ("level_1_problem_10_sample_0", "level_1_problem_2_sample_0", "level_3_problem_1_sample_0"):
        (tmp_path / f"{name}_kernel.py").write_text(RIGHT)
    (tmp_path / "eval_results.json").write_text("{}")
    (tmp_path / "level_1_problem_2_sample_1_kernel.py").write_text(RIGHT, encoding="utf-8-sig")
    (tmp_path / "level_1_problem_2_sample_2_kernel.py").mkdir()
    (tmp_path / "level_1_problem_2_sample_3_kernel.py").write_bytes(b"# gr\xf6sse\n" + RIGHT.encode())
    pairs, skipped = read_generations(tmp_path, problems(2, 10))
    names = [pair.identity.removeprefix("level_1_problem_") for pair in pairs]
    assert names == ["2_sample_0", "2_sample_1", "10_sample_0"] and {pair.code for pair in pairs} == {RIGHT}
    directory, no_text, unknown = skipped
    assert "sample_2_kernel.py: Is a directory" in directory and "save it as UTF-8" in no_text
    assert "problem 1 of level 3" in unknown
    with pytest.raises(UserError, match="holds no generation"):
        read_generations(tmp_path.parent, problems(2))


def test_evaluate_run_when_stopped_scores_the_folder_and_goes_on(tmp_path, capsys):
    run = tmp_path / "my_run"
    run.mkdir()
    (run / "level_1_problem_2_sample_0_kernel.py").write_text(RIGHT)
    (run / "level_1_problem_3_sample_0_kernel.py").write_text("class ModelNew(")
    columns = {"code": [PROBLEM] * 2, "level": [1, 1], "name": ["a", "b"], "problem_id": [2, 3]}
    pq.write_table(pa.table(columns), tmp_path / "kb.parquet")
    command = ["evaluate", "--run", str(run), "--json", *QUICK]
    command += ["problems=kernelbench_parquet", f"problems.path={tmp_path / 'kb.parquet'}"]
    assert main(command) == 0
    (level,) = json.loads(capsys.readouterr().out)["levels"]
    assert (level["problems"], level["evaluated"], level["compiled"], level["correct"]) == (2, 2, 1, 1)
    verdicts = (run / "cudal1_verdicts.jsonl").read_text()
    assert main(command) == 0 and (run / "cudal1_verdicts.jsonl").read_text() == verdicts
    assert json.loads((run / "cudal1_scores.json").read_text())["run"] == "my_run"
    command.remove("--json")
    assert main(command) == 0
    files = f"verdicts: {run / 'cudal1_verdicts.jsonl'}, scores: {run / 'cudal1_scores.json'}"
    assert capsys.readouterr().out.splitlines()[-1] == files
    (run / "cudal1_scores.json").unlink()
    (run / "cudal1_scores.json").mkdir()  # as a folder that cannot be written: the scores are seen all the same
    assert main(command) == 2
    printed = capsys.readouterr()
    assert "fast_1" in printed.out and "cannot write" in printed.err
