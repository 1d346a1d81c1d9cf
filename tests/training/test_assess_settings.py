"""Settings of `cudal1 assess`: other values than the run's, read and checked as those of `cudal1 train`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from cudal1_ray.analysis.tables import print_table
from cudal1_ray.cli import main
from cudal1_ray.commands.assess import table_of
from cudal1_ray.config import load_config, to_yaml
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer
from cudal1_ray.exemplars.hardware_buffers import insert_measured
from cudal1_ray.problems import load_problems
from cudal1_ray.problems.select import fixed_problems
from cudal1_ray.training.policy_assessment import (
    FILE,
    Question,
    ask,
    find_policy,
    identity_of,
    is_assessed,
    left_out_problems,
    questions_of,
    read_config,
    tables,
)
from cudal1_ray.training.preparation import Beginning
from cudal1_ray.training.run_folder import RunFolder
from tests.training.scripted_run import open_session


@pytest.fixture
def run(tmp_path):
    (tmp_path / "config.yaml").write_text(to_yaml(load_config(["seed=7", "exemplars=island"])))
    return tmp_path


def test_settings_when_given_replace_the_runs_and_texts_stay_as_written(run):
    settings = ["name=1e3", "problems.path=/data (v0.1) a=b", "problems.levels=[1,2]", "exemplars={count: 3}"]
    config = read_config(run, settings)
    assert (config.seed, config.exemplars.strategy, config.exemplars.count) == (7, "island", 3)
    assert (config.name, config.problems.path, config.problems.levels) == ("1e3", "/data (v0.1) a=b", [1, 2])


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("contrastive.step=3", "did you mean contrastive.steps"),
        ("seed=x", "seed: must be a whole number"),
        ("assessment.samples_per_problem=-1", "must be at least 1"),
        ("cluster=one_gpu", "cluster=one_gpu: the run's presets stay; give settings of the section, cluster.KEY=VALUE"),
        ("evaluation/rules=strict", "evaluation.rules.KEY=VALUE"),
        ("seed=" + "9" * 5000, "more than 4,300 digits"),
    ],
)
def test_setting_when_it_is_none_is_named_as_train_does(run, override, named):
    with pytest.raises(UserError) as caught:
        read_config(run, [override])
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("exemplars", "questions"),
    [
        ((False,), [("train", False), ("held_out", False)]),
        ((False, True), [("train", False), ("held_out", False), ("train", True)]),
        ((True,), [("train", True)]),
    ],
)
def test_questions_when_exemplars_are_asked_for_are_those_that_the_runs_exemplars_can_answer(
    tmp_path, exemplars, questions
):
    problems = load_problems()
    run, train = RunFolder(tmp_path), next(problem for problem in problems if problem.split == "train")
    ExemplarBuffer.open(run.exemplars, create=True)
    insert_measured(run.exemplars, "a GPU", [Exemplar.new(train.problem_id, "x = 1", 2.0)])  # that measures it again
    answerable = questions_of(run, problems, ["train", "held_out"], exemplars)
    assert [(question.split, question.exemplars) for question in answerable] == questions


def test_assessment_when_exemplars_alone_are_asked_for_and_there_are_none_asks_nothing_and_says_so(run, capsys):
    assert main(["assess", str(run), "--policy", "base", "--only-with-exemplars"]) == 0
    assert "has no accepted exemplar of these problems" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("policy", ["self_supervised-final", "an-adapter-with-a-name-of-more-than-forty-letters"])
def test_table_when_its_output_is_narrow_cuts_no_name_and_no_figure(run, policy, capsys):
    row = {"policy": policy, "split": "held_out", "exemplars": True, "problem_id": "p", "speedup": 12.5}
    (run / FILE).write_text(json.dumps(row | {"own_kernel": True, "status": "accepted", "degenerate": False}) + "\n")
    print_table(Console(width=80), table_of(RunFolder(run)))
    lines = capsys.readouterr().out.splitlines()
    assert "".join(line[:40].split(" ")[0] for line in lines).endswith(f"policy{'─' * 40}{policy}")
    assert "exemplars" in "\n".join(lines) and "…" not in "\n".join(lines)


def test_table_when_shares_are_near_1_or_of_no_sample_at_all_claims_neither_100_nor_0_percent(run, capsys):
    row = {"policy": "base", "split": "train", "exemplars": False, "problem_id": "p", "own_kernel": False}
    nearly = [row | {"speedup": float(number > 0)} for number in range(400)]
    constant = row | {"policy": "other", "problem_id": "constant", "speedup": 9.0, "degenerate": True}
    (run / FILE).write_text("".join(json.dumps(line) + "\n" for line in [*nearly, constant]))
    print_table(Console(width=80), table_of(RunFolder(run)))
    figures, best, other = (line.split() for line in capsys.readouterr().out.splitlines()[-3:])
    assert figures[:5] == ["base", "1", "train", "400", "99.8%"] and best[0] == "100%"
    assert other == ["other", "0", "train", "0"]


@pytest.mark.parametrize("text", [b"seed: many\n", b"", b"- seed\n", b"seed: [\n", b"\0", b"\xff"])
def test_configuration_of_a_run_when_damaged_is_named(run, text):
    (run / "config.yaml").write_bytes(text)
    with pytest.raises(UserError, match=r"config.yaml: "):
        read_config(run, [])


@pytest.fixture
def sampled_with(monkeypatch):
    """Replace actors and sampling; return the list of the policy settings that a session is opened with."""
    policies = []
    monkeypatch.setattr("cudal1_ray.actors.placement.connect", lambda cluster: None)
    monkeypatch.setattr("cudal1_ray.training.preparation.prepare_run", lambda *arguments: None)
    monkeypatch.setattr("cudal1_ray.training.policy_assessment.ask", lambda *arguments: iter(()))

    def open_session(config, *arguments, **settings):
        policies.append(config.policy)
        return nullcontext()

    monkeypatch.setattr("cudal1_ray.training.train.open_session", open_session)
    return policies


def test_adapter_when_it_is_from_elsewhere_is_assessed_with_its_own_rank_and_alpha(run, sampled_with):
    shape = {"r": 4, "lora_alpha": 12}
    (run / "adapter_config.json").write_text(json.dumps(shape))
    assert main(["assess", str(run), "--policy", str(run), "--policy", "base"]) == 0
    assert [(policy.lora_rank, policy.lora_alpha) for policy in sampled_with] == [(4, 12.0), (0, 32.0)]


@pytest.mark.parametrize(
    ("field", "override", "named"),
    [({}, "policy.lora_rank=8", "give policy.lora_rank=4"), ({"use_rslora": True}, "seed=7", "use_rslora=True")],
)
def test_adapter_when_it_fits_no_learner_is_refused_before_anything_is_sampled(
    run, sampled_with, capsys, field, override, named
):
    (run / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 12, **field}))
    assert main(["assess", str(run), "--policy", "base", "--policy", str(run), override]) == 2
    assert named in " ".join(capsys.readouterr().err.split()) and not sampled_with


def test_policy_when_its_stage_was_prolonged_is_another_and_older_rows_without_a_version_count(tmp_path):
    run, question = RunFolder(tmp_path), Question("train")
    problem = next(problem for problem in load_problems() if problem.split == "train")
    row = {"policy": "contrastive-final", "split": "train", "exemplars": False, "problem_id": problem.problem_id}

    def assessed(**fields) -> list[bool]:
        (tmp_path / FILE).write_text(json.dumps({**row, **fields}) + "\n")
        identities = ({"policy_version": version, "weights": "a"} for version in (5, 7))
        return [is_assessed(run, "contrastive-final", identity, question, [problem], 1) for identity in identities]

    assert assessed(policy_version=5) == [True, False]
    assert assessed() == [True, True]


@pytest.mark.parametrize("weights", ["adapter_model.safetensors", "learner/deepspeed/states.pt"])
def test_policy_when_other_weights_are_written_to_its_folder_is_another(run, tmp_path, monkeypatch, weights):
    folder, problem = tmp_path / "other" / "sft-final", load_problems()[0]
    (folder / weights).parent.mkdir(parents=True)
    if weights.startswith("adapter"):
        (folder / "adapter_config.json").write_text("{}")
    (folder / "state").mkdir()
    monkeypatch.setattr("cudal1_ray.learning.learner_state.obstacle", lambda *arguments: "")
    monkeypatch.setattr(
        "cudal1_ray.training.preparation.read_state", lambda checkpoint: SimpleNamespace(policy_version=3)
    )

    def assessed() -> bool:
        name, beginning = find_policy(read_config(run, []), RunFolder(run), str(folder))
        identity, question = identity_of(beginning), Question(problem.split)
        already = is_assessed(RunFolder(run), name, identity, question, [problem], 1)
        row = {"policy": name, **identity, "split": problem.split, "exemplars": False, "problem_id": problem.problem_id}
        (run / FILE).write_text(json.dumps(row) + "\n")
        return already

    (folder / weights).write_bytes(b"first")
    assert [assessed(), assessed()] == [False, True]
    (folder / weights).write_bytes(b"other")
    assert [assessed(), assessed()] == [False, True]


def test_problems_when_their_prompts_are_too_long_are_no_reason_to_sample_a_split_again(tmp_path, monkeypatch):
    session = open_session(tmp_path, "assessment.samples_per_problem=1")
    long = session.train_problems.pop()
    session.left_out = {long.problem_id}
    run, config, every = session.run, session.config, [*session.train_problems, long]
    sample = session.batches.sample
    monkeypatch.setattr(
        session.batches, "sample", lambda *arguments, label, **how: sample(*arguments, label="asked/1", **how)
    )
    assert left_out_problems(run, config) == set()
    list(ask(session, "base", identity := identity_of(Beginning()), [question := Question("train")]))
    chosen = [problem for problem in every if problem.problem_id not in left_out_problems(run, config)]
    assert chosen == session.train_problems and is_assessed(run, "base", identity, question, chosen, 1)
    config.prompting.max_prompt_tokens += 1  # it may fit by now
    assert left_out_problems(run, config) == set()


def test_problem_when_one_policy_finds_it_degenerate_counts_for_no_policy(tmp_path):
    answers = [("base", "a", 2.0, False), ("base", "c", 0.0, False), ("sft-final", "c", 9.0, True)]
    rows = [
        {"policy": policy, "split": "train", "exemplars": False, "problem_id": problem, "speedup": speedup,
         "own_kernel": True, "degenerate": degenerate}
        for policy, problem, speedup, degenerate in answers
    ]  # fmt: skip
    (tmp_path / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [figures["samples"] for figures in tables(RunFolder(tmp_path)).values()] == [1, 0]


def test_rows_when_a_policy_is_asked_have_its_identity(tmp_path, monkeypatch):
    session = open_session(tmp_path, "assessment.samples_per_problem=1", "assessment.problems=1")
    identity, labels = {"policy_version": 5, "weights": "a"}, []
    sample = session.batches.sample

    def sample_and_note(*arguments, label, **how):
        labels.append(label)
        return sample(*arguments, label="asked/1", **how)

    monkeypatch.setattr(session.batches, "sample", sample_and_note)
    ((question, rows),) = ask(session, "contrastive-final", identity, [Question("train")])
    assert [(row["policy_version"], row["weights"]) for row in rows] == [(5, "a")]
    assert [label.rpartition("/")[2] for label in labels] == ["a"]  # a killed assessment of other weights is not used
    problems = fixed_problems(session.train_problems, 1)
    identities = (identity, {"policy_version": 7, "weights": "a"}, {"policy_version": 5, "weights": "b"})
    counted = [is_assessed(session.run, "contrastive-final", other, question, problems, 1) for other in identities]
    assert counted == [True, False, False]
