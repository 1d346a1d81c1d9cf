"""A run that goes on with another GPU: neither verdicts nor exemplars of the two are mixed, and none are lost."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.actors.exemplars import ExemplarActor
from cudal1_ray.config import load_config
from cudal1_ray.evaluation import Verdict
from cudal1_ray.evaluation.hardware import Machine
from cudal1_ray.exemplars import Exemplar
from cudal1_ray.exemplars.hardware_buffers import UNRECORDED, insert_measured, switch
from cudal1_ray.files import JsonLines
from cudal1_ray.problems import Problem, corpus_sources, load_problems, read_corpus
from cudal1_ray.training.assessment import shows_exemplars
from cudal1_ray.training.journal import VerdictJournal
from cudal1_ray.training.pipeline import Pipeline
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.seeding import seed_exemplars
from cudal1_ray.training.session import MEASURED_AGAIN
from cudal1_ray.training.stages.contrastive import run_contrastive
from cudal1_ray.training.stages.self_supervised import run_self_supervised
from cudal1_ray.training.stages.sft import begin_corpus, validate_corpus
from tests.training.scripted_run import open_session
from tests.training.stages.test_sft_stage import Tokenizer

H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"


def verdict(speedup: float, hardware: str) -> Verdict:
    return Verdict("p", "accepted", speedup=speedup, credited_speedup=speedup, hardware=hardware)


def test_verdict_when_the_hardware_is_another_does_not_hold(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    journal = VerdictJournal(path, H100)
    journal.add("training", "measured", verdict(2.0, H100))
    journal.add("training", "unbuilt", Verdict.rejected("p", "compile_error"))  # before any hardware saw it
    elsewhere = VerdictJournal(path, H200)
    assert elsewhere.get("training", "measured") is None
    assert elsewhere.get("training", "unbuilt").reasons == ("compile_error",)
    elsewhere.add("training", "measured", verdict(3.0, H200))
    assert VerdictJournal(path, H100).get("training", "measured").speedup == 2.0
    assert VerdictJournal(path, H200).get("training", "measured").speedup == 3.0
    assert len(VerdictJournal(path, H200).verdicts("training")) == 3


def test_journal_when_of_an_earlier_version_is_read(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    row = verdict(2.0, "").to_dict()
    del row["hardware"], row["own_kernel"], row["flags"]
    path.write_text(json.dumps({"scope": "training", "key": "old", "verdict": row}) + "\n")
    assert VerdictJournal(path, H100).get("training", "old").speedup == 2.0


def test_exemplars_when_of_other_hardware_wait_until_the_run_is_back_there(tmp_path):
    config = load_config([]).exemplars
    codes = [f"class ModelNew:\n    number = {n}\n" for n in range(4)]
    actor = ExemplarActor(str(tmp_path / "exemplars"), config)
    assert actor.use_hardware(H100, 2) == []
    actor.insert([Exemplar.new("p", code, speedup) for code, speedup in zip(codes, (1.0, 3.0, 0.0, 2.0), strict=True)])
    actor.withhold([("p", codes[1])])

    there = ExemplarActor(str(tmp_path / "exemplars"), config)
    again = there.use_hardware(H200, 2)
    assert [exemplar.speedup for exemplar in again] == [2.0, 1.0] and there.size() == 0  # nothing that is withheld
    there.insert([Exemplar.new("p", codes[3], 5.0), Exemplar.new("p", codes[1], 9.0)])
    assert there.best("p").speedup == 5.0  # what was withheld there is withheld here

    back = ExemplarActor(str(tmp_path / "exemplars"), config)
    assert back.use_hardware(H100, 2) == [] and back.best("p").speedup == 2.0
    assert back.use_hardware(H200, 2) == [] and back.best("p").speedup == 5.0


def actor_on(folder: Path, device: str) -> ExemplarActor:
    actor = ExemplarActor(str(folder), load_config([]).exemplars)
    actor.use_hardware(device, 2)
    return actor


@pytest.mark.parametrize("restarted_on", [H100, H200])
def test_exemplars_when_a_switch_is_killed_between_its_renames_are_served_after_it(tmp_path, monkeypatch, restarted_on):
    folder, rename = tmp_path / "exemplars", Path.rename
    measured, hack = "class ModelNew:\n    number = 0\n", "class ModelNew:\n    number = 1\n"
    for device, speedup in ((H100, 2.0), (H200, 5.0)):
        actor_on(folder, device).insert([Exemplar.new("p", measured, speedup)])
    actor_on(folder, H100).withhold([("p", hack)])

    def rename_until_killed(path: Path, target: Path) -> Path:
        if path != folder:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", rename_until_killed)
        switch(folder, H200)
    for device in (restarted_on, H100, H200):
        actor = actor_on(folder, device)
        actor.insert([Exemplar.new("p", hack, 9.0)])
        assert (actor.size(), actor.best("p").speedup) == (1, {H100: 2.0, H200: 5.0}[device])


def test_seeds_when_other_hardware_measured_them_are_to_be_measured_again_and_not_served(tmp_path):
    settings, folder = load_config([]).exemplars, tmp_path / "exemplars"
    codes = [f"class ModelNew:\n    number = {n}\n" for n in range(4)]
    insert_measured(folder, H100, [Exemplar.new("p", codes[0], 2.0), Exemplar.new("q", codes[1], 1.5)])
    insert_measured(folder, H200, [Exemplar.new("p", codes[2], 4.0)])
    insert_measured(folder, UNRECORDED, [Exemplar.new("r", codes[3], 9.0)])
    actor = ExemplarActor(str(folder), settings)
    again = actor.use_hardware(H200, 2)
    assert {(each.problem_id, each.speedup) for each in again} == {("p", 2.0), ("q", 1.5), ("r", 9.0)}
    assert actor.best_speedups(["p", "q", "r"]) == {"p": 4.0, "q": 0.0, "r": 0.0}
    interrupted = ExemplarActor(str(folder), settings)  # before anything was measured again
    assert interrupted.use_hardware(H200, 2) == again
    interrupted.insert([Exemplar.new("q", codes[1], 1.1), Exemplar.new("r", codes[0], 7.0)])
    further = ExemplarActor(str(folder), settings).use_hardware(H200, 2)
    assert [each.problem_id for each in further] == ["p", "r"]  # a candidate of the run's own replaces no seed


def test_seeds_when_two_other_devices_measured_them_count_once_among_the_fastest(tmp_path):
    settings, folder = load_config([]).exemplars, tmp_path / "exemplars"
    codes = [f"class ModelNew:\n    number = {n}\n" for n in range(3)]
    for hardware, factor in ((H100, 1.0), (H200, 1.125)):
        exemplars = [Exemplar.new("p", code, factor * (n + 1)) for n, code in enumerate(codes)]
        insert_measured(folder, hardware, exemplars)
    again = ExemplarActor(str(folder), settings).use_hardware("NVIDIA A100", 2)
    assert [(each.code, each.speedup) for each in again] == [(codes[2], 3.375), (codes[1], 2.25)]


TRAIN = [p.problem_id for p in load_problems(load_config([]).problems) if p.split == "train"]


def seeded(folder, *overrides: str):
    """Return a session on an H200, whose run began with a seed for each training problem that an H100 measured."""
    if not (folder / "run").exists():
        seeds = [Exemplar.new(problem, "class ModelNew(Model):\n    gain = 4", 9.0) for problem in TRAIN]
        insert_measured(folder / "run" / "exemplars", H100, seeds)
    settings = ["assessment.every_steps=0", "algorithm.kl_coef=0"]
    settings += ["exemplars.headroom=1", "contrastive.one_shot_share=0"]  # every prompt shows a seed, a single one too
    session = open_session(folder, *settings, *overrides)
    session.crew.learner.start_stage = lambda *arguments, **names: None
    session.crew.machine = Machine(H200)
    session.settle_hardware()
    return session


def measured_here(session) -> list[str]:
    """Return the problems whose seed the run serves as the scripted evaluator measured it."""
    seeds = ((problem, session.crew.buffer.best(problem)) for problem in TRAIN)
    return [problem for problem, best in seeds if best is not None and best.step == 0 and best.speedup == 5.0]


def test_run_when_other_hardware_measured_its_seeds_measures_those_of_asked_problems_once_before_it_shows_any(tmp_path):
    session = seeded(tmp_path, "problems.asked=3", "contrastive.steps=1")
    assert session.crew.evaluations.evaluated.total() == 0 and session.crew.buffer.size() == 0
    retired, *rotation = session.rotation
    session.state.problems.retired = lambda problem_id: problem_id == retired
    run_contrastive(session, lambda *arguments: None)
    assert session.progress._notes[0] == f"measuring 2 exemplars again on {H200}"
    selections = {row["problem_id"]: row["exemplar_ids"] for row in JsonLines(session.run.selections)}
    assert sorted(selections) == rotation and all(selections.values())
    keys = [row["key"] for row in session.journal._lines]
    assert len(keys) == len(set(keys)) == session.crew.evaluations.evaluated.total() == session.progress._evaluations

    shutil.rmtree(tmp_path / "run" / "exemplars")  # a kill before what was measured was saved
    insert_measured(tmp_path / "run" / "exemplars", H200, [])
    again = seeded(tmp_path, "problems.asked=3", "contrastive.steps=1")
    again.measure_exemplars(rotation)
    assert again.crew.evaluations.evaluated.total() == 0 and again.progress._evaluations == len(keys)
    assert measured_here(again) == rotation


@pytest.mark.parametrize(
    ("run_stage", "overrides", "shows"),
    [
        (run_contrastive, ["exemplars=none"], False),
        (run_self_supervised, ["self_supervised.rounds=1"], False),
        (run_self_supervised, ["self_supervised.rounds=2", "self_supervised.exemplar_prompts=false"], False),
        (run_self_supervised, ["self_supervised.rounds=2"], True),
    ],
)
def test_stage_when_its_prompts_show_exemplars_measures_seeds_and_else_none(
    tmp_path, monkeypatch, run_stage, overrides, shows
):
    monkeypatch.setattr(Pipeline, "run", lambda *arguments: None)
    session = seeded(tmp_path, *overrides)
    run_stage(session, *([lambda *arguments: None] if run_stage is run_contrastive else []))
    assert measured_here(session) == (TRAIN if shows else [])


def test_assessment_when_it_shows_exemplars_measures_those_of_its_problems(tmp_path):
    session = seeded(tmp_path)
    assert shows_exemplars(session, session.train_problems[:2])
    assert measured_here(session) == TRAIN[:2] and session.crew.buffer.size() == 2
    assert not shows_exemplars(seeded(tmp_path / "without", "exemplars=none"), session.train_problems[:2])


def test_seed_when_the_corpus_of_stage_1_has_it_too_is_evaluated_once(tmp_path):
    entry = tmp_path / "corpus" / TRAIN[0] / "four.py"
    entry.parent.mkdir(parents=True)
    entry.write_text("class ModelNew(Model):\n    gain = 4")
    session = seeded(tmp_path, f"sft.corpus={tmp_path / 'corpus'}")
    corpus = begin_corpus(session)
    session.measure_exemplars(TRAIN[:1])
    corpus.finish()
    assert corpus.verdicts[f"{TRAIN[0]}/four"].speedup == 5.0 and measured_here(session) == TRAIN[:1]
    assert session.crew.evaluations.evaluated.total() == 1 == len(session.journal._lines)


def session_on(folder, device: str, corpus, *more: str):
    settings = (f"sft.corpus={corpus}", f"prompting.related_from={corpus}", *more)
    return open_session(folder, *settings, machine=Machine(device, on_gpu=True))


def test_corpus_when_several_devices_measured_it_is_taken_and_shown_as_the_runs_own_did(tmp_path):
    train = [p.problem_id for p in load_problems(load_config([]).problems) if p.split == "train"][:3]
    speedups = [[(H100, 2.0), (H200, 1.75)], [(H100, 2.0), (H200, 1.5)], [(H100, 1.25)]]
    columns = {
        "problem": train,
        "code": [f"class ModelNew:\n    number = {n}\n" for n in range(3)],
        "speedup": [row[0][1] for row in speedups],
        "hardware": [H100] * 3,
        "speedups": pa.array(speedups, pa.map_(pa.string(), pa.float64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "corpus.parquet")

    def outcome(device: str):
        session = session_on(tmp_path / device, device, tmp_path / "corpus.parquet", "prompting.style=full")
        session.settle_hardware()
        session.crew.tokenizer = Tokenizer()
        entries, taken = validate_corpus(session)
        assert session.crew.evaluations.evaluated.total() == 0
        text = session.prompts.one_shot(session.problems[train[0]]).text
        in_prompt = sorted(re.findall(r"a kernel for another problem, .*: (\S+)x there", text))
        return [taken[entry.entry_id] for entry in entries], in_prompt, session.progress._notes

    assert outcome(H100) == ([2.0, 2.0, 1.25], ["1.25", "2.00"], [])
    taken, in_prompt, (related, recorded) = outcome(H200)
    assert (taken, in_prompt) == ([1.75, 1.5, 1.25], ["1.25", "1.50"])
    assert f"as recorded, 1 on {H100}; this is {H200}" in related
    assert f"as recorded, 1 on {H100}; this is {H200}" in recorded


def test_seeds_when_the_device_measured_the_corpus_of_the_recipes_are_not_measured_again(tmp_path):
    names = {entry.problem_id for entry in read_corpus("kernelbench") if "-l3-" not in entry.problem_id}
    problems = [Problem(name, "", name, split="train") for name in names]  # levels 1 and 2, as the recipes have them
    seeds = [f"runs_dir={tmp_path}", "exemplars.seed_from=kernelbench"]
    config = load_config([*seeds, "name=run", "problems.sizes=scaled"])
    run = RunFolder.open(config)
    seed_exemplars(config, run, problems)
    actor = ExemplarActor(str(run.exemplars), load_config([]).exemplars)
    on_h100 = {entry.problem_id for entry in read_corpus("kernelbench") if H100 in entry.speedups}
    assert actor.use_hardware(H200, MEASURED_AGAIN) == []
    assert {exemplar.problem_id for exemplar in actor.use_hardware(H100, MEASURED_AGAIN)} == names - on_h100
    elsewhere = actor.use_hardware("NVIDIA A100", MEASURED_AGAIN)
    assert len({exemplar.exemplar_id for exemplar in elsewhere}) == len(elsewhere) > 300
    config = load_config([*seeds, "name=paper", "problems.sizes=paper"])
    in_paper_sizes = RunFolder.open(config)
    seed_exemplars(config, in_paper_sizes, problems)
    actor = ExemplarActor(str(in_paper_sizes.exemplars), load_config([]).exemplars)
    assert {exemplar.problem_id for exemplar in actor.use_hardware(H200, MEASURED_AGAIN)} == names and not actor.size()


def test_corpus_when_another_device_measured_it_is_noted(tmp_path):
    train = [p.problem_id for p in load_problems(load_config([]).problems) if p.split == "train"][:3]
    rows = [{"problem": name, "code": f"class ModelNew:\n    number = {n}\n"} for n, name in enumerate(train)]
    for row, fields in zip(rows, ({"hardware": H100}, {"hardware": H200}, {}), strict=True):
        row.update(fields, speedup=1.5)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "corpus.parquet")

    def notes(device: str, *more: str) -> list[str]:
        session = session_on(tmp_path / f"{device} {more}", device, tmp_path / "corpus.parquet", *more)
        session.settle_hardware()
        begin_corpus(session)
        return session.progress._notes

    related, taken = notes(H200)
    others = f"recorded, 1 on {H100}, 1 on a device that is not recorded; this is {H200}"
    assert related.startswith("prompting.related_from=") and others in related
    assert taken.startswith("sft.corpus=") and others in taken and "sft.recorded_verdicts=false" in taken
    (related,) = notes(H100, "sft.recorded_verdicts=false")
    assert f"recorded, 1 on {H200}, 1 on a device" in related


def test_corpus_when_it_was_measured_in_other_sizes_is_noted(tmp_path, monkeypatch):
    train = next(p.problem_id for p in load_problems(load_config([]).problems) if p.split == "train")
    row = {"problem": train, "code": "class ModelNew:\n    number = 0\n", "hardware": H200, "speedup": 1.5}
    pq.write_table(pa.Table.from_pylist([row]), file := tmp_path / "corpus.parquet")
    for name, value in (("KERNELBENCH", str(file)), ("_KERNELBENCH_FILE", file)):
        monkeypatch.setattr(corpus_sources, name, value)
    session = session_on(tmp_path / "run", H200, file)
    session.settle_hardware()
    begin_corpus(session)
    related, taken = session.progress._notes
    others = "as recorded, at problems.sizes=scaled; this run has problems.sizes=published"
    assert related.startswith("prompting.related_from=") and others in related
    assert taken.startswith("sft.corpus=") and others in taken and "sft.recorded_verdicts=false" in taken
    assert corpus_sources.sizes_measured_in(str(file), "scaled") == "" == corpus_sources.sizes_measured_in("x", "paper")


def test_exemplars_when_of_an_earlier_version_are_taken_to_be_of_this_hardware(tmp_path):
    actor = ExemplarActor(str(tmp_path / "exemplars"), load_config([]).exemplars)
    actor.insert([Exemplar.new("p", "class ModelNew: pass", 1.5)])
    assert actor.use_hardware(H200, 2) == [] and actor.size() == 1


def test_exemplars_when_of_an_earlier_version_are_joined_with_seeds_of_this_hardware(tmp_path):
    folder = tmp_path / "exemplars"
    ExemplarActor(str(folder), load_config([]).exemplars).insert([Exemplar.new("p", "class ModelNew: pass", 1.5)])
    insert_measured(folder, H200, [Exemplar.new("q", "class ModelNew: pass", 2.0)])
    assert actor_on(folder, H200).best_speedups("pq") == {"p": 1.5, "q": 2.0}
    assert (actor_on(folder, H100).size(), actor_on(folder, H200).size()) == (0, 2)
