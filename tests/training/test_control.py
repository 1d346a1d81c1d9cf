"""The control of a contrastive run: due until it is made, where it can be made."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cudal1_ray.config import Config, load_config
from cudal1_ray.files import read_json_lines
from cudal1_ray.learning import PolicyConfig, TrainingSequence, build_policy, save_policy
from cudal1_ray.training.checkpoints import TrainingState
from cudal1_ray.training.run_folder import RunFolder
from cudal1_ray.training.stopping import RunStopped, Stopper
from cudal1_ray.training.train import _run_with_crew, is_finished, steps_of
from cudal1_ray.uncollected import imported_to_stay
from tests.training.scripted_run import STEPS, open_session, run_stage

OWN = ("contrastive", "contrastive_without_exemplars")
SHAPE = PolicyConfig(
    kind="scratch", hidden_size=32, layers=1, heads=1, intermediate_size=64, vocab_size=300, max_position=64
)


def write_rows(run: RunFolder, stages: tuple[str, ...]) -> None:
    run.assessments.write_text("".join(json.dumps({"stage": stage}) + "\n" for stage in stages))


def write_final(run: RunFolder, config: Config, stage: str) -> Path:
    """Write a stage's final checkpoint, with a learner's files as far as `learner_state.obstacle` reads them."""
    folder, state = run.checkpoints / f"{stage}-final", TrainingState(config.seed, config.rewards)
    state.stage, state.step, state.stage_finished = stage, steps_of(config, stage), True
    state.save_to_path(str(folder / "state"))
    (folder / "learner" / "deepspeed").mkdir(parents=True)
    shape = {"world_size": config.cluster.learner.count, "zero_stage": config.learner.zero_stage}
    torch.save({"shape": shape}, folder / "learner" / "rank-0.pt")
    return folder


def config_of(folder: Path, *overrides: str) -> Config:
    return load_config([f"runs_dir={folder}", "name=run", "stage=contrastive", *overrides])


@pytest.fixture
def run(tmp_path) -> RunFolder:
    """Return a run that was assessed after its contrastive stage and ended before its control; its start is a stage of
    its own.
    """
    config = config_of(tmp_path)
    run = RunFolder.of(config)
    for stage in ("sft", "contrastive"):
        write_final(run, config, stage)
    write_rows(run, OWN)
    return run


@pytest.mark.parametrize("start", ["own", "init_from"])
def test_run_when_its_control_is_missing_is_not_finished(run, tmp_path, start):
    overrides = []
    if start == "init_from":
        other = tmp_path / "other" / "checkpoints" / "sft-final"
        other.parent.mkdir(parents=True)
        (run.checkpoints / "sft-final").rename(other)
        overrides = [f"init_from={other}"]
    assert not is_finished(config_of(tmp_path, *overrides))
    write_rows(run, (*OWN, "sft_with_exemplars"))
    assert is_finished(config_of(tmp_path, *overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["assessment.enabled=false"],
        ["assessment.control=false"],
        ["contrastive.learning_rate=0"],  # a policy that stays as it is
        ["cluster.learner.count=2"],  # takes no weights of one rank
        ["stage=sft", "assessment.enabled=false"],
    ],
)
def test_run_when_its_settings_allow_no_control_is_finished(run, tmp_path, overrides):
    assert is_finished(config_of(tmp_path, *overrides))


@pytest.mark.parametrize("missing", ["exemplars", "start", "weights"])
def test_run_when_no_control_can_be_made_is_finished(run, tmp_path, missing):
    if missing == "exemplars":
        write_rows(run, OWN[:1])
    elif missing == "start":
        (run.checkpoints / "sft-final").rename(tmp_path / "elsewhere")
    else:
        (run.checkpoints / "sft-final" / "learner").rename(tmp_path / "elsewhere")
    assert is_finished(config_of(tmp_path))


def go_on(config: Config, run: RunFolder, monkeypatch, sample, learner=None) -> list[str]:
    """Continue the run from its last checkpoint with `sample` in place of the actors, and of the learner unless there
    is one; return what it did in order.
    """
    done: list[str] = []
    state = SimpleNamespace(stage="contrastive", stage_finished=True, stages_done=["sft", "contrastive"])
    learner = learner or SimpleNamespace(
        load=lambda folder: done.append(f"load {folder.parent.name}"),
        load_first_weights=lambda adapter: done.append(f"load {adapter.parent.name} as an adapter"),
    )
    progress = SimpleNamespace(stage=lambda *_: None, advance=lambda *_: None, note=done.append)
    session = SimpleNamespace(
        config=config,
        run=run,
        state=state,
        crew=SimpleNamespace(learner=learner, replacements={}),
        progress=progress,
        train_problems=[],
        last_step_s=0.0,
        ensure_published=lambda: None,
        publish=lambda: done.append("publish"),
    )

    def answer(session, problems, exemplars: bool, label: str) -> list:
        done.append(f"ask {label}, exemplars={exemplars}")
        return sample()

    monkeypatch.setattr("cudal1_ray.training.train.open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr("cudal1_ray.training.assessment.sample", answer)
    monkeypatch.setattr(
        "cudal1_ray.training.assessment.sample_rows", lambda session, stage, samples: [{"stage": stage}]
    )
    _run_with_crew(config, run, [], ["contrastive"], progress, Stopper())
    return done


def test_control_when_interrupted_is_made_by_the_same_command_and_nothing_else(run, tmp_path, monkeypatch):
    config, before = config_of(tmp_path), run.assessments.read_text()

    def stop() -> list:
        raise RunStopped("SIGTERM")

    with pytest.raises(RunStopped):
        go_on(config, run, monkeypatch, stop)
    assert run.assessments.read_text() == before and not is_finished(config)
    control = "sft_with_exemplars"
    assert go_on(config, run, monkeypatch, list) == ["load sft-final", "publish", f"ask {control}, exemplars=True"]
    assert run.assessments.read_text() == before + json.dumps({"stage": control}) + "\n"
    assert is_finished(config)


def test_control_when_its_weights_are_gone_is_replaced_by_a_note(run, tmp_path, monkeypatch):
    (run.checkpoints / "sft-final" / "learner").rename(tmp_path / "elsewhere")
    (note,) = go_on(config_of(tmp_path), run, monkeypatch, list)
    assert note.startswith("no control: ") and "sft-final" in note and "holds no adapter" in note
    assert is_finished(config_of(tmp_path))


def test_control_when_its_start_travelled_without_a_learners_files_is_made_with_the_adapter(run, tmp_path, monkeypatch):
    start = run.checkpoints / "sft-final"
    (start / "learner").rename(start / "adapter")
    (start / "adapter" / "adapter_config.json").write_text("{}")
    assert not is_finished(config_of(tmp_path))
    assert go_on(config_of(tmp_path), run, monkeypatch, list)[0] == "load sft-final as an adapter"
    assert is_finished(config_of(tmp_path))


class LearnerHere:
    """A learner of one rank in this process, with the calls that a group of actors takes."""

    def __init__(self, policy: Path, **fields) -> None:
        from cudal1_ray.learning import Learner, LearnerConfig

        self.rank = Learner(LearnerConfig(device="cpu"), replace(SHAPE, **fields), str(policy))

    def train(self) -> None:
        self.rank.start_stage(2e-2)
        self.rank.train_sft([TrainingSequence((5, 6, 7), (8, 9, 10, 11))])

    def load(self, folder: Path) -> None:
        self.rank.load_checkpoint(folder)

    def load_first_weights(self, adapter: Path | None) -> None:
        self.rank.load_first_weights(str(adapter or ""))

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self.rank.named_weights())


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    with imported_to_stay():  # as in a run: DeepSpeed collects garbage in most updates
        from cudal1_ray.learning import Learner  # noqa: F401
    save_policy(
        *build_policy(SHAPE, ["def f(x):\n    return x\n"] * 8, seed=3), folder := tmp_path_factory.mktemp("policy")
    )
    return folder


@pytest.mark.parametrize(
    ("start", "rank", "name"),
    [
        ("checkpoint", 0, "sft"),
        ("checkpoint", 4, "sft"),
        ("travelled checkpoint", 4, "sft"),
        ("adapter", 4, "start"),
        ("base", 4, "start"),
        ("base", 0, "start"),
    ],
)
def test_control_when_made_has_the_weights_that_stage_3_started_from(policy, tmp_path, monkeypatch, start, rank, name):
    overrides = ["policy.kind=huggingface", f"policy.path={policy}", f"policy.lora_rank={rank}"]
    if start == "adapter":
        overrides.append(f"policy.adapter={tmp_path / 'elsewhere'}")
    config = config_of(tmp_path, *overrides)
    run, learner = RunFolder.of(config), LearnerHere(policy, lora_rank=rank)
    write_final(run, config, "contrastive")
    write_rows(run, OWN)
    if start != "base":
        learner.train()
    expected = learner.weights
    if start == "adapter":
        learner.rank.save_adapter(run.adapter)
    elif start != "base":
        folder = write_final(run, config, "sft")
        shutil.rmtree(folder / "learner")
        learner.rank.save_adapter(folder / "adapter")
        if start == "checkpoint":
            learner.rank.save_checkpoint(folder / "learner")
    learner.train()
    assert any(not expected[key].equal(weight) for key, weight in learner.weights.items())
    assert not is_finished(config)
    done = go_on(config, run, monkeypatch, list, learner)
    assert done == ["publish", f"ask {name}_with_exemplars, exemplars=True"] and is_finished(config)
    assert all(expected[key].equal(weight) for key, weight in learner.weights.items())


def test_control_when_its_run_is_prolonged_is_made_again_with_what_was_found_since(tmp_path):
    session = run_stage(open_session(tmp_path))
    assert session.state.stage_finished
    write_rows(session.run, ("sft", "sft_with_exemplars", *OWN))
    prolonged = open_session(tmp_path, f"contrastive.steps={STEPS + 1}")
    assert [row["stage"] for row in read_json_lines(prolonged.run.assessments)] == ["sft"]
