"""Configuration mistakes are one line that names the key."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from hydra import compose
from omegaconf import OmegaConf

from cudal1_ray.cli import main
from cudal1_ray.config import (
    Config,
    check_config,
    composing,
    config_dir,
    load_config,
    started_cluster,
    to_dict,
    to_yaml,
)
from cudal1_ray.errors import UserError
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.training.preflight import check_corpora, check_gpus, check_run


def test_configuration_when_nothing_is_given_is_the_demo():
    config = load_config([])
    assert isinstance(config, Config)
    assert config.name == "demo" and config.problems.source == "bundled" and config.evaluation.device == "cpu"
    assert config.self_supervised.algorithm.name == "reinforce" and config.algorithm.name == "grpo"


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("contrastive.stpes=3", "contrastive.stpes"),
        ("contrastive.steps=many", "contrastive.steps"),
        ("exemplars=nonsense", "exemplars=nonsense"),
        ("stage=everything", "stage=everything"),
        ("stage=contrastive+sft", "stage=contrastive"),
        ("stage=sft+", "stage=sft"),
        ("contrastive.group_size=0", "contrastive.group_size"),
        ("name=../elsewhere", "name"),
        ("contrastive.temperature=0", "contrastive.temperature"),
        ("learner.betas=[0.9]", "learner.betas=[0.9]: must be two numbers below 1"),
        ("learner.betas=[0.9,1]", "learner.betas=[0.9, 1.0]: must be two numbers below 1"),
        ("nonsense", "nonsense"),
        (f"contrastive.learning_rate={10**400}", "contrastive.learning_rate: must be a number"),
    ],
)
def test_configuration_when_given_a_mistake_names_it_in_one_line(override, named):
    with pytest.raises(UserError) as caught:
        load_config([override])
    message = str(caught.value)
    assert named in message and "\n" not in message


# Composed by `cudal1 serve`, by multirun and by the next test, and tested there.
TESTED_ELSEWHERE = ("serving", "hydra", "recipe")


def test_presets_when_chosen_compose():
    folders = [folder for folder in config_dir().iterdir() if folder.is_dir() and folder.name not in TESTED_ELSEWHERE]
    presets = {folder.name: sorted(path.stem for path in folder.glob("*.yaml")) for folder in folders}
    for number in range(max(map(len, presets.values()))):  # the next one of every group at once
        chosen = [f"{group}={names[number % len(names)]}" for group, names in presets.items()]
        assert isinstance(load_config([*chosen, "policy.path=somewhere.gguf"]), Config), chosen


RECIPES = sorted(path.stem for path in (config_dir() / "recipe").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_when_composed_has_lengths_and_devices_that_fit(recipe):
    read = {"demo": (), "none": ("policy",)}.get(recipe, ("policy", "problems"))
    config = load_config([f"recipe={recipe}", *(f"{section}.path=somewhere" for section in read)])
    assert config.recipe == recipe
    check_run(config)
    if config.policy.kind != "scratch":
        assert config.rewards.kind == "staged" and not config.rewards.smoothing and config.policy.chat
        assert config.learner.optimizer == "adamw"
        rates = [config.sft.learning_rate, config.self_supervised.learning_rate, config.contrastive.learning_rate]
        if config.policy.lora_rank:
            assert all(1e-4 <= rate <= 3e-4 for rate in rates), rates  # docs/own-model.md, in every stage
        else:
            assert rates[0] <= 1e-5 and max(rates[1:]) <= 1e-6, rates


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["policy=qwen2.5-coder-1.5b"], "recipe=demo"),
        (["rollout.max_model_len=1024"], "rollout.max_model_len=1024"),
        (["policy.max_position=1100"], "policy.max_position=1100"),
        (["recipe=kernelbench_one_gpu", "prompting=full", "prompting.max_completion_tokens=4096"], "max_prompt_tokens"),
        (["cluster=one_gpu"], "cluster.rollout.num_gpus=0.4"),
        (["recipe=kernelbench_one_gpu", "learner.device=cpu"], "learner.device=cpu"),
        (["contrastive.group_size=1"], "contrastive.group_size=1 with algorithm.name=grpo"),
        (["contrastive.group_size=1", "algorithm=gspo"], "algorithm=reinforce"),
        (["policy=endpoint"], "policy=endpoint: a server gives no weights to train"),
        (["problems.source=web"], "problems.source=web: must be one of bundled, folder, hub, parquet"),
        (["problems=kernelbench_parquet"], "problems.path: needed with problems.source=parquet"),
        (["problems.split=held_out"], "problems.split=held_out: a run needs training problems"),
        (["problems.sizes=paper"], "problems.paper_path: needed with problems.sizes=paper"),
        (["cluster.shared_gpu=true"], "cluster.shared_gpu=true: set cluster.evaluate_during_generation=false"),
        (["recipe=kernelbench_four_gpus", "rollout.tensor_parallel=2"], "cluster.rollout.num_gpus=1"),
        (["recipe=kernelbench_one_gpu", "contrastive.staleness=1"], "contrastive.staleness=1"),
        (["cluster.compiler.num_cpus=0.00001"], "cluster.compiler.num_cpus=1e-05: must be 0, or at least 0.0001"),
        (["self_supervised.rewards.checker.judge=neighbours"], "self_supervised.rewards.checker.judge=neighbours"),
    ],
)
def test_settings_when_they_do_not_fit_each_other_are_refused_by_a_run_and_by_cfg_alike(
    overrides, named, tmp_path, capsys
):
    for flags in ([], ["--cfg", "job"]):
        assert main(["train", *overrides, f"runs_dir={tmp_path / 'runs'}", *flags]) == 2
        assert named in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_roles_when_they_want_a_gpu_and_none_is_here_are_named_before_a_policy_is_prepared(tmp_path, capsys):
    if torch.cuda.device_count():
        pytest.skip("there is a GPU here")
    problem = tmp_path / "level1" / "1_gelu.py"
    problem.parent.mkdir()
    shutil.copyfile(Path(__file__).parents[1] / "examples" / "problem.py", problem)
    settings = ["problems=kernelbench_folder", f"problems.path={tmp_path}", "problems.held_out_fraction=0.0"]
    settings += [
        "policy.path=someone/not-there",
        "sft.corpus=",
        "prompting.related_from=",
        f"runs_dir={tmp_path}",
        "name=x",
    ]
    assert main(["train", "recipe=kernelbench_one_gpu", *settings]) == 2
    assert "a GPU is needed by rollout, evaluator, learner, and PyTorch sees none here" in capsys.readouterr().err
    for elsewhere in (["cluster.address=host:6379"], ["cluster.num_gpus=1"]):
        check_gpus(load_config(["recipe=kernelbench_one_gpu", "policy.path=x", "problems.path=x", *elsewhere]))
    check_gpus(load_config([]))
    without_engine = ["recipe=kernelbench_one_gpu", "stage=sft", "assessment.enabled=false"]
    with pytest.raises(UserError, match="a GPU is needed by evaluator, learner, and"):
        check_gpus(load_config([*without_engine, "policy.path=x", "problems.path=x"]))


@pytest.mark.parametrize(
    ("overrides", "engines"),
    [
        (["stage=sft"], 2),
        (["stage=sft", "assessment.enabled=false"], 0),
        (["stage=sft+contrastive", "assessment.enabled=false"], 2),
        (["stage=self_supervised", "assessment.enabled=false"], 2),
    ],
)
def test_engines_when_nothing_samples_the_policy_are_not_started(overrides, engines):
    config = load_config([*overrides, "cluster.rollout.count=2"])
    cluster = started_cluster(config)
    assert cluster.rollout.count == engines and config.cluster.rollout.count == 2
    assert dataclasses.replace(cluster, rollout=config.cluster.rollout) == config.cluster


@pytest.mark.parametrize(
    ("rotary", "fits"), [({}, False), ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, True)]
)
def test_engine_when_longer_than_the_policy_is_refused_unless_positions_are_scaled(tmp_path, rotary, fits):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 1536} | rotary))
    config = load_config(["recipe=my_problems_cpu", "problems.path=x", f"policy.path={tmp_path}"])
    if fits:
        return check_run(config)
    with pytest.raises(UserError, match=r"rollout.max_model_len=4200: .* takes 1536 tokens"):
        check_run(config)


@pytest.mark.parametrize("overrides", [["algorithm=reinforce"], ["contrastive.turns=2"], ["stage=sft"]])
def test_check_run_when_a_group_of_one_teaches_something_accepts_it(overrides):
    check_run(load_config(["contrastive.group_size=1", *overrides]))


def test_chat_template_settings_when_given_as_names_with_values_are_taken():
    config = load_config(["policy.chat_template_kwargs={enable_thinking: false}"])
    assert config.policy.chat_template_kwargs == {"enable_thinking": False}
    with pytest.raises(UserError, match="chat_template_kwargs"):
        load_config(["policy.chat_template_kwargs=quick"])


def test_preset_when_of_one_section_changes_no_other():
    sections = "policy cluster rollout learner evaluation rewards exemplars prompting problems tracking".split()
    for group in sections:
        presets = list((config_dir() / group).glob("*.yaml"))
        assert presets, group
        for preset in presets:
            assert "@package" not in preset.read_text() and "override /" not in preset.read_text(), preset


# What a preset is named after, which it sets whatever the default is.
CHOICES = {"device", "engine", "judge", "kind", "service", "source", "strategy", "style"}
# Complete on purpose: a published algorithm, a set of rules, what a machine has, the shape of a policy.
COMPLETE = ("algorithm", "cluster", "evaluation/rules", "policy/tiny")


def restated(values: dict, defaults: dict, path: str = "") -> list[str]:
    """Return the keys of a preset, nested ones with dots, that have the value of their default."""
    keys = []
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(defaults.get(key), dict):
            keys += restated(value, defaults[key], f"{path}{key}.")
        elif defaults.get(key, ...) == value:
            keys.append(path + key)
    return keys


def test_preset_when_a_key_has_its_default_leaves_it_out():
    schema, checked = OmegaConf.structured(Config), []
    for preset in sorted(config_dir().rglob("*.yaml")):
        name = preset.relative_to(config_dir()).with_suffix("")
        defaults = OmegaConf.select(schema, ".".join(name.parts[:-1]))
        if not OmegaConf.is_dict(defaults) or len(name.parts) == 1 or str(name).startswith(COMPLETE):
            continue  # a recipe, or settings of another command
        defaults = OmegaConf.to_container(defaults)
        values = OmegaConf.to_container(OmegaConf.load(preset))
        based_on = values.pop("defaults", [])
        if any(isinstance(base, str) and base != "_self_" for base in based_on):  # it changes another preset
            continue
        checked.append(str(name))
        assert set(restated(values, defaults)) <= CHOICES, name
    assert {"evaluation/cpu", "rewards/checker/engine", "rollout/vllm_gpu"} <= set(checked)


def read_recipe(name: str) -> tuple[dict[str, str], dict, dict]:
    """Return a recipe's presets by group, with those of what it is based on; that one's values; and its own."""
    values = OmegaConf.to_container(OmegaConf.load(config_dir() / "recipe" / f"{name}.yaml"))
    presets, inherited = {}, {}
    for entry in values.pop("defaults", []):
        if isinstance(entry, dict):
            presets |= {group.removeprefix("override /"): preset for group, preset in entry.items()}
        elif entry != "_self_":
            presets, _, inherited = read_recipe(entry)
    return presets, inherited, values


@pytest.mark.parametrize("recipe", [*RECIPES, "shared/kernelbench"])
def test_recipe_when_a_key_has_its_default_leaves_it_out(recipe):
    presets, inherited, values = read_recipe(recipe)
    with composing():
        defaults = compose("config", [f"{group}={preset}" for group, preset in {"recipe": "none", **presets}.items()])
    defaults = OmegaConf.to_container(OmegaConf.merge(defaults, inherited))
    assert set(restated(values, defaults)) <= {"recipe"}


@pytest.mark.parametrize("preset", ["cpu", "gpu", "one_gpu"])
def test_serving_preset_when_a_key_has_its_default_leaves_it_out(preset):
    values = OmegaConf.to_container(OmegaConf.load(config_dir() / "serving" / f"{preset}.yaml"))
    presets = {
        group: name for entry in values.pop("defaults") if isinstance(entry, dict) for group, name in entry.items()
    }
    composed = to_dict(
        load_config(["recipe=none", "policy=tiny", *(f"{group[1:]}={name}" for group, name in presets.items())])
    )
    defaults = OmegaConf.to_container(OmegaConf.structured(ServingConfig))
    assert restated(values, defaults | {group[1:]: composed[group[1:]] for group in presets}) == []


def test_run_when_its_recipe_is_not_the_demo_has_another_folder_than_the_demo():
    assert load_config(["recipe=none", "policy=tiny"]).name != load_config([]).name == "demo"


def test_configuration_file_when_read_chooses_presets_and_sets_no_value():
    assert set(OmegaConf.load(config_dir() / "config.yaml")) == {"defaults", "hydra"}


def test_policy_when_no_preset_gives_a_shape_is_not_made_from_scratch():
    assert Config().policy.kind == "huggingface"
    with pytest.raises(UserError, match="policy.path is empty"):
        check_config(Config())
    with pytest.raises(UserError, match="policy.hidden_size, .*: missing; .*policy=tiny"):
        load_config(["recipe=none", "policy.kind=scratch"])


def test_preset_when_read_has_a_first_line_that_describes_it():
    for preset in config_dir().rglob("*.yaml"):
        lines = [line for line in preset.read_text().splitlines() if not line.startswith("# @package")]
        assert lines[0].startswith("# "), preset


def test_configuration_when_printed_holds_every_key():
    text = to_yaml(load_config([]))
    for key in ("group_size", "bucket_width", "zero_stage", "half_width", "temperature"):
        assert key in text


@pytest.mark.parametrize(
    "setting",
    [
        "prompting.style=compakt",
        "prompting.examples=[tritn]",
        "evaluation.confirm_on=nowhere",
        "evaluation.required_sandbox=landlok",
        "evaluation.sandbox=none",
        "evaluation.device=tpu",
        "evaluation.against=fast",
        "evaluation.check.distributions=[scaledd]",
        "exemplars.failure_reasons=[wrong]",
        "exemplars.cell_axes=[width]",
        "rollout.log_level=LOUD",
        "rollout.weight_sync.transport=post",
        "cluster.rollout.scheduling=EVEN",
        "learner.offload_optimizer=disk",
        "self_supervised.rewards.truncated=cut",
        "sft.schedule=step",
        "tracking.service=wandbb",
        "problems.split=tain",
        "problems.source=web",
        "problems.sizes=small",
    ],
)
def test_a_name_that_is_none_of_a_settings_is_refused_when_composing(setting):
    key, _, value = setting.partition("=")
    with pytest.raises(UserError, match=f"{key}.*{value.strip('[]')}"):
        load_config([setting])


@pytest.mark.parametrize("key", ["sft.corpus", "exemplars.seed_from", "prompting.related_from"])
def test_corpus_when_missing_is_named_before_anything_starts(key):
    check_corpora(load_config([]))
    with pytest.raises(UserError, match=f"{key}=nowhere: give a Parquet file"):
        check_corpora(load_config([f"{key}=nowhere"]))


def test_seeds_when_a_run_has_none_are_named_before_anything_starts(tmp_path):
    settings = [f"exemplars.seed_from={tmp_path}"]
    with pytest.raises(UserError, match="bundled, kernelbench or the folder of a run with exemplars"):
        check_corpora(load_config(settings))
    (tmp_path / "config.yaml").write_text("name: other\n")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "sft-000001.parquet").write_text("not read")
    with pytest.raises(UserError, match="this run has no exemplars yet"):
        check_corpora(load_config(settings))
    (tmp_path / "exemplars").mkdir()
    check_corpora(load_config(settings))
