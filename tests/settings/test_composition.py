"""What has been composed before is read back as Hydra would compose it again."""

from __future__ import annotations

import pytest
from hydra import compose
from omegaconf import OmegaConf

from cudal1_ray.config import compose_config, composing, load_config
from cudal1_ray.errors import UserError


def test_configuration_when_its_caller_changes_it_is_composed_as_before():
    changed = load_config(["policy.hidden_size=96"])
    changed.plugins.append("mine")
    changed.policy.hidden_size = 1
    again = load_config(["policy.hidden_size=96"])
    assert again.plugins == [] and again.policy.hidden_size == 96


@pytest.mark.parametrize(
    "overrides",
    [
        ["rewards=staged", "name=x", "rewards=success"],
        ["policy.hidden_size=7", "policy={hidden_size: 5}"],
        ["policy={hidden_size: 5}", "policy.hidden_size=7"],
        ["rewards@self_supervised.rewards=staged", "self_supervised.rewards.truncated=mask", "hydra.job.name=mine"],
        ["name=${stage}", "plugins=[a,b]", "+policy.chat_template_kwargs={enable_thinking: false}"],
    ],
)
def test_overrides_when_composed_give_what_hydra_gives(overrides):
    with composing():
        expected = OmegaConf.to_object(compose("config", overrides))
    for _ in range(2):
        assert compose_config("config", overrides) == expected


@pytest.mark.parametrize(
    "override", ["sft.epochs=choice(1,2)", "sft.epochs=many", "sft.nothing=1", "policy=nothing", "recipe=demo,none"]
)
def test_override_when_hydra_refuses_it_is_refused_in_its_words(override):
    with pytest.raises(UserError) as expected, composing():
        compose("config", [override])
    for _ in range(2):
        with pytest.raises(UserError) as refused:
            compose_config("config", [override])
        assert str(refused.value) == str(expected.value)
