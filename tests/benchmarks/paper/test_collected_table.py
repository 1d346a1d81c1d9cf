"""The table's figures, and what is collected from runs, packed runs and results of several machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.common.results import write_result
from benchmarks.paper import arms, collect, curves, figures, measured, records, reservations, table, travel
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.files import read_json_lines
from cudal1_ray.training.assessment import CONTROLS
from cudal1_ray.training.rollout_table import write_rollouts
from tests.benchmarks.paper.tiny_table import CODE, evaluated_sample, row, write_lines, write_table


def test_columns_when_counted_by_hand_are_these():
    samples = figures.samples_of(
        {"1": {"a": [[2.0, True, False], [0.0, False, False]], "b": [[1.1, False, False], [1.0, True, False]]}}
    )
    columns = figures.columns(samples)
    assert [columns[name] for name in ("success", "own_kernel", "fast_1", "fast_1_2")] == [0.75, 0.5, 0.5, 0.25]
    assert columns["geomean"] == pytest.approx((2.0 * 0.1 * 1.1 * 1.0) ** 0.25)
    assert (columns["mean"], columns["max"], columns["samples"]) == (pytest.approx(1.025), 2.0, 4)
    low, high = columns["intervals"]["geomean"]
    assert low < columns["geomean"] < high


def test_columns_when_problems_have_different_numbers_of_samples_weigh_problems_alike():
    samples = figures.samples_of({"1": {"a": [[2.0, True, False], [2.0, True, True]], "b": [[0.0, False, False]]}})
    columns = figures.columns(samples)
    assert [columns[name] for name in ("success", "copied", "mean")] == [0.5, 0.25, 1.0] and columns["samples"] == 3
    assert columns["geomean"] == pytest.approx((2.0 * 0.1) ** 0.5) and columns["geomean_right"] == pytest.approx(2.0)
    assert (columns["max"], columns["intervals"]["copied"][0]) == (2.0, 0.0)
    nothing = figures.columns(figures.samples_of({"1": {"a": [[0.0, False, False]]}}))
    assert nothing["geomean_right"] is None and table._cell("geomean_right", nothing) == ""


def test_intervals_when_seeds_differ_hold_their_spread():
    alike = figures.samples_of({str(s): {p: [[1.0, True, False]] for p in "abcdefgh"} for s in range(3)})
    apart = figures.samples_of({str(s): {p: [[1.0 + s, True, False]] for p in "abcdefgh"} for s in range(3)})
    width = [float(np.ptp(figures.columns(samples)["intervals"]["mean"])) for samples in (alike, apart)]
    assert width[0] == 0.0 and width[1] > 1.0


def test_intervals_when_a_problem_repeats_its_samples_stay_as_wide():
    failed, succeeded = [0.0, False, False], [1.0, True, False]
    problems = {f"p{n}": [succeeded if n % 2 else failed, failed] for n in range(12)}
    repeated = problems | {"p0": 8 * problems["p0"]}
    columns = [figures.columns(figures.samples_of({"1": of})) for of in (problems, repeated)]
    widths = [float(np.ptp(each["intervals"]["success"])) for each in columns]
    assert columns[0]["success"] == columns[1]["success"] == 0.25 and widths[1] == pytest.approx(widths[0], abs=0.02)


def test_draws_when_the_seed_is_zero_take_samples_independently_of_problems():
    samples = figures.samples_of({"1": {problem: 2 * [[1.0, True, False]] for problem in "ab"}})
    (_, problems, indices), _ = figures._draws(samples, 0, 0)
    assert abs(np.corrcoef(problems.ravel(), indices.ravel()[: problems.size])[0, 1]) < 0.1


def test_compare_when_one_arm_is_twice_as_fast_everywhere_is_certain_of_it():
    hard = {"a": 0.5, "b": 8.0, "c": 1.0}
    sides = [
        figures.samples_of({seed: {p: [[gain * speed, True, False]] for p, speed in hard.items()} for seed in "12"})
        for gain in (1.0, 2.0)
    ]
    comparison = figures.compare(*sides)
    assert comparison["ratio"] == pytest.approx(2.0) and comparison["interval"] == pytest.approx([2.0, 2.0])
    failed = figures.samples_of({"1": {"a": [[0.0, False, False]]}})
    assert table.ratio_text(figures.compare(failed, failed)) == "no right sample on either side"
    assert figures.compare(sides[0], figures.samples_of({"1": {"z": [[1.0, True, False]]}})) is None


def test_collect_when_arms_are_done_has_figures_curves_techniques_and_bars(runs):
    result = collect.collect([runs])
    bucket = result["arms"]["bucket"]
    assert bucket["assessed"]["train"]["geomean"] == pytest.approx(2.0) and bucket["assessed"]["train"]["seeds"] == 2
    assert bucket["assessed"]["held_out"]["success"] == 0.5
    point, last = bucket["seeds"]["1"]["curve"]
    assert point.pop("geomean") == pytest.approx((2.5 * 0.1 * 1.2) ** (1 / 3))
    shares = {"success": 2 / 3, "own_kernel": 2 / 3, "new": 2 / 3, "copied": 0.0, "median_speedup": 1.85}
    assert point == {"step": 1, "samples": 3, **shares} and last["samples"] == 6
    assert bucket["seeds"]["1"]["learner"] == [{"step": n, "grad_norm": 0.5} for n in (1, 2)]
    assert bucket["seeds"]["1"]["evaluations"] == 3.0 and result["arms"]["stage1"]["seeds"]["1"]["samples"] == 0
    text = table.markdown(result)
    assert "+ contrastive, bucket | 1, 2; 3 not yet run | 2 | 8 | 100% (16% to 100%)" in text
    assert (
        "| contrastive, bucket beats stage 1, geometric mean on training problems | 2.00 (2.00 to 2.00); "
        "2.00 (2.00 to 2.00) with copies as failures; 2 seeds | yes |" in text
    )
    held_out = {"base": 0.25, "bucket": 0.5}
    bar = {"bar": "b", "met": True} | {
        a: {"success": s, "intervals": {"success": (0.1, 0.9)}} for a, s in held_out.items()
    }
    ((_, measured_text, _),) = table.bar_rows({"bars": [bar]})
    assert measured_text == "25% (10% to 90%) before, 50% (10% to 90%) after"
    cells = "1 | stages 1 + 2 | contrastive-final | 6 | 3 | 1 | 1.0 | 0.5 | NVIDIA H100 80GB HBM3 |"
    assert f"| + contrastive, bucket | {cells}" in text
    assert text.count("Rules: all defaults.") == 1 and "Sizes: published." in text
    assert text.count("contrastive, bucket: no prompt shows an exemplar within 1.25 times of the fastest known.") == 1
    for seed in bucket["seeds"].values():
        seed["settings"]["exemplars"]["headroom"] = 1.0
    assert "no prompt shows an exemplar" not in table.markdown(result)
    for source in ("nothing", "attempts.jsonl"):
        with pytest.raises(UserError, match=source):
            collect.collect([runs / source])


def test_table_when_arms_or_seeds_are_missing_says_so(runs):
    (runs / arms.run_name("bucket", 2) / records.ARM_FILE).unlink()
    result = collect.collect([runs], [1, 2, 3])
    seeds = dict(row[:2] for row in table.table_rows(result, "train"))
    others = [arm.label for arm in arms.ARMS.values() if arm.label not in seeds]
    assert "base model, zero-shot" in others and f"\nNot yet run: {'; '.join(others)}.\n" in table.markdown(result)
    for record in result["arms"]["bucket"]["seeds"].values():
        record["start"] = "stage1"  # where stages 1 + 2 is stage2-long
    assert "; stages 1 + 2;" in f" {'; '.join(others)}" and "; stages 1 + 2;" not in table.markdown(result)
    assert seeds["stage 1"] == "1, 2; 3 not yet run"
    assert seeds["+ contrastive, bucket"] == "1; 2 not yet assessed; 3 not yet run"
    del result["arms"]["stage1"]["seeds"]["1"]["assessed"]["held_out"]
    assert dict(row[:2] for row in table.table_rows(result, "held_out"))["stage 1"].startswith("2; 1 not yet assessed;")
    measured = {row[0]: row[1:] for row in table.bar_rows(collect.collect([runs]))}
    assert measured["contrastive, bucket beats GRPO without contrast, geometric mean on training problems"] == [
        "not yet run", "",
    ]  # fmt: skip


def test_hardware_when_a_host_has_several_gpus_names_their_kind_and_number():
    rows = [{"gpus": "NVIDIA H100, 580.1; NVIDIA H100, 580.1"}, {"gpus": "NVIDIA H200, 580.1"}, {"processor": "a CPU"}]
    record = {"environments": [{"environment": row} for row in rows]}
    assert reservations.hardware(record) == "NVIDIA H100 (2 in the host), NVIDIA H200, a CPU"


def test_table_when_no_arm_is_assessed_yet_has_the_budget_of_what_began(tmp_path):
    runs = write_table(tmp_path, {"grpo": 1.0}, (1,))
    (runs / arms.run_name("grpo", 1) / records.ARM_FILE).unlink()
    text = table.markdown(collect.collect([runs]))
    assert "| + GRPO without contrast | 1 not yet assessed; 2, 3 not yet run |" in text
    assert "| + GRPO without contrast | 1 | the base model | not yet assessed | 6 | 3 |" in text


def test_collect_when_machines_have_parts_of_a_table_joins_them(tmp_path):
    first = write_table(tmp_path / "first", {"stage1": 1.0, "bucket": 2.0}, (1,))
    second = write_table(tmp_path / "second", {"grpo": 1.5}, (1,))
    third = write_table(tmp_path / "third", {"base": 0.5, "stage1": 1.0, "bucket": 3.0}, (2,))
    list(travel.pack_runs(second, set(), tmp_path / "packed", 8.0, 0.01))
    write_result(tmp_path / "third.json", collect.collect([third]), {})
    whole = collect.collect([first, second, third])
    joined = collect.collect([tmp_path / "third.json", tmp_path / "packed", first])
    assert joined["arms"].keys() == whole["arms"].keys() == {"base", "stage1", "grpo", "bucket"}
    assert table.markdown(joined) == table.markdown(whole)
    names = sorted(row["run"] for row in joined["commands"])
    assert names == sorted(row["run"] for row in whole["commands"])
    assert names == ["seed-1-bucket", "seed-1-grpo", "seed-1-stage1", "seed-2-bucket", "seed-2-stage1"]
    assert joined["arms"]["bucket"]["assessed"]["train"]["seeds"] == 2


def test_collect_when_two_machines_have_a_run_takes_the_one_assessed_last(tmp_path):
    earlier = write_table(tmp_path / "earlier", {"bucket": 2.0}, (1,), at=1.0)
    later = write_table(tmp_path / "later", {"bucket": 3.0}, (1,), at=2.0)
    begun = write_table(tmp_path / "begun", {"bucket": 4.0}, (1,))
    (begun / arms.run_name("bucket", 1) / records.ARM_FILE).unlink()
    for sources in ([earlier, later, begun], [begun, later, earlier]):
        assert collect.collect(sources)["arms"]["bucket"]["assessed"]["train"]["geomean"] == pytest.approx(3.0)


def test_collect_when_a_file_is_another_result_refuses_it(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"arms": []}))
    with pytest.raises(UserError, match="x.json: no result of benchmarks.paper.collect"):
        collect.collect([tmp_path / "x.json"])


def test_runs_when_packed_and_unpacked_are_the_same_results(runs, tmp_path):
    lines = list(travel.pack_runs(runs, set(), tmp_path / "packed", 8.0, 0.01))
    assert "pieces" in lines[-1] and len(list((tmp_path / "packed").glob("table.pack.*"))) > 1
    there = tmp_path / "there"
    assert len(list(travel.unpack_runs([tmp_path / "packed"], there))) == 4
    ours, theirs = collect.collect([runs]), collect.collect([there])
    assert ours == theirs
    assert list(travel.unpack_runs([tmp_path / "packed"], there)) == []  # what is there stays
    assert collect.collect([there])["commands"] == ours["commands"]
    next(iter((tmp_path / "packed").glob("table.pack.*.001*"))).unlink()
    with pytest.raises(UserError, match="pieces are there"):
        list(travel.unpack_runs([tmp_path / "packed"], tmp_path / "elsewhere"))


def write_adapter(run: Path, checkpoint: str, size: int) -> None:
    for part in ("adapter", "state", "policy"):
        (run / "checkpoints" / checkpoint / part).mkdir(parents=True)
        (run / "checkpoints" / checkpoint / part / "weights").write_bytes(os.urandom(size))


@pytest.mark.parametrize(
    ("seeds", "first", "second"),
    [
        ((1, 2), "seed-2-stage1, the adapter of sft-final", "seed-1-stage1, left out: the adapter of sft-final of"),
        ((1,), "seed-1-stage1, the adapter of sft-final", "seed-1-bucket, left out: the adapter of contrastive-final"),
    ],
)
def test_adapters_when_room_is_short_travel_where_arms_start_from_them_then_the_last_ones(
    runs, tmp_path, seeds, first, second
):
    for seed in seeds:
        for name, arm, at in ((f"seed-{seed}-stage1", "stage1", seed), (f"seed-{seed}-bucket", "bucket", 9.0)):
            records.note_arm(runs / name, arm, records.read_arms(runs / name)[arm] | {"at": at})
            write_adapter(runs / name, f"{arms.ARMS[arm].stage}-final", 40_000)
    adapters = [line for line in travel.pack_runs(runs, set(), tmp_path / "packed", 0.65, 4.0) if "adapter" in line]
    assert adapters[0].startswith(f"packed: {first}") and adapters[1].startswith(f"packed: {second}")


def test_adapters_of_finished_runs_when_there_is_room_travel_too(runs, tmp_path):
    write_adapter(runs / "seed-1-bucket", "contrastive-final", 40_000)
    write_adapter(runs / "seed-1-stage1", "sft-final", 40_000)
    packed, there, again = (tmp_path / name for name in ("packed", "there", "again"))
    lines = list(travel.pack_runs(runs, set(), packed, 0.65, 4.0))
    adapters = [line for line in lines if "adapter" in line]
    assert adapters[0].startswith("packed: seed-1-stage1, the adapter of sft-final, ")
    assert adapters[1].startswith("packed: seed-1-bucket, left out: the adapter of contrastive-final of ")
    assert len(list(travel.unpack_runs([packed], there))) == 4
    checkpoint = there / "seed-1-stage1" / "checkpoints" / "sft-final"
    assert {path.name for path in checkpoint.iterdir()} == {"adapter", "state"}
    assert not (there / "seed-1-bucket" / "checkpoints").exists()
    list(travel.pack_runs(runs, set(), tmp_path / "later", 4.0, 4.0))
    assert list(travel.unpack_runs([tmp_path / "later"], there)) == []
    assert (
        there / "seed-1-bucket" / "checkpoints" / "contrastive-final" / "adapter"
    ).is_dir()  # to results from before
    assert len(list(travel.unpack_runs([tmp_path / "later", packed], again))) == 4  # of several times of packing


def test_run_when_it_cannot_be_packed_states_why(runs, tmp_path):
    write_adapter(runs / "seed-1-bucket", "contrastive-000002", 200_000)
    lines = list(travel.pack_runs(runs, {runs / "seed-1-bucket"}, tmp_path / "packed", 0.7, 4.0))
    (line,) = (line for line in lines if "seed-1-bucket" in line)
    assert "left out (" in line and "does not fit" in line


def test_run_when_its_rollouts_do_not_fit_is_not_packed_without_them(runs, tmp_path):
    write_adapter(runs / "seed-1-bucket", "contrastive-000002", 40_000)
    (runs / "seed-1-bucket" / "rollouts" / "contrastive-000003.parquet").write_bytes(os.urandom(500_000))
    lines = list(travel.pack_runs(runs, {runs / "seed-1-bucket"}, tmp_path / "packed", 0.8, 4.0))
    (line,) = (line for line in lines if "seed-1-bucket" in line)
    assert "left out (its rollouts do not fit into 0." in line


def test_reservations_when_runs_are_not_alike_name_each_kind(tmp_path):
    runs = write_table(tmp_path / "runs", {"grpo": 1.0, "bucket": 2.0}, (1, 2))
    file = runs / "seed-2-bucket" / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["contrastive"] |= {"learning_rate": 1e-3}
    settings["sft"] |= {"learning_rate": 1e-3}
    file.write_text(yaml.safe_dump(settings))
    strategies = {"seed-1-grpo": "none", "seed-2-grpo": "none", "seed-1-bucket": "bucket", "seed-2-bucket": "island"}
    for name, strategy in strategies.items():
        file = runs / name / "config.yaml"
        of_run = yaml.safe_load(file.read_text())
        of_run["exemplars"]["strategy"] = strategy
        file.write_text(yaml.safe_dump(of_run))
    with open(runs / "seed-2-bucket" / "environment.jsonl", "a") as lines:
        lines.write(json.dumps({"environment": {"gpus": "NVIDIA H200, 580.1; NVIDIA H200, 580.1"}}) + "\n")
    rows = [
        row("d", 0.0, degenerate=True), row("v", 0.0, reasons=["evaluator_error"]), row("v", 1.0, reasons=[]),
    ]  # fmt: skip
    with open(runs / "seed-2-bucket" / "assessments.jsonl", "a") as lines:
        lines.writelines(json.dumps(line) + "\n" for line in rows)
    write_lines(runs / "attempts.jsonl", [{"run": f"seed-{n}-grpo", "at": 1.0, "commit": "abc"[n]} for n in (1, 2)])
    result = collect.collect([runs])
    text = "\n".join(reservations.reservations(result))
    budget = settings["contrastive"]
    samples = budget["steps"] * budget["problems_per_step"] * budget["group_size"]
    others = "others had GRPO without contrast, seeds 1, 2: 6"
    assert f"Budget of each arm beyond stage 1: {samples:,} samples; {others}" in text
    assert "contrastive, bucket, seed 2, has other settings than the table: sft.learning_rate was" in text
    assert "exemplars.strategy was 'bucket', is 'island'." in text and "'none'" not in text
    assert "several versions of the code: b (seed-1-grpo); c (seed-2-grpo)" in text
    assert "Runs are of several devices: NVIDIA H100 80GB HBM3 (GRPO without contrast, seed 1, " in text
    assert text.count("NVIDIA H200 (contrastive, bucket, seed 2)") == 1
    assert "output does not depend on the input: d." in text and "failed: contrastive, bucket, seed 2: 1." in text
    assert "d" not in result["arms"]["bucket"]["assessed"]["train"] and all(
        line in table.markdown(result) for line in text.split("\n")
    )


def test_reservations_when_an_arms_first_seed_differs_name_it_alone(tmp_path):
    runs = write_table(tmp_path, {"stage1": 1.0, "grpo": 1.0}, (1, 2))
    file = runs / "seed-1-grpo" / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["evaluation"]["limits"]["call_timeout_s"] = 7.0
    file.write_text(yaml.safe_dump(settings))
    of_settings = [line for line in reservations.reservations(collect.collect([runs])) if "other settings" in line]
    assert len(of_settings) == 1 and "GRPO without contrast, seed 1, " in of_settings[0]


@pytest.mark.parametrize(
    ("run", "key", "value", "is_named"),
    [
        ("seed-1-stage1", "warmup_steps", 7, False),  # a later stage's, which no other run of the table has so
        ("seed-1-grpo", "warmup_steps", 7, True),
        ("seed-1-bucket", "warmup_steps", 7, True),
        ("seed-1-grpo", "learning_rate", 0.0, False),  # an arm's
    ],
)
def test_reservations_when_a_setting_differs_name_the_runs_that_depend_on_it(tmp_path, run, key, value, is_named):
    runs = write_table(tmp_path, {"stage1": 1.0, "grpo": 1.0, "bucket": 1.0}, (1,))
    file = runs / run / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["contrastive"][key] = value
    file.write_text(yaml.safe_dump(settings))
    text = "\n".join(reservations.reservations(collect.collect([runs])))
    assert (f"contrastive.{key} was" in text) == is_named


@pytest.mark.parametrize("control", sorted(CONTROLS))
def test_claims_when_a_policy_is_trained_with_exemplars_compare_it_asked_so_and_with_its_control(tmp_path, control):
    runs = write_table(tmp_path, {"stage1": 1.0, "bucket": 0.5}, (1,))
    file = runs / arms.run_name("bucket", 1) / "assessments.jsonl"
    rows = list(read_json_lines(file))
    problems = sorted({line["problem_id"] for line in rows} - {"h"})
    without = [line | {"stage": "contrastive_without_exemplars"} for line in rows if line["split"] == "train"]
    rows = [*(line for line in rows if line["split"] == "held_out"), *without]
    rows += [row(p, 4.0, copied=copied) for p in problems for copied in (False, True)]
    write_lines(file, rows + [row(p, 2.0, stage=control) for p in problems])
    result = collect.collect([runs])
    text, copies_fail = table.markdown(result), (4.0 * 0.1) ** 0.5
    claims = {bar["bar"]: bar for bar in result["bars"]}
    name = "contrastive, bucket beats {}, geometric mean on training problems"
    for other, of_other in (("stage 1", 1.0), ("its weights before stage 3 with its exemplars", 2.0)):
        claim = claims[name.format(other)]
        assert claim["ratio"] == pytest.approx(4.0 / of_other) and not claim["met"]
        assert claim["without_copies"]["ratio"] == pytest.approx(copies_fail / of_other)
        assert f"{copies_fail / of_other:.2f} (" in text
        assert "with copies as failures; 1 seed | only if copies count |" in text
    ratios = {row["split"]: row["ratio"] for row in result["comparisons"] if row["second"] == "bucket"}
    assert ratios["train, as trained"] == pytest.approx(4.0) and ratios["train"] == pytest.approx(0.5)
    assert table.kinds(result) == [*table.KINDS] and f"**{measured.CONTROL}**" in text


def test_claims_when_stage_2_learnt_from_exemplars_compare_it_asked_with_them(tmp_path):
    runs = write_table(tmp_path, {"stage1": 1.0, "stage2-long": 0.5, "bucket": 3.0}, (1,))
    file = runs / arms.run_name("stage2-long", 1) / "assessments.jsonl"
    rows = list(read_json_lines(file))
    faster = {"stage": "self_supervised_with_own_exemplars", "speedup": 2.0}
    write_lines(file, rows + [line | faster for line in rows if line["split"] == "train"])
    claim, *_ = collect.collect([runs])["bars"]
    assert "beats stages 1 + 2" in claim["bar"] and claim["ratio"] == pytest.approx(3.0 / 2.0)


def test_copies_when_counted_are_exemplars_shown_and_kernels_that_stage_1_learnt_from():
    codes = ["def f(x):\n    return x\n", "def g(y):\n    return y\n", "def f(x):\n    return x + 1\n"]
    rows = [row("p", 2.0, code=code) for code in codes[1:]] + [row("p", 2.0, copied=True), row("p", 0.0, copied=True)]
    counted = measured._assessed(rows, learnt={"p": codes[:1]}, exemplars={}, kind="train")["train"]["p"]
    assert [copied for _, _, copied, _ in counted] == [True, False, True, False]


def test_samples_when_faster_than_every_exemplar_shown_and_no_copies_are_counted(tmp_path):
    runs = write_table(tmp_path, {"stage1": 1.0, "bucket": 0.5}, (1,))
    run = runs / arms.run_name("bucket", 1)
    buffer = ExemplarBuffer.open(run / "exemplars", create=True)
    exemplars = [Exemplar.new("p", f"x = {n}", speedup) for n, speedup in enumerate((1.0, 2.0))]
    buffer.insert(exemplars)
    buffer.save()
    ids = [exemplar.exemplar_id for exemplar in exemplars]
    samples = [(2.05, ids, False), (2.07, ids, False), (2.07, ids, True), (1.04, ids[:1], False)]
    rows = [row("p", speedup, exemplar_ids=of, copied=copied) for speedup, of, copied in samples]
    without = [row("p", 9.0, stage="contrastive_without_exemplars", exemplar_ids=[])]
    write_lines(run / "assessments.jsonl", [*rows, *without])
    assessed = collect.collect([runs])["arms"]["bucket"]["assessed"]
    assert assessed["train with exemplars"]["above_shown"] == 0.5 and assessed["train"]["above_shown"] is None
    write_lines(run / "assessments.jsonl", [*rows, row("p", 2.0, exemplar_ids=["elsewhere"]), *without])
    assert collect.collect([runs])["arms"]["bucket"]["assessed"]["train with exemplars"]["above_shown"] is None


def write_run_with_exemplar(run, exemplar):
    """Write an exemplar and a step of three samples whose prompt showed it: a copy, a faster one, a wrong one."""
    buffer = ExemplarBuffer.open(run / "exemplars", create=True)
    buffer.insert([exemplar])
    buffer.save()
    gained = ((7, 1.0), (8, 1.2), (9, 0.0))
    samples = [evaluated_sample("p", speedup, number, (exemplar.exemplar_id,)) for number, speedup in gained]
    write_rollouts(run / "rollouts", "contrastive", 1, samples, [1.0] * 3, [0.0] * 3)


def test_changes_when_prompts_showed_exemplars_are_counted_over_all_seeds(runs):
    exemplar = Exemplar.new("p", CODE.format(7), 1.0)
    for seed in (1, 2):
        write_run_with_exemplar(runs / arms.run_name("bucket", seed), exemplar)
    result = collect.collect([runs])
    counts = {"copied": [2, 2, 0], "retuned": [4, 2, 2], "rewritten": [0, 0, 0]}
    assert result["arms"]["bucket"]["changes"] == {"step 1": counts}  # prompts of step 2 showed none
    cells = "33%: accepted 100%, faster 0% | 67%: accepted 50%, faster 50% | 0% |"
    assert f"| + contrastive, bucket | 1 | 6 | {cells}" in table.markdown(result)
    del result["arms"]["bucket"]["changes"]  # as in an older result
    assert "retuned" not in table.markdown(result)


def test_techniques_and_changes_when_a_run_is_not_assessed_leave_it_out(runs):
    exemplar = Exemplar.new("p", CODE.format(7), 1.0)
    for seed in (1, 2):
        write_run_with_exemplar(runs / arms.run_name("bucket", seed), exemplar)
    records = {
        seed: record | {"techniques": {"Triton": [2.0]}, "degenerate": []}
        for seed, record in collect.collect([runs])["arms"]["bucket"]["seeds"].items()
    }
    both = collect.result_of({"bucket": records})["arms"]["bucket"]
    records["2"]["assessed"] = {}
    without = collect.result_of({"bucket": records})["arms"]["bucket"]
    assert [of["techniques"]["Triton"]["candidates"] for of in (both, without)] == [2, 1]
    halves = {name: [number // 2 for number in of] for name, of in both["changes"]["step 1"].items()}
    assert without["changes"] == {"step 1": halves} and halves["retuned"] == [2, 1, 1]


def test_results_from_before_when_their_samples_lack_what_was_shown_have_an_empty_column(tmp_path):
    result = collect.collect([write_table(tmp_path / "runs", {"stage1": 1.0, "bucket": 2.0}, (1,))])
    for arm in result["arms"].values():
        for figures_of in arm["assessed"].values():
            del figures_of["above_shown"]
        for kind in (kind for record in arm["seeds"].values() for kind in record["assessed"].values()):
            for samples in kind.values():
                samples[:] = [sample[:3] for sample in samples]
    write_result(old := tmp_path / "old.json", result, {})
    joined = collect.collect([old, write_table(tmp_path / "more", {"stage1": 1.0, "bucket": 2.0}, (2,))])
    for of in (result, joined):
        cells = table.table_rows(of, "train")[-1]
        assert dict(zip(table.FIGURE_HEADINGS, cells[2:], strict=True))["> shown"] == "" and "2.00" in " ".join(cells)


def test_curves_when_drawn_have_a_line_for_each_run_and_name_their_result(runs):
    result = collect.collect([runs])
    picture = curves.svg(result, "arms/x.json")
    assert "arms/x.json" in picture and "contrastive, bucket" in picture and ">stage 1<" not in picture
    assert picture == curves.svg(result, "arms/x.json")
    points = [{"samples": 2, "new": 1.0}, {"samples": 8, "new": 0.0}]
    assert curves.running_mean(points, "new") == [1.0, 0.25]
    for arm in result["arms"].values():
        for record in arm["seeds"].values():
            record["curve"] = record["curve"][:1]
    assert not curves.has_curves(result)
