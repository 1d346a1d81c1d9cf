"""`cudal1 evaluate` end to end: real evaluators, real kills, and mistakes that are named before anything runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import pytest
from example_files import HONEST, PROBLEM, QUICK

from cudal1_ray.cli import main
from cudal1_ray.commands.evaluate import choose_baselines, choose_preset, fails, timing_beside
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.evaluation.pool import EvaluatorPool
from cudal1_ray.evaluation.sandbox.process_watch import descendants
from tests.family import runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_server")]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cudal1_ray.cli", "evaluate", *arguments]


def cudal1(*arguments: str, cwd: Path, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, cwd=cwd, timeout=timeout)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "constant.py").write_text(PROBLEM.replace("torch.relu(x) * 2 + 1", "x * 0"))
    for number in range(4):
        (tmp_path / f"good{number}.py").write_text(f"{HONEST}\n# {number}\n")
    (tmp_path / "wrong.py").write_text(HONEST.replace("tanh_", "sin_"))
    rows = [("g0", "problem", "good0"), ("w", "problem", "wrong"), ("c", "constant", "good0")]
    rows += [(f"g{n}", "problem", f"good{n}") for n in (1, 2, 3)]
    lines = [json.dumps({"id": i, "problem": f"{p}.py", "candidate": f"{c}.py"}) for i, p, c in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_evaluate_when_interrupted_ends_with_one_line(folder):
    (folder / "asleep.py").write_text("import time\n\ntime.sleep(100)\n" + HONEST)
    started = subprocess.Popen(
        command("asleep.py", "--problem", "problem.py", *QUICK),
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(below := descendants(started.pid)) < 3:  # fork server, supervisor, contestant
        assert started.poll() is None and time.monotonic() < deadline, started.stderr.read()
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    errors = started.communicate(timeout=60)[1]
    assert started.returncode == 130 and errors.endswith("cudal1: interrupted\n") and "Traceback" not in errors, errors
    deadline = time.monotonic() + 60
    while any(runs(pid) for pid in below):
        assert time.monotonic() < deadline, "the interrupted command's evaluator lives on"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "device, certain, manifest, preset",
    [
        ("cuda", None, None, "cuda_certain"),
        ("cuda", None, "pairs.jsonl", "cuda"),
        ("cuda", False, None, "cuda"),
        ("cuda", True, "pairs.jsonl", "cuda_certain"),
        ("cpu", None, None, "cpu"),
        ("cpu", True, None, "cpu_certain"),
    ],
)
def test_preset_when_one_candidate_is_measured_on_a_gpu_is_the_certain_one(device, certain, manifest, preset):
    assert choose_preset(Namespace(device=device, certain=certain, manifest=manifest, run_folder=None)) == preset
    assert load_config([f"evaluation={preset}"]).evaluation.device == device


@pytest.mark.parametrize(
    ("preset", "expected"),
    [("cuda_certain", (2, 12, 12, 0.8)), ("cuda", (1, 4, 16, 0.4)), ("cpu", (2, 1, 0, 1.5)), ("cpu_train", None)],
)
def test_further_baselines_when_the_verdict_took_many_processes_take_the_same_share_of_each(preset, expected):
    timing = load_config([f"evaluation={preset}"]).evaluation.timing
    beside = timing_beside(timing)
    numbers = beside.contestants, beside.most_contestants, beside.most_near_1, beside.budget_s
    assert numbers == pytest.approx(expected) if expected else beside == timing  # one process is the fewest
    assert beside.half_width == timing.half_width


def test_evaluate_when_certain_takes_more_processes(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    quick = ["evaluation.timing.budget_s=1.8", "evaluation.timing.min_pairs=4", "--against", "eager"]
    assert main(["evaluate", "good0.py", "--problem", "problem.py", "--certain", "--json", *quick]) == 0
    assert len(json.loads(capsys.readouterr().out)["processes"]) == 12


def test_manifest_when_it_has_fewer_pairs_than_slots_starts_an_evaluator_for_each_pair(tmp_path, monkeypatch):
    started = []

    class Counted(EvaluatorPool):
        def __init__(self, config, **options):
            started.append(config.slots)
            super().__init__(config, **options)

    monkeypatch.setattr("cudal1_ray.evaluation.pool.EvaluatorPool", Counted)
    pair = {"id": "a", "problem": PROBLEM, "candidate": "class ModelNew(:\n"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    paths = ["--manifest", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "verdicts.jsonl")]
    assert main(["evaluate", *paths, "evaluation.slots=3", *QUICK]) == 0
    assert started == [1] and '"unparsable"' in (tmp_path / "verdicts.jsonl").read_text()


def test_manifest_when_killed_goes_on_where_it_was(folder, monkeypatch, capsys):
    arguments = ["--manifest", "pairs.jsonl", "--out", "out/verdicts.jsonl", "evaluation.slots=2", *QUICK]
    out, temporary = folder / "out" / "verdicts.jsonl", folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    first = subprocess.Popen(command(*arguments), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 600
    while not (out.exists() and out.read_bytes().count(b"\n")):
        assert first.poll() is None and time.monotonic() < deadline, first.stderr.read()
        time.sleep(0.02)
    family = descendants(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stderr.close()
    before = out.read_bytes()
    assert family and 1 <= before.count(b"\n") <= 6
    deadline = time.monotonic() + 60
    while any(runs(pid) for pid in family):
        assert time.monotonic() < deadline, "the killed command's evaluators live on"
        time.sleep(0.05)

    with out.open("ab") as file:
        file.write(b'{"id": "g3", "verd')
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", None)  # TMPDIR is read once in a process
    assert main(["evaluate", *arguments, "--json"]) == 0
    again = capsys.readouterr().out
    assert [p.name for p in temporary.iterdir() if p.name.startswith("cudal1-e")] == []  # nor of the killed one
    # what was there was kept, and not evaluated again; the rows are in the manifest's order at the end
    assert set(before.splitlines()) <= set(out.read_bytes().splitlines())
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == ["c", "g0", "g1", "g2", "g3", "w"]
    verdicts = {row["id"]: row for row in rows}
    assert verdicts["w"]["verdict"] == "rejected" and verdicts["w"]["reasons"] == ["wrong_output"]
    assert verdicts["c"]["degenerate"] and verdicts["c"]["reasons"] == ["degenerate_input"]
    for name in ("g0", "g1", "g2", "g3"):
        row = verdicts[name]
        assert row["verdict"] == "accepted" and row["reasons"] == [] and row["device"] == "cpu"
        assert 0 < row["speedup_low"] <= row["credited_speedup"] == row["speedup"] <= row["speedup_high"]
        assert row["runtime_ms"] > 0 and row["reference_ms"] > 0 and not row["degenerate"]
    summary = json.loads(again)
    assert (summary["rows"], summary["accepted"], summary["credited"], summary["flagged"]) == (6, 4, 4, 1)

    assert main(["evaluate", *arguments]) == 0  # nothing left: it prints what is there
    third = capsys.readouterr().out
    assert "6 rows, 4 accepted" in third and "1 on 1 degenerate" in third
    assert [json.loads(line) for line in out.read_text().splitlines()] == rows


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--manifest", "bad.jsonl", "--out", "out.jsonl"), "bad.jsonl line 1: no field 'candidate'"),
        (("--manifest", "pairs.jsonl"), "--out"),
        (("--manifest", "pairs.jsonl", "--out", "o", "--problem", "problem.py"), "--problem"),
        (("--manifest", "pairs.jsonl", "--out", "o", "--against", "eager,compile"), "--against"),
        (("--manifest", "pairs.jsonl", "--out", "o", "--ray", "127.0.0.1:1"), "127.0.0.1:1"),
        (("good0.py", "--problem", "problem.py", "--against", "magic"), "magic"),
        (("good0.py", "--problem", "problem.py", "--against", "cuda_graph"), "cuda_graph"),
        (("good0.py", "--problem", "problem.py", "evaluation.timing.none=1"), "evaluation.timing.none"),
        (("good0.py", "--problem", "problem.py", "--out", "o"), "--out"),
        (("--problem", "problem.py", f"problems.ids=[{'an_id,' * 100}an_id]"), "is read with --run only"),
        (("--problem", "problem.py"), "CANDIDATE"),
    ],
)  # fmt: skip
def test_evaluate_when_given_a_mistake_prints_one_line_before_it_evaluates(
    folder, monkeypatch, capsys, arguments, named
):
    (folder / "bad.jsonl").write_text('{"id": 1, "problem": "problem.py"}\n')
    monkeypatch.chdir(folder)
    assert main(["evaluate", *arguments]) == 2
    error = capsys.readouterr().err
    assert named in error and len(error.strip().splitlines()) == 1, error
    assert not (folder / "out.jsonl").exists()


def test_baselines_when_chosen_by_name_are_these():
    cpu = EvaluationConfig()
    assert choose_baselines(None, cpu) == ("eager", "tuned_eager", "cuda_graph")
    assert choose_baselines("all", EvaluationConfig(against="compile"))[:2] == ("compile", "eager")
    assert choose_baselines("tuned_eager, eager", cpu) == ("tuned_eager", "eager")
    with pytest.raises(UserError, match="cuda_graph"):
        choose_baselines("cuda_graph", cpu)


@pytest.mark.long
def test_baselines_when_asked_for_are_measured_or_named(folder):
    names = "tuned_eager,compile,compile_reduce_overhead,cuda_graph"
    done = cudal1("good0.py", "--problem", "problem.py", "--against", names, "--json", *QUICK, cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "accepted" and report["against"] == "tuned_eager"
    rows = {row["baseline"]: row for row in report["baselines"]}
    assert list(rows) == names.split(",")
    assert "needs device cuda" in rows.pop("cuda_graph")["missing"]
    for row in rows.values():
        assert not row["missing"] and row["baseline_ms"] > 0 and row["runtime_ms"] > 0
        assert 0 < row["speedup_low"] <= row["speedup"] <= row["speedup_high"]


def test_evaluate_when_json_is_not_asked_for_prints_verdict_and_baselines(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["evaluate", "good0.py", "--problem", "problem.py", *QUICK]) == 0
    output = capsys.readouterr().out
    for text in ("accepted", "95% interval", "tuned_eager", "needs device cuda", "--against all"):
        assert text in output, output
    assert main(["evaluate", *QUICK, "wrong.py", "--problem", "problem.py"]) == 0
    output = capsys.readouterr().out
    assert "wrong_output" in output and "tuned_eager" not in output
    assert "the output differs from the reference" in output and "instead of" in output and "failure" in output
    (folder / "same.py").write_text(PROBLEM.replace("class Model(", "class ModelNew("))
    assert main(["evaluate", *QUICK, "same.py", "--problem", "problem.py"]) == 0
    output = capsys.readouterr().out
    assert "same_operations" in output and "1.000x  (not measured)" in output


@pytest.mark.parametrize(
    ("verdict", "rejected", "slower"),
    [
        (Verdict("p", "accepted", speedup=1.2, speedup_high=1.3), False, False),
        (Verdict("p", "accepted", speedup=0.9, speedup_high=0.95), False, True),
        (Verdict("p", "accepted", speedup=0.99, speedup_high=1.01), False, False),
        (Verdict.rejected("p", "crash"), True, True),
    ],
)
def test_fail_on_when_set_decides_the_exit_code(verdict, rejected, slower):
    assert (fails(verdict, "rejected"), fails(verdict, "slower")) == (rejected, slower) and not fails(verdict, None)


def test_refusal_when_a_rule_causes_it_names_all_settings_and_the_measured_speedup(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    one_size = HONEST.replace("return ", "return x if len(x) != 128 else BUFFER.copy_(").replace("tanh_()", "tanh_())")
    (folder / "one size.py").write_text(f"{one_size}\n\nBUFFER = torch.empty(128, 256)\n")
    assert main(["evaluate", "one size.py", "--problem", "problem.py", "--fail-on", "rejected", *QUICK]) == 1
    output = capsys.readouterr()
    allowed = "evaluation.rules.shapes=fixed evaluation.rules.outputs=clone"
    for text in (allowed, "policy: a rule in force refuses it", "speedup"):  # whichever rule is the first to refuse it
        assert text in output.out, output.out
    assert "0.000x" in output.out and "measuring what the rules refuse" in output.err
    assert main(["evaluate", "one size.py", "--problem", "problem.py", "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["allowed_by"] == allowed.split()


def test_refusal_when_no_rule_allows_the_candidate_names_the_reason_that_is_left(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "160")
    gelu = PROBLEM.replace("torch.relu(x) * 2 + 1", "torch.nn.functional.gelu(x, approximate='tanh')")
    (folder / "gelu.py").write_text(gelu)
    exact = gelu.replace("class Model(", "class ModelNew(").replace(", approximate='tanh'", "")
    (folder / "exact.py").write_text(exact)
    assert main(["evaluate", "exact.py", "--problem", "gelu.py", *QUICK]) == 0
    output = capsys.readouterr().out
    for text in ("precision_downgrade", "nothing: with evaluation.rules.precision=tf32", "it is refused for"):
        assert text in output, output
    assert main(["evaluate", "exact.py", "--problem", "gelu.py", "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["allowed_by"] == []


def test_files_when_their_encodings_and_names_are_odd_are_read(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "[my] problem, v=2 (copy).py").write_bytes(b"\xef\xbb\xbf" + PROBLEM.encode())
    (folder / "half, x=1.py").write_bytes(f"# -*- coding: gb18030 -*-\n# \u5feb\n{HONEST}".encode("gb18030"))
    names = ["half, x=1.py", "--problem", "[my] problem, v=2 (copy).py"]
    assert main(["evaluate", *names, "--against", "eager", "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "accepted"
    (folder / "broken.py").write_bytes(b"\n\n# \xff\n")
    assert main(["evaluate", "broken.py", "--problem", "problem.py", *QUICK]) == 2
    assert "broken.py: byte 4 is no utf-8" in capsys.readouterr().err
    (folder / "answer.py").write_text(f"Here it is:\n\n```python\n{HONEST}```\n")
    assert main(["evaluate", "answer.py", "--problem", "problem.py", "--json", *QUICK]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["reasons"] == ["unparsable"] and "Markdown fence" in report["detail"]
