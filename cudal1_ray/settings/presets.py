"""The presets of `conf/`: groups of YAML files, one file per choice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

_GLOBAL = "# @package _global_"


@dataclass(frozen=True)
class Preset:
    """One file of a group: `group=name` chooses it. `text` is its first comment, up to the first blank or key."""

    group: str
    name: str
    text: str
    values: dict[str, Any]  # dotted key -> value, those that the file itself sets


@cache  # one command asks several times, and conf/ does not change meanwhile
def find_presets(folder: Path) -> dict[str, list[Preset]]:
    """Return the presets below a folder by group (`rewards`, `rewards/checker`), both in alphabetical order."""
    groups: dict[str, list[Preset]] = {}
    for file in sorted(folder.rglob("*.yaml")):
        group = file.parent.relative_to(folder).as_posix()
        if group != ".":
            groups.setdefault(group, []).append(_read(file, group))
    return dict(sorted(groups.items()))


def _read(file: Path, group: str) -> Preset:
    lines = file.read_text(encoding="utf-8").splitlines()
    everywhere = lines[0].startswith(_GLOBAL)
    comment = []
    for line in lines[everywhere:]:
        if not line.startswith("#"):
            break
        comment.append(line.lstrip("# "))
    content = OmegaConf.create("\n".join(lines))
    assert isinstance(content, DictConfig)
    prefix = "" if everywhere else group.replace("/", ".") + "."
    values = {prefix + key: value for key, value in _leaves(content, "") if not key.startswith("defaults")}
    return Preset(group, file.stem, " ".join(comment), values)


def _leaves(content: DictConfig, prefix: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in content.items_ex(resolve=False):
        if isinstance(value, DictConfig):
            leaves += _leaves(value, f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", OmegaConf.to_container(value) if OmegaConf.is_list(value) else value))
    return leaves
