"""What `--explain` and `--help KEY` print: settings with their explanations, values, bounds and presets."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from cudal1_ray.config import Config, all_presets, load_config
from cudal1_ray.errors import UserError
from cudal1_ray.settings import Key, Section, find_keys
from cudal1_ray.settings.overrides import suggest
from cudal1_ray.settings.presets import Preset

_WIDTH = 100  # characters of a printed line


@dataclass(frozen=True)
class Reference:
    """The settings of one command, ready to be explained: keys, the values in use, and presets by group."""

    command: str
    keys: Mapping[str, Key | Section]
    values: Any
    presets: Mapping[str, list[Preset]]

    @classmethod
    def of_train(cls, config: Config | None = None) -> Reference:
        """Return the settings of `cudal1 train` with the values of `config`, or those of the demo."""
        return cls("cudal1 train", find_keys(Config), config or load_config([]), all_presets())

    @classmethod
    def of_serve(cls, config: Any = None) -> Reference:
        """Return the settings of `cudal1 serve` with the values of `config`, or those of `serving=cpu`."""
        from cudal1_ray.serving.config import ServingConfig, compose_serving, serving_presets

        return cls("cudal1 serve", find_keys(ServingConfig), config or compose_serving("cpu", []), serving_presets())

    def value(self, path: str) -> Any:
        """Return the value in use of the setting at a dotted path."""
        node = self.values
        for name in path.split("."):
            node = getattr(node, name)
        return node

    def group_of(self, path: str) -> list[Preset]:
        """Return the presets of the group that a section belongs to; empty where it has none."""
        return self.presets.get(path.replace(".", "/"), [])


def explain_all(reference: Reference) -> str:
    """Return the whole configuration as YAML in which every section and key is explained above its line."""
    lines: list[str] = []
    for path, entry in reference.keys.items():
        if not path:
            continue
        indent = "  " * path.count(".")
        comments = [f"{entry.text} ({_details(entry)})" if isinstance(entry, Key) else entry.text]
        if isinstance(entry, Section):
            lines.append("")
            if group := reference.group_of(path):
                comments.append(f"Presets: {', '.join(preset.name for preset in group)}.")
        for comment in filter(None, comments):
            lines += _wrap(comment, f"{indent}# ")
        value = f" {_yaml(reference.value(path))}" if isinstance(entry, Key) else ""
        lines.append(f"{indent}{path.rpartition('.')[2]}:{value}")
    return "\n".join(lines).strip() + "\n"


def explain(name: str, reference: Reference) -> str:
    """Return the explanation of a setting, a section, a group of presets, a preset (`group=name`) or "presets".

    Raises:
        UserError: when there is nothing of that name; it names the nearest.
    """
    group, sign, preset_name = name.partition("=")
    if name == "presets":
        return "\n\n".join(_group(group, presets) for group, presets in reference.presets.items()) + "\n"
    if sign and (matches := [p for p in reference.presets.get(group, []) if p.name == preset_name]):
        return "\n".join(_preset(matches[0])) + "\n"
    paths = [name] if name in reference.keys and name else _ending(name, reference.keys)
    blocks = [_entry(path, reference) for path in paths]
    if name in reference.presets and not isinstance(reference.keys.get(name), Section):
        blocks.append(_group(name, reference.presets[name]))
    if not blocks:
        near = suggest(group, [*reference.keys, *reference.presets])
        rest = f"did you mean {' or '.join(near)}?" if near else f"`{reference.command} --cfg` lists all"
        raise UserError(f"--help {name}: there is no such setting or preset; {rest}")
    return "\n\n".join(blocks) + "\n"


def _ending(name: str, keys: Mapping[str, Key | Section]) -> list[str]:
    return [path for path in keys if path and path.endswith(f".{name}")]


def _entry(path: str, reference: Reference) -> str:
    entry = reference.keys[path]
    if isinstance(entry, Key):
        return "\n".join([*_setting(entry, reference), *_setters(path, reference)])
    lines = [path, *_wrap(entry.text, "  ")]
    if group := reference.group_of(path):
        lines += ["", _group(path.replace(".", "/"), group)]
    for below, inner in reference.keys.items():
        if below.startswith(f"{path}."):
            if isinstance(inner, Key) and below.count(".") == path.count(".") + 1:
                lines += ["", *_setting(inner, reference)]
            elif isinstance(inner, Section) and below.count(".") == path.count(".") + 1:
                lines += ["", f"{below}: a section of its own (--help {below})", *_wrap(inner.text, "  ")]
    return "\n".join(lines)


def _setting(key: Key, reference: Reference) -> list[str]:
    return [f"{key.path}={_yaml(reference.value(key.path))}   ({_details(key)})", *_wrap(key.text, "  ")]


def _details(key: Key) -> str:
    return f"{key.kind}, {key.bounds}" if key.bounds else key.kind


def _setters(path: str, reference: Reference) -> Iterator[str]:
    """Yield a line for each preset that sets the key."""
    for presets in reference.presets.values():
        for preset in presets:
            if path in preset.values:
                yield f"  {preset.group}={preset.name} sets {_yaml(preset.values[path])}"


def _group(group: str, presets: list[Preset]) -> str:
    lines = [f"presets of {group}:"]
    for preset in presets:
        lines += _wrap(f"{group}={preset.name}  {preset.text}", "  ", "      ")
    return "\n".join(lines)


def _preset(preset: Preset) -> list[str]:
    settings = [f"  {key}={_yaml(value)}" for key, value in preset.values.items()]
    return [f"{preset.group}={preset.name}", *_wrap(preset.text, "  "), "sets:", *settings]


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest, break_on_hyphens=False
    )


def _yaml(value: Any) -> str:
    value = value.name if isinstance(value, enum.Enum) else value
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()
