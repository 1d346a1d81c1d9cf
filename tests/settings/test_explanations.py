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
from cudal1_ray.settings import find_keys


@pytest.mark.parametrize("schema", [Config, ServingConfig])
def test_every_setting_and_section_has_an_explanation(schema):
    assert [path for path, entry in find_keys(schema).items() if not entry.text] == []


def test_a_fields_comments_above_and_beside_it_are_its_explanation():
    keys = find_keys(Config)
    assert keys["contrastive.group_size"].text == "completions per prompt: one GRPO group"
    assert keys["contrastive.staleness"].text.startswith("Updates that may come between the policy")
    assert "few percent" in keys["contrastive.extra_problems"].text


def test_the_explained_configuration_holds_the_composed_values():
    config = load_config(["seed=7", "name=läufer", "problems.ids=[a,b]"])
    assert yaml.safe_load(explain_all(Reference.of_train(config))) == to_dict(config)


def test_the_explained_configuration_lists_presets():
    text = explain_all(Reference.of_train())
    assert "# Presets: best_worst, bucket," in text and "completions per prompt: one GRPO group" in text


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("contrastive.group_size", "contrastive.group_size=8   (whole number, at least 1)"),
        ("group_size", "contrastive.group_size=8"),
        ("contrastive", "contrastive.learning_rate="),
        ("exemplars", "exemplars=island"),
        ("exemplars=island", "exemplars.island_reset_every=64"),
        ("rewards/checker", "rewards/checker=endpoint"),
        ("evaluation.timing.budget_s", "evaluation=cpu sets 4.5"),
        ("policy.lora_rank", "policy.lora_rank=0"),
        ("contrastive.learning_rate", "recipe=kernelbench_multi_node sets 1.0e-06"),
        ("presets", "cluster=one_gpu"),
        ("recipe", "recipe=kernelbench_one_gpu  Qwen2.5"),
    ],
)
def test_help_with_a_name_explains_it(name, printed, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help", name])
    assert ended.value.code == 0 and printed in capsys.readouterr().out


def test_help_of_serve_explains_its_own_settings():
    assert "security.max_body_kib=1024" in explain("security", Reference.of_serve())


def test_help_with_an_unknown_name_suggests_the_nearest(capsys):
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


def test_an_enumerations_members_are_the_choices_of_its_field():
    key = find_keys(Light)["colour"]
    assert key.kind == "one of red, green" and key.text == "shown first"
