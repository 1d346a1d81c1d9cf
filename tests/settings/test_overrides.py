"""Overrides as a user types them: texts are taken as written, mistakes are one line that names the remedy."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from cudal1_ray.cli import main
from cudal1_ray.config import load_config, prepare_overrides
from cudal1_ray.errors import UserError
from cudal1_ray.problems import load_problems
from cudal1_ray.settings.suggestions import nearest, nearest_folders, nearest_keys, question


def complaint(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_config(list(overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["007", "1e3", "1_000", "2024-01-01", "true", "0x10", "1.50", "a b", "läufer", "NaN"])
def test_name_when_it_looks_like_another_type_stays_as_written(name):
    assert load_config([f"name={name}"]).name == name


@pytest.mark.parametrize(
    "path",
    [
        "/data (v0.1) a=b #1@x",
        "/数据/模型/qwen",
        "/home/jörg/aufgaben",
        "C:\\temp\\",
        "it's [here] {now}",
        "~/x",
        "@x",
        "*.py",
        "trailing ",
    ],
)
def test_path_when_it_has_characters_of_hydras_grammar_stays_as_written(path):
    assert load_config(["problems=kernelbench_folder", f"problems.path={path}"]).problems.path == path


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=",$'\""), min_size=1))
def test_text_when_it_has_no_comma_quote_or_interpolation_stays_as_written(text):
    (prepared,) = prepare_overrides([f"init_from={text}"])
    value = OverridesParser.create().parse_override(prepared).value()
    assert (str(value) if text != "null" else value) == (text if text != "null" else None)


def test_quotes_when_written_by_the_user_are_read_by_hydra():
    assert load_config(['problems.path="/data (v0.1), a=b"']).problems.path == "/data (v0.1), a=b"
    assert load_config(["problems.path='/a, b'"]).problems.path == "/a, b"


@pytest.mark.parametrize(
    "override", ["seed={}", "problems.limit=-{}", "contrastive.learning_rate={}.0", "problems.levels=[1, {}]",
                 "exemplars={{count: {}}}", "hydra.job.num={}", "seed=1,{}"],
)  # fmt: skip
def test_number_when_it_has_more_digits_than_python_reads_is_refused(override):
    override = override.format("9" * 5000)
    with pytest.raises(UserError, match=f"^{override.partition('=')[0]}=.*more than 4,300 digits"):
        prepare_overrides([override], sweep=True)


def test_text_when_of_many_digits_stays_as_written():
    assert load_config([f"init_from={'9' * 5000}"]).init_from == "9" * 5000


@pytest.mark.parametrize("name", ["cuda:²", "cuda:" + "9" * 5000, "cuda:-1", "cuda:", "cpu:0", "tpu"])
def test_device_when_it_is_none_names_those_there_are(name):
    assert "must be cpu, cuda or cuda:N" in complaint(f"evaluation.device={name}")


def test_null_when_a_text_cannot_be_null_is_refused():
    assert "name=null: must be text" in complaint("name=null")
    assert load_config(["problems.path=null"]).problems.path is None


@pytest.mark.parametrize(
    "override",
    ["seed=1,2", "exemplars=uniform,bucket", "evaluation.threads=1,2", "name=a,b", "seed=range(1,3)", "seed=sort(2,1)",
     "exemplars=choice(bucket,none)", "problems.levels=range(1,3)"],
)  # fmt: skip
def test_values_when_several_without_a_sweep_name_the_command_that_makes_one(override):
    advice = "several values make a sweep, which only `cudal1 train -m` takes"
    assert complaint(override).startswith(f"{override}: {advice}")


def test_text_when_it_has_a_comma_is_shown_in_quotes_that_work():
    message = complaint("problems.path=/data, more")
    advised = [part for part in message.split("'") if part.startswith("problems.path=")][-1]
    assert load_config([advised]).problems.path == "/data, more"


def test_values_when_several_in_a_sweep_are_left_to_hydra():
    overrides = ["seed=1,2", "seed=range(1,4)", "exemplars=uniform,bucket", "name=a,b"]
    assert prepare_overrides(overrides, sweep=True) == overrides
    assert prepare_overrides(["name=1e3"], sweep=True) == ["name='1e3'"]


def test_list_when_given_is_left_to_hydra_and_its_texts_stay_as_written():
    assert load_config(["problems.levels=[1,2]"]).problems.levels == [1, 2]
    settings = ["problems.ids=[ü, 1e3,true , 'a, b',it's (x)]", "problems.families=[]"]
    problems = load_config(settings).problems
    assert problems.ids == ["ü", "1e3", "true", "a, b", "it's (x)"] and problems.families == []


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("problems.levels=1,2", "'problems.levels=[1,2]'"),
        ("problems.levels=[a]", "problems.levels=[a]: must be a list of whole numbers"),
        ("evaluation.rules=strict", "evaluation/rules=strict"),
        ("contrastive=5", "cudal1 train --help contrastive"),
        ("contrastive={step: 5}", "did you mean contrastive.steps"),
        (f"seed={2**63}", "at most 63 bits"),
        ("seed=1 # x", "seed=1 # x: must be a whole number ("),
        ("problems.levels=[1,2", "problems.levels=[1,2: must be a list of whole numbers in brackets"),
        ("problems.ids=[a,b", "'problems.ids=[\"a,b\"]'"),
        ("policy.chat_template_kwargs={a: b, 'c}", "inside the shell's"),
    ],
)
def test_value_when_of_another_form_shows_the_one_that_is_taken(override, advice):
    assert advice in complaint(override)


@pytest.mark.parametrize(
    ("override", "suggested"),
    [
        ("contrastive.step=3", "contrastive.steps"),
        ("steps=3", "contrastive.steps"),
        ("exemplar=bucket", "exemplars"),
        ("+foo=1", "--help"),
        ("++contrastive.stepz=1", "contrastive.steps"),
        ("steps", "key=value"),
        ("contrastive.steps", "given as key=value, `cudal1 train --help contrastive.steps` explains it"),
        ("=3", "=3: a setting is given as key=value"),
        ("evaluation.timing.bugdet_s=3", "evaluation.timing.budget_s"),
    ],
)
def test_setting_when_its_name_is_unknown_suggests_the_nearest(override, suggested):
    assert suggested in complaint(override)


def test_setting_when_its_name_is_unknown_lists_those_of_its_section():
    assert "samples_per_problem" in complaint("assessment.sample=3")


@pytest.mark.parametrize(
    ("override", "nearest"),
    [("exemplars=buckets", "exemplars=bucket"), ("cluster=one", "one_gpu"), ("recipe=demoo", "recipe=demo")],
)
def test_preset_when_unknown_lists_the_groups_presets(override, nearest):
    message = complaint(override)
    assert nearest in message and "Presets of" in message


def test_preset_when_unknown_in_a_sweep_lists_the_groups_presets():
    with pytest.raises(UserError, match="exemplars=unifrm: .*did you mean exemplars=uniform.*Presets of exemplars"):
        prepare_overrides(["exemplars=bucket, unifrm"], sweep=True)
    assert prepare_overrides(["exemplars=choice(bucket,uniform)"], sweep=True) == ["exemplars=choice(bucket,uniform)"]


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("problems.ids=[double_nrm_1]", "did you mean double_norm_1"),
        ("problems.families=[loop]", "head_loop or loop_scan"),
    ],
)
def test_problem_when_unknown_suggests_the_nearest(override, meant):
    with pytest.raises(UserError, match=meant):
        load_problems(load_config([override]).problems)


def test_run_when_unknown_suggests_one_beside_it(tmp_path, capsys):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    for command in (
        ["samples"],
        ["report"],
        ["train", "name=new", "stage=contrastive", f"runs_dir={tmp_path / 'new'}"],
    ):
        setting = "init_from=" if command[0] == "train" else ""
        assert main([*command, f"{setting}{tmp_path / 'runs' / 'dmo'}"]) == 2
        assert f"did you mean {tmp_path / 'runs' / 'demo'}?" in capsys.readouterr().err
    assert nearest_folders(tmp_path / "none" / "x") == []


def test_command_when_unknown_suggests_the_nearest(capsys):
    assert main(["trian"]) == 2
    assert "trian: there is no such command; did you mean cudal1 train?" in capsys.readouterr().err
    assert main(["x"]) == 2
    assert "`cudal1 --help` lists them" in capsys.readouterr().err


def test_preset_when_of_a_nested_group_or_a_package_is_taken():
    config = load_config(["rewards/checker=neighbours", "algorithm@self_supervised.algorithm=grpo"])
    assert config.rewards.checker.judge == "neighbours" and config.self_supervised.algorithm.name == "grpo"


def test_value_when_no_text_is_named():
    assert "name=x\\ud800" in complaint("name=x\ud800") and "half of a surrogate pair" in complaint("name=x\ud800")


@pytest.mark.parametrize(("override", "kind"), [("seed=2.5", "whole number"), ("problems.ids=a", "list of texts")])
def test_value_when_of_another_type_names_the_type(override, kind):
    assert kind in complaint(override) and override in complaint(override)


def test_suggestions_when_several_are_near_prefer_the_same_last_part():
    assert nearest_keys("steps", ["contrastive.steps", "stepz"]) == ["contrastive.steps"]
    assert nearest_keys("nothing-like-it", ["contrastive.steps"]) == []


def test_suggestions_when_names_hold_the_text_are_these_before_similar_ones():
    names = ["softmax_1", "repeat_softmax_1", "row_loop_1"]
    assert nearest("SoftMax", names) == names[:2] and nearest("row_lop_1", names) == ["row_loop_1"]
    assert nearest("", names) == [] and question([]) == "" and question(["a", "b"]) == "did you mean a or b?"
