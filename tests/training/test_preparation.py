"""What a run takes over from another one that it starts from."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cudal1_ray.checking import ServedExemplars
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.exemplars.hardware_buffers import NAME as HARDWARE
from cudal1_ray.exemplars.hardware_buffers import WITHHELD, buffers_of, hardware_of, insert_measured
from cudal1_ray.learning import learner_state
from cudal1_ray.problems import load_problems
from cudal1_ray.training.checkpoints import CheckpointStore, TrainingState, read_state
from cudal1_ray.training.preparation import beginning_from, origin_checkpoint, prepare_run, settle_adapter
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.seeding import seed_exemplars


def finished_run(folder):
    """Return a run that ended its second stage at version 3 of its policy and found more later, and its codes."""
    config = load_config([f"runs_dir={folder}", "name=origin"])
    run = RunFolder.open(config)
    run.policy.mkdir()
    (run.policy / "config.json").write_text("{}")
    buffer = ExemplarBuffer.open(run.exemplars, create=True)
    codes = {version: f"class ModelNew:\n    found = {version}\n" for version in (0, 2, 3, 7)}
    buffer.insert([Exemplar.new("p", code, 1.5, policy_version=version) for version, code in codes.items()])
    buffer.save()
    (run.exemplars / WITHHELD).write_text("{}")
    state = TrainingState(config.seed, config.rewards)
    state.stage, state.stage_finished, state.policy_version = "self_supervised", True, 3
    CheckpointStore(run.checkpoints, keep=1).write(state, lambda path: path.mkdir(), lambda path: path.mkdir())
    return run, codes


def test_a_run_takes_over_what_was_known_when_the_stage_before_its_own_ended(tmp_path):
    origin, codes = finished_run(tmp_path)
    config = load_config([f"runs_dir={tmp_path}", "name=new", "stage=contrastive", f"init_from={origin.path}"])
    run = RunFolder.open(config)
    for _ in range(2):  # a second time nothing is taken over again
        prepare_run(config, run, [], "contrastive")
        assert {exemplar.code for exemplar in ExemplarBuffer.open(run.exemplars)} == {codes[0], codes[2]}
    assert (run.exemplars / WITHHELD).read_text() == "{}" and (run.policy / "config.json").exists()
    assert len(ExemplarBuffer.open(origin.exemplars)) == 4


@pytest.mark.parametrize("name", ["state/state.pkl", "learner/rank-0.pt"])
def test_checkpoint_when_a_file_of_it_is_cut_short_is_refused_by_its_path(tmp_path, name):
    origin, _ = finished_run(tmp_path)
    checkpoint = CheckpointStore(origin.checkpoints, keep=1).latest()
    (checkpoint.learner / learner_state.TAG).mkdir()
    (checkpoint.path / name).write_bytes(b"PK\x03\x04")
    config = load_config([f"runs_dir={tmp_path}", "name=new", "stage=contrastive", f"init_from={origin.path}"])
    with pytest.raises(UserError, match=f"{Path(name).parts[0]}.*: cannot be read .*delete this checkpoint"):
        prepare_run(config, RunFolder.open(config), [], "contrastive")
        beginning_from(config, checkpoint)


def test_run_when_started_from_the_first_stage_takes_over_everything(tmp_path):
    origin, codes = finished_run(tmp_path)
    config = load_config([f"runs_dir={tmp_path}", "name=new", f"init_from={origin.path}"])
    run = RunFolder.open(config)
    prepare_run(config, run, load_problems(config.problems), "sft")
    assert len(ExemplarBuffer.open(run.exemplars)) == len(codes)


def test_run_when_started_from_one_that_never_measured_its_seeds_takes_those_over_too(tmp_path):
    origin, codes = finished_run(tmp_path)
    (origin.exemplars / HARDWARE).write_text('{"hardware": "here"}')
    problem = next(p.problem_id for p in load_problems(load_config([]).problems) if p.split == "train")
    insert_measured(origin.exemplars, "there", [Exemplar.new(problem, codes[7], 2.0)])
    insert_measured(origin.exemplars, "there", [Exemplar.new(problem, codes[3], 3.0, policy_version=3)])
    config = load_config([f"runs_dir={tmp_path}", "name=new", "stage=contrastive", f"init_from={origin.path}"])
    run = RunFolder.open(config)
    prepare_run(config, run, [], "contrastive")
    assert [e.code for e in ExemplarBuffer.open(run.path / "exemplars.there")] == [codes[7]]  # not what was found later
    assert hardware_of(run.path / "exemplars.there") == "there" and hardware_of(run.exemplars) == "here"

    seeds = f"exemplars.seed_from={origin.path}"
    config = load_config([f"runs_dir={tmp_path}", "name=seeded", seeds])
    seeded = RunFolder.open(config)
    seed_exemplars(config, seeded, load_problems(config.problems))
    assert hardware_of(seeded.exemplars) == "there" and len(ExemplarBuffer.open(seeded.exemplars)) == 2


def test_run_when_killed_while_it_changes_hardware_keeps_its_exemplars(tmp_path):
    origin, codes = finished_run(tmp_path)
    insert_measured(origin.exemplars, "there", [Exemplar.new("p", codes[7], 2.0)])
    config = load_config([f"runs_dir={tmp_path}", "name=new", f"init_from={origin.path}"])
    run = RunFolder.open(config)
    prepare_run(config, run, load_problems(config.problems), "sft")
    insert_measured(run.exemplars, "there", [Exemplar.new("p", "x = 1", 9.0)])
    shutil.rmtree(run.exemplars)  # moved beside those by a switch that went no further
    prepare_run(config, run, load_problems(config.problems), "sft")
    assert [exemplar.speedup for exemplar in ExemplarBuffer.open(run.path / "exemplars.there")] == [2.0, 9.0]


def prepared(folder, origin, problems, *overrides):
    """Return a new run with the policy of `origin`, prepared for stage 1."""
    config = load_config([f"runs_dir={folder}", "name=seeded", f"init_from={origin}", *overrides])
    run = RunFolder.open(config)
    prepare_run(config, run, problems, "sft")
    return run


def test_run_when_it_has_seeds_starts_with_those_of_its_training_problems(tmp_path):
    origin, codes = finished_run(tmp_path)
    problems = load_problems(load_config([]).problems)
    training = next(problem.problem_id for problem in problems if problem.split == "train")
    held_out = next(problem.problem_id for problem in problems if problem.split == "held_out")
    texts = [f"class ModelNew:\n    number = {number}\n" for number in range(5)]
    table = {"problem": [training, training, held_out, training, training], "code": texts}
    table |= {"speedup": [2.0, None, 3.0, 4.0, 5.0], "hardware": ["here", "here", "here", "there", None]}
    pq.write_table(pa.table(table), tmp_path / "seeds.parquet")
    (origin.exemplars / HARDWARE).write_text('{"hardware": "here"}')
    run = prepared(tmp_path, origin.path, problems, f"exemplars.seed_from={tmp_path / 'seeds.parquet'}")
    buffer = ExemplarBuffer.open(run.exemplars)
    assert [(exemplar.code, exemplar.speedup) for exemplar in buffer if exemplar.problem_id != "p"] == [(texts[0], 2.0)]
    assert len(buffer) == len(codes) + 1  # beside what the other run had
    for hardware, code in (("there", texts[3]), ("unrecorded", texts[4])):  # never mixed with what was measured here
        (exemplar,) = ExemplarBuffer.open(run.exemplars.with_name(f"exemplars.{hardware}"))
        assert exemplar.code == code


def test_seeds_when_several_devices_measured_them_are_in_the_buffer_of_each(tmp_path):
    origin, _ = finished_run(tmp_path)
    problems = load_problems(load_config([]).problems)
    training = next(problem.problem_id for problem in problems if problem.split == "train")
    texts = [f"class ModelNew:\n    number = {number}\n" for number in range(3)]
    table = {"problem": [training] * 3, "code": texts, "speedup": [2.0, 3.0, None], "hardware": ["here", "here", None]}
    speedups = [[("here", 2.0), ("there", 2.5)], None, [("there", 4.0)]]
    table["speedups"] = pa.array(speedups, pa.map_(pa.string(), pa.float64()))
    pq.write_table(pa.table(table), tmp_path / "seeds.parquet")
    (origin.exemplars / HARDWARE).write_text('{"hardware": "here"}')
    run = prepared(tmp_path, origin.path, problems, f"exemplars.seed_from={tmp_path / 'seeds.parquet'}")
    for folder, expected in (("exemplars", [2.0, 3.0]), ("exemplars.there", [2.5, 4.0])):
        buffer = ExemplarBuffer.open(run.path / folder)
        assert sorted(exemplar.speedup for exemplar in buffer if exemplar.problem_id == training) == expected
    assert not run.exemplars.with_name("exemplars.unrecorded").exists()


def test_seeds_when_their_run_withholds_a_hack_on_one_device_leave_it_out_of_all(tmp_path):
    problems = load_problems(load_config([]).problems)
    training = next(problem.problem_id for problem in problems if problem.split == "train")
    origin = RunFolder.open(load_config([f"runs_dir={tmp_path}", "name=origin"]))
    honest, hack = "class ModelNew:\n    number = 0\n", "class ModelNew:\n    number = 1\n"
    for hardware in ("here", "there"):
        measured = [Exemplar.new(training, code, speedup) for code, speedup in ((honest, 2.0), (hack, 9.0))]
        insert_measured(origin.exemplars, hardware, measured)
    ServedExemplars(ExemplarBuffer.open(origin.exemplars)).withhold([(training, hack)])
    config = load_config([f"runs_dir={tmp_path}", "name=seeded", f"exemplars.seed_from={origin.path}"])
    run = RunFolder.open(config)
    seed_exemplars(config, run, problems)
    for folder in (run.exemplars, run.path / "exemplars.there"):
        assert [exemplar.code for exemplar in ExemplarBuffer.open(folder)] == [honest]


@pytest.mark.parametrize(
    "differs, expected",
    [
        ("", ["here", "here"]),
        ("text", ["unrecorded", "here"]),
        ("evaluation/rules=strict", ["unrecorded", "unrecorded"]),
        ("evaluation.against=compile", ["unrecorded", "unrecorded"]),
    ],
)
def test_seeds_when_their_run_measured_otherwise_are_those_of_no_hardware(tmp_path, differs, expected):
    problems = [p for p in load_problems(load_config([]).problems) if p.split == "train"][:2]
    origin = RunFolder.open(load_config([f"runs_dir={tmp_path}", "name=origin"]))
    origin.record_problems(problems)
    insert_measured(origin.exemplars, "here", [Exemplar.new(p.problem_id, "x = 1", 2.0) for p in problems])
    overrides = [f"runs_dir={tmp_path}", "name=new", f"exemplars.seed_from={origin.path}"]
    config = load_config(overrides + [differs] * ("=" in differs))
    run = RunFolder.open(config)
    if differs == "text":
        problems[0] = replace(problems[0], source=problems[0].source + "SIZE = 2\n")
    seed_exemplars(config, run, problems)
    assert hardware_by_problem(run) == dict(zip([problem.problem_id for problem in problems], expected, strict=True))


def hardware_by_problem(run):
    return {e.problem_id: hardware_of(place) for place in buffers_of(run.exemplars) for e in ExemplarBuffer.open(place)}


def test_exemplars_when_the_run_begun_from_measured_otherwise_are_those_of_no_hardware(tmp_path):
    origin, _ = finished_run(tmp_path)
    first, second = problems = [p for p in load_problems(load_config([]).problems) if p.split == "train"][:2]
    origin.record_problems(problems)
    (origin.exemplars / HARDWARE).write_text('{"hardware": "here"}')
    insert_measured(origin.exemplars, "here", [Exemplar.new(p.problem_id, "x = 1", 2.0) for p in problems])
    larger = replace(first, source=first.source + "SIZE = 2\n")
    config = load_config([f"runs_dir={tmp_path}", "name=new", "stage=contrastive", f"init_from={origin.path}"])
    run = RunFolder.open(config)
    for _ in range(2):
        prepare_run(config, run, [larger, second], "contrastive")
        assert hardware_by_problem(run) == {first.problem_id: "unrecorded", second.problem_id: "here", "p": "here"}


@pytest.mark.parametrize("key", ["exemplars.seed_from", "sft.corpus"])
def test_corpus_when_it_has_no_candidate_for_the_runs_problems_names_its_key(tmp_path, key):
    origin, _ = finished_run(tmp_path)
    table = {"problem": ["another"], "code": ["class ModelNew: 1"], "speedup": [2.0]}
    pq.write_table(pa.table(table), tmp_path / "other.parquet")
    problems = load_problems(load_config([]).problems)
    with pytest.raises(UserError, match=f"{key}=.*24 training problems"):
        prepared(tmp_path, origin.path, problems, f"{key}={tmp_path / 'other.parquet'}")


def test_init_from_when_given_takes_the_stage_before_or_the_last_checkpoint_or_the_named_one(tmp_path):
    origin, codes = finished_run(tmp_path)
    state = TrainingState(1, load_config([]).rewards)
    state.stage, state.step, state.policy_version = "contrastive", 4, 7
    CheckpointStore(origin.checkpoints, keep=1).write(state, lambda path: path.mkdir(), lambda path: path.mkdir())

    def chosen(init_from, stage="contrastive"):
        config = load_config([f"runs_dir={tmp_path}", "name=new", f"stage={stage}", f"init_from={init_from}"])
        return origin_checkpoint(config, RunFolder(tmp_path / "new"), stage)

    assert chosen(origin.path).path.name == "self_supervised-final"
    assert chosen(origin.path, "self_supervised").path.name == "contrastive-000004"  # it has no finished sft stage
    assert chosen(origin.checkpoints / "contrastive-000004").path.name == "contrastive-000004"
    assert read_state(chosen(origin.checkpoints / "contrastive-000004")).step == 4
    with pytest.raises(UserError, match="no run, checkpoint or adapter is there"):
        chosen(tmp_path / "nowhere")


def test_model_folder_when_linked_must_be_the_same_where_the_run_goes_on(tmp_path):
    for name, content in (("one", b"weights"), ("moved", b"weights"), ("other", b"Weights")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    base = [f"runs_dir={tmp_path}", "name=new", "policy=huggingface", "stage=contrastive"]

    def prepared_with(name):
        config = load_config([*base, f"policy.path={tmp_path}/{name}"])
        run = RunFolder.open(config)
        prepare_run(config, run, [], "contrastive")
        return run

    run = prepared_with("one")
    assert run.policy.is_symlink() and run.policy.resolve() == tmp_path / "one"
    run.metrics.write_text('{"stage": "contrastive", "step": 1}\n')
    assert prepared_with("moved").policy.resolve() == tmp_path / "one"  # which is there
    with pytest.raises(UserError, match="not the policy that .* began with"):
        prepared_with("other")
    assert prepared_with("one").policy.resolve() == tmp_path / "one"
    shutil.rmtree(tmp_path / "one")  # the run is continued on another machine
    assert prepared_with("moved").policy.resolve() == tmp_path / "moved"
    shutil.rmtree(tmp_path / "moved")
    with pytest.raises(UserError, match="not the policy that .* began with"):
        prepared_with("other")


def test_policy_when_corrected_before_a_finished_step_is_the_one_that_is_prepared(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    base = [f"runs_dir={tmp_path}", "name=new", "recipe=none", "stage=contrastive"]

    def started(*overrides):
        config = load_config([*base, *overrides])
        run = RunFolder.open(config)
        prepare_run(config, run, [], "contrastive")
        return run

    started(f"policy.path={tmp_path}/one").assessments.write_text("{}\n")  # of the wrong policy
    run = started(f"policy.path={tmp_path}/other")
    assert run.policy.resolve() == tmp_path / "other" and not run.assessments.exists()
    origin, codes = finished_run(tmp_path)
    run = started(f"policy.path={tmp_path}/other", f"init_from={origin.path}")
    assert run.policy.resolve() == origin.policy.resolve() and len(ExemplarBuffer.open(run.exemplars)) == 2
    run = started(f"policy.path={tmp_path}/other")
    assert run.policy.resolve() == tmp_path / "other" and not run.exemplars.exists()


def test_exemplars_when_settings_are_corrected_before_a_finished_step_are_those_that_they_give(tmp_path):
    origin, codes = finished_run(tmp_path)
    problems = load_problems(load_config([]).problems)
    training = next(problem.problem_id for problem in problems if problem.split == "train")
    seeds = {name: [f"class ModelNew:\n    {name} = {n}\n" for n in range(2)] for name in ("wrong", "right")}
    for name, texts in seeds.items():
        table = {"problem": [training] * 2, "code": texts, "speedup": [2.0, 3.0]}
        pq.write_table(pa.table(table | {"hardware": ["here", name]}), tmp_path / f"{name}.parquet")

    def started(name, *overrides):
        run = prepared(tmp_path, origin.path, problems, f"exemplars.seed_from={tmp_path}/{name}.parquet", *overrides)
        places = [run.exemplars, *run.path.glob("exemplars.*")]
        return {exemplar.code for place in places for exemplar in ExemplarBuffer.open(place)}

    started("wrong")
    everything = {*codes.values(), *seeds["right"]}
    assert started("right") == everything
    assert started("right", "prompting.max_prompt_tokens=900") == everything


def test_adapter_when_corrected_before_a_finished_step_is_the_one_that_is_read(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    for rank in (4, 8):
        (tmp_path / f"rank{rank}").mkdir()
        (tmp_path / f"rank{rank}" / "adapter_config.json").write_text(f'{{"r": {rank}, "lora_alpha": 16}}')
    monkeypatch.setenv("HOME", str(tmp_path))
    base = [f"runs_dir={tmp_path}", "name=new", "recipe=none", "stage=contrastive", f"policy.path={tmp_path}/model"]

    def started(key, adapter):
        config = load_config([*base, f"{key}={adapter}"])
        settle_adapter(config)
        run = RunFolder.open(config)
        prepare_run(config, run, [], "contrastive")
        return config.policy.lora_rank, json.loads((run.adapter / "adapter_config.json").read_text())["r"]

    assert started("policy.adapter", tmp_path / "rank4") == (4, 4)
    assert started("policy.adapter", "~/rank8") == (8, 8)
    assert started("init_from", tmp_path / "rank4") == (4, 4)
    shutil.rmtree(tmp_path / "rank4")  # the run is continued elsewhere, with what it took along
    assert started("init_from", tmp_path / "rank4") == (4, 4)


def test_rank_when_several_stages_begin_from_another_run_is_that_of_its_checkpoint(tmp_path):
    origin, _ = finished_run(tmp_path)
    adapter = origin.checkpoints / "self_supervised-final" / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 16}')

    def rank(stage):
        base = [f"runs_dir={tmp_path}", "name=new", "recipe=none", "policy.path=x"]
        config = load_config([*base, f"stage={stage}", f"init_from={origin.path}"])
        settle_adapter(config)
        return config.policy.lora_rank

    assert rank("contrastive") == rank("self_supervised+contrastive") == 4
    assert rank("sft+contrastive") == rank("all") == 0  # stage 1 begins from that run's initial policy
