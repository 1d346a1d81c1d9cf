"""What `--explain` and `--help KEY` print: settings with their explanations, values, bounds and presets."""

from __future__ import annotations

import enum
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from cudal1_ray.config import Config, all_presets, compose_with_origins
from cudal1_ray.errors import UserError
from cudal1_ray.settings import Key, Section, find_keys
from cudal1_ray.settings.presets import Preset
from cudal1_ray.settings.suggestions import nearest_keys, question

# Characters of a printed line.
_WIDTH = 100
# Characters to which settings with their values are padded, in a list of them.
_VALUE_WIDTH = 60


@dataclass(frozen=True)
class Reference:
    """The settings of one command, ready to be explained.

    Attributes:
        keys: every setting and section by its dotted path.
        values: the configuration in use.
        presets: by group.
        origins: what set a value in use, by path; the schema's default where a path is missing.
        overrides: that `values` was composed with.
    """

    command: str
    keys: Mapping[str, Key | Section]
    values: Any
    presets: Mapping[str, list[Preset]]
    origins: Mapping[str, str]
    overrides: tuple[str, ...] = ()

    @classmethod
    def of_train(cls, overrides: Iterable[str] = ()) -> Reference:
        """Return the settings of `cudal1 train` with the values that overrides compose to; without any, the demo's.

        Raises:
            UserError: naming the key or the preset at fault.
        """
        config, origins = compose_with_origins(list(overrides))
        return cls("cudal1 train", find_keys(Config), config, all_presets(), origins, tuple(overrides))

    @classmethod
    def of_serve(cls, overrides: Iterable[str] = ()) -> Reference:
        """Return the settings of `cudal1 serve` with the values that overrides compose to.

        Raises:
            UserError: naming the key or the preset at fault.
        """
        from cudal1_ray.serving.config import ServingConfig, compose_serving_with_origins, serving_presets

        config, origins = compose_serving_with_origins(list(overrides))
        return cls("cudal1 serve", find_keys(ServingConfig), config, serving_presets(), origins, tuple(overrides))

    def under(self, preset: Preset) -> Reference:
        """Return the same settings composed with a preset as well."""
        compose = Reference.of_serve if self.command == "cudal1 serve" else Reference.of_train
        return compose([*self.overrides, f"{preset.group}={preset.name}"])

    def value(self, path: str) -> Any:
        """Return the value in use of the setting at a dotted path."""
        node = self.values
        for name in path.split("."):
            node = getattr(node, name)
        return node

    def group_of(self, path: str) -> list[Preset]:
        """Return the presets of the group that a section belongs to; empty where it has none."""
        return self.presets.get(path.replace(".", "/"), [])

    def settings_below(self, path: str) -> list[Key]:
        """Return the settings of a section and of the sections in it."""
        return [key for name, key in self.keys.items() if isinstance(key, Key) and name.startswith(f"{path}.")]


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
    """Return the explanation of a setting, a section, a group of presets, a preset (`group=name`, or its name alone)
    or "presets".

    Raises:
        UserError: when there is nothing of that name; it names the nearest.
    """
    group, sign, preset_name = name.partition("=")
    if name == "presets":
        return "\n\n".join(_group(group, presets) for group, presets in reference.presets.items()) + "\n"
    paths = [name] if name in reference.keys and name else _ending(name, reference.keys)
    blocks = [_entry(path, reference) for path in paths]
    if name in reference.presets and not isinstance(reference.keys.get(name), Section):
        blocks.append(_group(name, reference.presets[name]))
    for preset in itertools.chain.from_iterable(reference.presets.values()):
        if preset.name == name or (sign and (preset.group, preset.name) == (group, preset_name)):
            blocks.append("\n".join(_preset(preset, reference.under(preset))))
    if not blocks:
        names = [f"{preset.group}={preset.name}" for members in reference.presets.values() for preset in members]
        near = nearest_keys(name if sign else group, [*reference.keys, *reference.presets, *names])
        rest = question(near) or f"`{reference.command} --cfg` lists all"
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
        if below.startswith(f"{path}.") and below.count(".") == path.count(".") + 1:
            if isinstance(inner, Key):
                lines += ["", *_setting(inner, reference)]
            else:
                lines += ["", f"{below}: a section of its own (--help {below})", *_wrap(inner.text, "  ")]
                lines += _values(reference.settings_below(below), reference)
    return "\n".join(lines)


def _setting(key: Key, reference: Reference) -> list[str]:
    origin = _origin(key, reference)
    return [f"{key.path}={_yaml(reference.value(key.path))}   ({_details(key)}; {origin})", *_wrap(key.text, "  ")]


def _origin(key: Key, reference: Reference) -> str:
    """Return where the value in use comes from, and the default where that is another value."""
    if key.path not in reference.origins:
        return "default"
    origin = f"from {reference.origins[key.path]}"
    differs = _yaml(key.default) != _yaml(reference.value(key.path))
    return f"{origin}, default {_yaml(key.default)}" if differs else origin


def _values(keys: Iterable[Key], reference: Reference) -> list[str]:
    """Return a line for each setting: its value, and where that comes from."""
    lines = [(f"{key.path}={_yaml(reference.value(key.path))}", _origin(key, reference)) for key in keys]
    width = min(max((len(value) for value, _ in lines), default=0), _VALUE_WIDTH)
    return [f"  {value:<{width}}   ({origin})" for value, origin in lines]


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


def _preset(preset: Preset, reference: Reference) -> list[str]:
    """Return the explanation of a preset, with every value of its section as `reference`, composed with it, has it;
    for one that sets several sections, with what is not the default.
    """
    lines = [f"{preset.group}={preset.name}", *_wrap(preset.text, "  ")]
    section = preset.group.replace("/", ".")
    if isinstance(reference.keys.get(section), Section):
        return [*lines, f"with it {section} is:", *_values(reference.settings_below(section), reference)]
    changed = [key for key in reference.keys.values() if isinstance(key, Key) and key.path in reference.origins]
    return [*lines, "with it these are set, everything else is at its default:", *_values(changed, reference)]


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest, break_on_hyphens=False
    )


def _yaml(value: Any) -> str:
    value = value.name if isinstance(value, enum.Enum) else value
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()
