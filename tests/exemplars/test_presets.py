"""The presets of conf/ fit the typed configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from cudal1_ray.exemplars import ExemplarsConfig, strategy_names
from cudal1_ray.exemplars.strategies import BUNDLED

FOLDER = Path(__file__).parents[2] / "conf" / "exemplars"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_exemplar_preset_when_merged_is_valid(path):
    assert path.read_text().startswith("# ")
    merged = OmegaConf.merge(OmegaConf.structured(ExemplarsConfig), OmegaConf.load(path))
    config = OmegaConf.to_object(merged)
    config.validate()
    assert config.strategy == path.stem and config.strategy in strategy_names()


def test_presets_when_listed_are_those_of_the_bundled_strategies():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(BUNDLED)
