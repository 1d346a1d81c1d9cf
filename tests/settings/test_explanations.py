"""Every setting carries its explanation, and the command prints it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest
import yaml

from cudal1_ray.cli import main
from cudal1_ray.commands.settings_help import Reference, explain, explain_all
from cudal1_ray.config import Config, load_config, to_dict
from cudal1_ray.errors import UserError
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.settings import Section, find_keys


@pytest.mark.parametrize("schema", [Config, ServingConfig])
def test_settings_and_sections_when_listed_have_an_explanation(schema):
    assert [path for path, entry in find_keys(schema).items() if not entry.text] == []


def test_comments_when_above_or_beside_a_field_are_its_explanation():
    keys = find_keys(Config)
    assert keys["contrastive.group_size"].text == "completions per prompt: one GRPO group"
    assert keys["contrastive.staleness"].text.startswith("Updates that may come between the policy")
    assert "few percent" in keys["contrastive.extra_problems"].text


def test_explained_configuration_when_read_holds_the_composed_values():
    overrides = ["seed=7", "name=läufer", "problems.ids=[a,b]"]
    assert yaml.safe_load(explain_all(Reference.of_train(overrides))) == to_dict(load_config(overrides))


def test_explained_configuration_when_a_section_has_presets_lists_them():
    text = explain_all(Reference.of_train())
    assert "# Presets: best_worst, bucket," in text and "completions per prompt: one GRPO group" in text


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("contrastive.group_size", "contrastive.group_size=8   (whole number, at least 1; default)"),
        (
            "contrastive.problems_per_step",
            "problems_per_step=12   (whole number, at least 1; from recipe=demo, default 8)",
        ),
        ("group_size", "contrastive.group_size=8"),
        ("contrastive", "contrastive.learning_rate="),
        ("exemplars", "exemplars=island"),
        ("exemplars=island", "exemplars.island_reset_every=64"),
        (
            "island",
            "exemplars.strategy=island                                      (from exemplars=island, default bucket)",
        ),
        ("cpu", "learner=cpu"),
        ("neighbours", "rewards/checker=neighbours"),
        ("recipe=kernelbench_one_gpu", "(from conf/recipe/shared/kernelbench.yaml, default bundled)"),
        ("evaluation", "evaluation.timing.half_width=0.03"),
        ("rewards/checker", "rewards/checker=endpoint"),
        ("evaluation.timing.budget_s", "evaluation=cpu_train sets 0.5"),
        ("policy.lora_rank", "policy.lora_rank=0"),
        ("contrastive.learning_rate", "recipe=kernelbench_multi_node sets 1.0e-06"),
        ("presets", "cluster=one_gpu"),
        ("recipe", "recipe=kernelbench_one_gpu  Qwen2.5"),
    ],
)
def test_help_when_given_a_name_explains_it(name, printed, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help", name])
    assert ended.value.code == 0 and printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["train", "--help", "evaluation.slots", "recipe=kernelbench_one_gpu"], "evaluation.slots=6"),
        (["train", "recipe=kernelbench_one_gpu", "--help", "evaluation.slots"], "from recipe=kernelbench_one_gpu"),
        (
            ["train", "--help", "seed", "seed=7"],
            "seed=7   (whole number, at least 0; from the command line, default 1)",
        ),
        (["evaluate", "--help", "evaluation.timing.budget_s"], "budget_s=4.5"),
        (["evaluate", "--certain", "--help", "evaluation.timing"], "from evaluation=cpu_certain"),
        (["serve", "--help", "serving=gpu"], "from serving=gpu, default 1)"),
        (["serve", "--help", "rollout.dtype", "serving=gpu"], "rollout.dtype=bfloat16"),
    ],
)
def test_help_when_given_settings_explains_the_values_they_compose_to(arguments, printed, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0 and printed in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ["demo", "none", "kernelbench_multi_node", "my_problems_cpu"])
def test_origin_when_a_value_is_set_is_a_preset_that_sets_it_to_that(recipe):
    reference = Reference.of_train([f"recipe={recipe}", "seed=3"])
    presets = {f"{p.group}={p.name}": p for members in reference.presets.values() for p in members}
    checked = 0
    for key in reference.keys.values():
        if isinstance(key, Section):
            continue
        origin, value = reference.origins.get(key.path), reference.value(key.path)
        if origin is None:
            assert value == key.default, key.path
        elif preset := presets.get(origin):
            section = preset.group.replace("/", ".")
            name = key.path if key.path in preset.values else f"{section}.{key.path[key.path.rindex('.') + 1 :]}"
            assert preset.values[name] == value, (key.path, origin)
            checked += 1
    assert checked > 40 and reference.origins["seed"] == "the command line"


def test_help_when_given_part_of_a_presets_name_suggests_it(capsys):
    assert main(["train", "--help", "exemplars=islnd"]) == 2
    assert "did you mean exemplars=island" in capsys.readouterr().err


def test_help_when_of_serve_explains_its_own_settings():
    assert "security.max_body_kib=1024" in explain("security", Reference.of_serve())


def test_help_when_a_name_is_unknown_suggests_the_nearest(capsys):
    assert main(["train", "--help", "bucket_widht"]) == 2
    assert "exemplars.bucket_width" in capsys.readouterr().err
    with pytest.raises(UserError, match="--help nothing-like-it"):
        explain("nothing-like-it", Reference.of_train())


class Colour(StrEnum):
    """Of the light."""

    red = "red"  # stop
    green = "green"


@dataclass
class Light:
    colour: Colour = Colour.red  # shown first


def test_enumeration_when_a_field_has_one_lists_its_members():
    key = find_keys(Light)["colour"]
    assert key.kind == "one of red, green" and key.text == "shown first"
