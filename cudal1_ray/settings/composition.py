"""Presets and settings put together by Hydra, which composes each choice of presets once in a process.

Hydra needs 200 ms for the presets of a run, however few its settings are; what it made of them is read back in 2 ms.
"""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig


def compose_settings(config_name: str, overrides: list[str], folder: Path) -> DictConfig:
    """Return what `hydra.compose` makes of overrides; a caller may change it.

    Args:
        config_name: the file that is composed, by its path below the folder.
        overrides: in Hydra's grammar.
        folder: that of the presets, which Hydra is initialized with.

    Raises:
        HydraException: naming the override at fault.
    """
    choices, settings = _split(overrides, folder)
    config: DictConfig = pickle.loads(_compose_presets(config_name, choices))
    # Hydra has no public call for this half of `compose`; a test compares both halves together with `compose` itself.
    ConfigLoaderImpl._apply_overrides_to_config(settings, config)
    return config


def find_files(config_name: str, overrides: list[str], folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the files of a composition, in their order: path below the folder without suffix, and section."""
    choices, _ = _split(overrides, folder)
    return _find_preset_files(config_name, choices)


def _split(overrides: list[str], folder: Path) -> tuple[tuple[str, ...], list[Override]]:
    """Return the overrides that choose presets, concern Hydra or are refused by it, and those that set values.

    The two kinds are those of Hydra, which applies the second one to what the first one gives.
    """
    choices, settings = [], []
    for override in OverridesParser.create().parse_overrides(overrides):
        is_group = (folder / override.key_or_group).is_dir() and not isinstance(override.value(), dict)
        if is_group or override.is_hydra_override() or override.is_sweep_override():
            choices.append(override.input_line or "")
        else:
            settings.append(override)
    return tuple(choices), settings


@cache
def _compose_presets(config_name: str, choices: tuple[str, ...]) -> bytes:
    return pickle.dumps(compose(config_name=config_name, overrides=list(choices)))


@cache
def _find_preset_files(config_name: str, choices: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    loader = GlobalHydra.instance().config_loader()
    defaults = loader.compute_defaults_list(config_name, list(choices), RunMode.RUN)
    return tuple((file.config_path or "", file.package or "") for file in defaults.defaults)
