"""The harness of the ablation: what it takes over from other runs, which runs it starts, how it compares them."""

from __future__ import annotations

import functools
import json
import math
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

from cudal1_ray.config import load_config, to_dict, to_yaml
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer


@functools.cache
def configuration(*overrides: str) -> str:
    return to_yaml(load_config(list(overrides)))


def code(number: int) -> str:
    return f"class ModelNew:\n    value = {number}\n"


def assessed(stage: str, speedups=(2.0,), split="train") -> list[str]:
    rows = [
        {"stage": stage, "split": split, "problem_id": f"p{i}", "index": 0, "status": "accepted", "speedup": speedup}
        for i, speedup in enumerate(speedups)
    ]
    return [json.dumps(row) + "\n" for row in rows]


def finished_run(path, seed=1, stages=("sft", "self_supervised", "contrastive"), overrides=(), speedups=(2.0,)):
    """Return a run's folder as the stages leave it: exemplars of version 3 from stage 2, of version 4 from stage 3."""
    for stage in stages:
        (path / "checkpoints" / f"{stage}-final" / "state").mkdir(parents=True)
    (path / "policy").mkdir()
    (path / "policy" / "config.json").write_text("{}")
    (path / "rollouts").mkdir()
    (path / "config.yaml").write_text(configuration(*overrides).replace("seed: 1\n", f"seed: {seed}\n", 1))
    (path / "assessments.jsonl").write_text("".join(line for s in stages for line in assessed(s, speedups)))
    (path / "metrics.jsonl").write_text("".join(json.dumps({"stage": s, "step": 1}) + "\n" for s in stages))
    (path / "selections.jsonl").write_text(json.dumps({"step": 1, "exemplar_ids": ["a", "b"]}) + "\n")
    buffer = ExemplarBuffer.open(path / "exemplars", create=True)
    for version, stage in ((3, "self_supervised"), (4, "contrastive")):
        if stage in stages:
            table = pa.table({"policy_version": [version, version]})
            pq.write_table(table, path / "rollouts" / f"{stage}-000001.parquet")
            buffer.insert([Exemplar.new("p0", code(version), 2.0, policy_version=version, step=1)])
    buffer.save()
    return path


def test_write_section_when_repeated_replaces_the_section_and_nothing_else(tmp_path):
    from benchmarks.common.marked_section import write_section

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n")
    for _ in range(2):
        write_section(page, "a", "new\n")
        assert page.read_text() == "before\n<!-- a: begin -->\nnew\n<!-- a: end -->\nafter\n"
    with pytest.raises(UserError, match="b: begin"):
        write_section(page, "b", "new")


def test_adopted_base_when_its_run_went_on_holds_nothing_after_stage_2(tmp_path):
    from benchmarks.training.ablation_runs import adopt_base, assessed_stages, is_finished

    source, target = finished_run(tmp_path / "seed-1"), tmp_path / "runs" / "seed-1-base"
    target.parent.mkdir()
    adopt_base(source, target, 1, [])
    assert [exemplar.policy_version for exemplar in ExemplarBuffer.open(target / "exemplars")] == [3]
    assert len(ExemplarBuffer.open(source / "exemplars")) == 2
    assert assessed_stages(target) == {"sft", "self_supervised"}
    assert is_finished(target, "self_supervised") and not is_finished(target, "contrastive")
    assert "contrastive" not in (target / "metrics.jsonl").read_text()
    assert (target / "policy" / "config.json").exists()


