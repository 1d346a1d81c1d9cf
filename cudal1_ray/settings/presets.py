"""The presets of `conf/`: groups of YAML files, one file per choice."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

_GLOBAL = "# @package _global_"


@dataclass(frozen=True)
class Preset:
    """One file of a group: `group=name` chooses it. It is read where it is explained: its name is enough to compose."""

    group: str
    name: str
    file: Path

    @cached_property
    def text(self) -> str:
        """Return the first comment, up to the first blank line or key."""
        lines = self.file.read_text(encoding="utf-8").splitlines()
        comment = itertools.takewhile(lambda line: line.startswith("#"), lines[lines[0].startswith(_GLOBAL) :])
        return " ".join(line.lstrip("# ") for line in comment)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Return the values that the file itself sets, by dotted key."""
        text = self.file.read_text(encoding="utf-8")
        content = OmegaConf.create(text)
        assert isinstance(content, DictConfig)
        prefix = "" if text.startswith(_GLOBAL) else self.group.replace("/", ".") + "."
        return {prefix + key: value for key, value in _leaves(content, "") if not key.startswith("defaults")}


@cache  # one command asks several times, and conf/ does not change meanwhile
def find_presets(folder: Path) -> dict[str, list[Preset]]:
    """Return the presets below a folder by group (`rewards`, `rewards/checker`), both in alphabetical order."""
    groups: dict[str, list[Preset]] = {}
    for file in sorted(folder.rglob("*.yaml")):
        group = file.parent.relative_to(folder).as_posix()
        if group != ".":
            groups.setdefault(group, []).append(Preset(group, file.stem, file))
    return dict(sorted(groups.items()))


def _leaves(content: DictConfig, prefix: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in content.items_ex(resolve=False):
        if isinstance(value, DictConfig):
            leaves += _leaves(value, f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", OmegaConf.to_container(value) if OmegaConf.is_list(value) else value))
    return leaves
