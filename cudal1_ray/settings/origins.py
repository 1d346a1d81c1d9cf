"""Where the values of a composed configuration come from: a preset, a recipe, the command line, else the schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cudal1_ray.settings.presets import Preset

COMMAND_LINE = "the command line"


def find_origins(
    files: Iterable[tuple[str, str]],
    presets: Mapping[str, list[Preset]],
    groups: Collection[str],
    overrides: Iterable[str],
) -> dict[str, str]:
    """Return what set each setting last, by dotted path; a setting that is not there has its schema's default.

    Args:
        files: those of conf/ in the order of composing: path below it without suffix, and the section that it fills
            ("" for files that set several).
        presets: those of `find_presets`, by group.
        groups: those that the command line chooses a preset of; other files are named by their path.
        overrides: single settings on the command line.
    """
    by_path = {f"{group}/{preset.name}": preset for group, members in presets.items() for preset in members}
    origins: dict[str, str] = {}
    for path, section in files:
        if (preset := by_path.get(path)) is None:
            continue  # of Hydra's own, the schema, or conf/config.yaml, which names groups
        own = preset.group.replace("/", ".") + "."
        for key in preset.values:
            place = f"{section}.{key.removeprefix(own)}" if section else key
            chosen = preset.group in groups
            origins[place] = f"{preset.group}={preset.name}" if chosen else f"conf/{path}.yaml"
    for override in overrides:
        origins[override.lstrip("+").partition("=")[0]] = COMMAND_LINE
    return origins