@pytest.mark.parametrize(
    ("setting", "finished"), [("assessment.control=true", False), ("assessment.control=false", True)]
)
def test_run_when_its_control_is_missing_is_assessed_and_finished_where_none_is_due(tmp_path, setting, finished):
    from benchmarks.training.ablation_runs import is_assessed, is_finished

    run = finished_run(tmp_path / "run", overrides=(setting,))
    assert is_finished(run, "contrastive")  # its prompts showed no exemplars
    with open(run / "assessments.jsonl", "a") as lines:
        lines.writelines(assessed("contrastive_without_exemplars"))
    learner = run / "checkpoints" / "self_supervised-final" / "learner"
    (learner / "deepspeed").mkdir(parents=True)
    config = load_config([])
    shape = {"world_size": config.cluster.learner.count, "zero_stage": config.learner.zero_stage}
    torch.save({"shape": shape}, learner / "rank-0.pt")
    assert is_assessed(run, "contrastive") and is_finished(run, "contrastive") == finished
    with open(run / "assessments.jsonl", "a") as lines:
        lines.writelines(assessed("self_supervised_with_exemplars"))
    assert is_finished(run, "contrastive") and is_finished(run, "self_supervised")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"stages": ("sft",)}, "self_supervised"),
        ({"seed": 2}, "seed was 2, is 1"),
        ({"overrides": ["sft.epochs=3"]}, "sft.epochs was 3"),
        ({"overrides": ["exemplars=island"]}, "exemplars.strategy was 'island'"),
    ],
)
def test_base_when_it_differs_from_the_wanted_one_is_not_adopted(tmp_path, run, message):
    from benchmarks.training.ablation_runs import adopt_base

    with pytest.raises(UserError, match=message):
        adopt_base(finished_run(tmp_path / "seed-1", **run), tmp_path / "base", 1, [])
    assert not (tmp_path / "base").exists()


def test_arms_when_composed_differ_from_bucket_in_their_subject_only():
    from benchmarks.training.ablations import ARMS

    bucket = to_dict(load_config(list(ARMS["bucket"].overrides)))
    changed = {}
    for name, arm in ARMS.items():
        config = to_dict(load_config(list(arm.overrides)))
        others = [key for key in config if key != "exemplars" and config[key] != bucket[key]]
        exemplars = [key for key, value in config["exemplars"].items() if value != bucket["exemplars"][key]]
        changed[name] = (others, exemplars)
        assert set(arm.own_base) <= set(arm.overrides)
    assert changed["bucket"] == ([], []) and changed["no-analysis"] == (["prompting"], [])
    assert changed["none"] == ([], ["strategy", "count"])
    assert changed["uniform"] == changed["island"] == ([], ["strategy"])
    assert changed["n-1"] == changed["n-4"] == ([], ["count"])
    assert changed["tau-0.25"] == changed["tau-4"] == ([], ["tau"])


def test_runner_when_a_run_failed_notes_it_and_starts_no_finished_one_again(tmp_path):
    from benchmarks.training.ablation_runs import Runner

    finished_run(tmp_path / "done")
    runner = Runner(tmp_path, math.inf, [], Console(quiet=True))
    assert runner.run("done", "contrastive", 1, "no_such_key=1")
    assert not runner.run("broken", "sft", 1, "no_such_key=1")
    assert "no_such_key" in runner.failed["broken"] and "exit code 2" in runner.failed["broken"]
    assert runner.minutes("broken") > 0 and runner.minutes("done") is None
    late = Runner(tmp_path, time.monotonic(), [], Console(quiet=True))
    assert not late.run("other", "sft", 1) and not (tmp_path / "other").exists() and not late.failed
    assert late.minutes("broken") == runner.minutes("broken")


def test_arms_when_seeds_are_missing_are_compared_over_shared_seeds(tmp_path):
    from benchmarks.training.ablation_runs import Runner
    from benchmarks.training.ablations import collect, markdown, table_rows

    for seed, speed in ((1, 2.0), (2, 3.0), (3, 4.0)):
        finished_run(tmp_path / f"seed-{seed}-base", seed, stages=("sft", "self_supervised"))
        for arm, factor in (("bucket", 1.0), ("none", 1.2 + seed / 100), ("island", 0.99 + seed / 100)):
            speedups = (speed * factor, speed * factor)
            finished_run(tmp_path / f"seed-{seed}-{arm}", seed, stages=("contrastive",), speedups=speedups)
    finished_run(tmp_path / "seed-2-n-4", 2, stages=("contrastive",), speedups=(9.0, 9.0))
    result = collect(Runner(tmp_path, math.inf, [], Console(quiet=True)))
    by_arm = {comparison["second"]: comparison for comparison in result["comparisons"]}
    assert set(by_arm) == {"none", "island", "n-4"} and list(result["arms"]) == ["bucket", "none", "island", "n-4"]
    assert by_arm["none"]["ratio"] == pytest.approx(1.22, abs=0.001) and by_arm["none"]["pairs"] == 3
    assert by_arm["none"]["low"] > 1.15 and by_arm["none"]["p_adjusted"] == 2 * by_arm["none"]["p_value"] < 0.05
    assert by_arm["island"]["p_adjusted"] == by_arm["island"]["p_value"] > 0.05
    assert by_arm["n-4"]["ratio"] == pytest.approx(3.0) and by_arm["n-4"]["low"] is None  # against seed 2 alone
    assert result["arms"]["bucket"]["seeds"][2]["train"]["geomean"] == pytest.approx(3.0)
    assert result["arms"]["bucket"]["seeds"][2]["exemplars_shown"] == 2.0
    assert result["start"]["stages"]["self_supervised"]["train"]["geomean"] == pytest.approx(2.0)
    text = markdown(json.loads(json.dumps(result)))  # as read back from the file
    for cells in table_rows(result, "train"):
        assert f"| {' | '.join(cells)} |" in text


