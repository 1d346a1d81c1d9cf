"""Configuration mistakes are one line that names the key."""

from __future__ import annotations

import pytest

from cudal1_ray.config import Config, config_dir, load_config, to_yaml
from cudal1_ray.errors import UserError


def test_the_default_is_the_demo():
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
        ("stage=everything", "stage"),
        ("contrastive.group_size=0", "contrastive.group_size"),
        ("name=../elsewhere", "name"),
        ("contrastive.temperature=0", "contrastive.temperature"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(override, named):
    with pytest.raises(UserError) as caught:
        load_config([override])
    message = str(caught.value)
    assert named in message and "\n" not in message


OTHER_COMMANDS = ("serving", "hydra")  # composed by `cudal1 serve` and by multirun, and tested there


def test_every_preset_composes():
    for group in sorted(p for p in config_dir().iterdir() if p.is_dir() and p.name not in OTHER_COMMANDS):
        for preset in sorted(group.glob("*.yaml")):
            needed = ["policy.path=somewhere"] if preset.stem in ("huggingface", "gguf") else []
            assert isinstance(load_config([f"{group.name}={preset.stem}", *needed]), Config), preset


def test_a_pretrained_policy_is_not_trained_at_the_rates_of_one_from_scratch():
    assert load_config([]).contrastive.learning_rate > 1e-4
    for preset in ("huggingface", "gguf", "qwen2.5-coder-1.5b", "smollm2-135m"):
        config = load_config([f"policy={preset}", "policy.path=somewhere"])
        assert config.contrastive.learning_rate <= 1e-5 and config.policy.chat, preset
        assert config.checkpoint.every_steps > 1, preset
    assert load_config(["policy=smollm2-135m", "contrastive.learning_rate=0.1"]).contrastive.learning_rate == 0.1


def test_every_preset_says_in_its_first_line_what_it_is():
    for preset in config_dir().rglob("*.yaml"):
        lines = [line for line in preset.read_text().splitlines() if not line.startswith("# @package")]
        assert lines[0].startswith("# "), preset


def test_the_printed_configuration_holds_every_key():
    text = to_yaml(load_config([]))
    for key in ("group_size", "bucket_width", "zero_stage", "half_width", "temperature"):
        assert key in text