def test_results_when_runs_lie_elsewhere_are_kept(tmp_path):
    from benchmarks.common.results import read_result
    from benchmarks.training.ablation_runs import Runner
    from benchmarks.training.ablations import write_results

    def runs(name, arms, seeds, speedup):
        for seed in seeds:
            finished_run(tmp_path / name / f"seed-{seed}-base", seed, stages=("sft", "self_supervised"))
            for arm in arms:
                run = tmp_path / name / f"seed-{seed}-{arm}"
                finished_run(run, seed, stages=("contrastive",), speedups=(speedup, speedup))
        return Runner(tmp_path / name, math.inf, [], Console(quiet=True))

    out = tmp_path / "results.json"
    first = write_results(runs("main", ("bucket", "none"), (1, 2, 3), 2.0), out)
    write_results(runs("further", ("bucket", "n-1"), (1,), 5.0), out)
    both = read_result(out)["metrics"]
    assert list(both["arms"]) == ["bucket", "none", "n-1"]
    assert both["arms"]["bucket"] == json.loads(json.dumps(first["arms"]["bucket"]))
    assert {c["second"]: c["ratio"] for c in both["comparisons"]} == pytest.approx({"none": 1.0, "n-1": 1.0})
    assert both["arms"]["n-1"]["over_seeds"]["train"]["geomean"] == pytest.approx(5.0)
    again = runs("again", ("none",), (1, 2, 3, 4), 7.0)  # more seeds than there were
    assert write_results(again, out)["arms"]["none"]["over_seeds"]["train"]["geomean"] == pytest.approx(7.0)
    assert write_results(Runner(tmp_path / "empty", math.inf, [], Console(quiet=True)), out) == {}
    assert list(read_result(out)["metrics"]["arms"]) == ["bucket", "none", "n-1"]


def test_recorded_runs_when_read_become_ladders(tmp_path):
    from benchmarks.exemplars.recorded_runs import record

    run = tmp_path / "run"
    (run / "rollouts").mkdir(parents=True)
    slow, fast = (Exemplar.new("p", code(i), float(1 + i)) for i in range(2))
    buffer = ExemplarBuffer.open(run / "exemplars", create=True)
    buffer.insert([slow, fast])
    buffer.save()
    verdicts = [(slow, 1.0), (fast, 2.0), (Exemplar.new("p", code(2), 0.0), 0.0)]
    rows = [
        {"scope": "training", "key": e.exemplar_id, "verdict": {"problem_id": "p", "credited_speedup": speed}}
        for e, speed in verdicts
    ]
    (run / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompt = [slow.exemplar_id, fast.exemplar_id]
    rollouts = [
        {"problem_id": "p", "code": code(n), "status": "accepted", "reasons": [], "exemplar_ids": prompt}
        for n in (1, 1, 1, 0, 7)
    ]
    rollouts.append({**rollouts[0], "status": "rejected", "reasons": ["wrong_output", "crash"]})
    rollouts.append({**rollouts[0], "exemplar_ids": []})
    pq.write_table(pa.Table.from_pylist(rollouts), run / "rollouts" / "self_supervised-000002.parquet")
    ladders = record([run])
    assert ladders.problems[0].speedups == (1.0, 2.0) and ladders.problems[0].reasons == {"wrong_output": 1}
    assert ladders.problems[0].failure_rate == pytest.approx(1 / 6, abs=1e-4)
    assert ladders.copy_rate == pytest.approx(4 / 5) and ladders.noise == 0.0
    assert ladders.speed_exponent == pytest.approx(math.log2(3), abs=1e-3)  # 3 of 4 copies are of the one twice as fast
    with pytest.raises(UserError, match="no run"):
        record([tmp_path / "other"])
