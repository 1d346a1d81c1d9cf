"""Overrides as a user types them (`key=value`, `group=preset`), checked and made ready for Hydra's grammar.

A text setting takes its value as it is written: what Hydra would read as a number, or could not read at all, is quoted
here. A mistake is one line that names the key and what it could have been.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from hydra.core.override_parser.types import Quote, QuotedString

from cudal1_ray.errors import UserError
from cudal1_ray.settings.keys import Key, Section
from cudal1_ray.settings.presets import Preset
from cudal1_ray.settings.suggestions import nearest, nearest_keys, question

_SWEEP_FUNCTION = re.compile(r"(choice|range|interval|glob|sort|shuffle|tag)\(.*\)", re.DOTALL)
# Digits from which Python reads no integer (sys.int_info.default_max_str_digits + 1).
_TOO_MANY_DIGITS = re.compile(r"(?<![\d_])(?:\d_?){4301}")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
# Most settings of a section that a message names; longer lists have a command of their own.
_MOST_SIBLINGS = 12
SWEEP_ADVICE = "several values make a sweep, which only `cudal1 train -m` takes"


class Overrides:
    """The overrides that a schema and the presets of its groups allow.

    Args:
        keys: those of `find_keys`.
        presets: those of `find_presets`.
        command: as messages name it, for example "cudal1 train".
    """

    def __init__(self, keys: Mapping[str, Key | Section], presets: Mapping[str, list[Preset]], command: str) -> None:
        self._keys, self._presets, self._command = keys, presets, command

    def prepare(self, overrides: Iterable[str], sweep: bool = False) -> list[str]:
        """Return the overrides in Hydra's grammar.

        Args:
            overrides: `key=value` or `group=preset`.
            sweep: several values with commas, and Hydra's sweep functions, are allowed.

        Raises:
            UserError: for an unknown key or preset, several values without a sweep, a number that Python does not read,
                or a text without `=`.
        """
        prepared = [self._prepare(override, sweep) for override in overrides]
        for override in prepared:
            if _TOO_MANY_DIGITS.search(_QUOTED.sub("", override)):
                raise UserError(f"{override:.60}...: a number of more than 4,300 digits; give a smaller one")
        return prepared

    def _prepare(self, override: str, sweep: bool) -> str:
        try:
            os.fsencode(override)
        except UnicodeEncodeError:
            raise UserError(f"{override!r:.60}: half of a surrogate pair is no character") from None
        left, sign, value = override.partition("=")
        key = left.lstrip("+")
        if key.startswith(("hydra.", "hydra/")) or left.startswith("~"):
            return override
        if not sign or not key:
            advice = f", `{self._command} --help {key}` explains it" if key in self._keys else self._suggestion(key)
            raise UserError(f"{override}: a setting is given as key=value{advice}")
        group = key.partition("@")[0]
        several = len(_split(value)) > 1 or (sweep and _SWEEP_FUNCTION.fullmatch(value) is not None)
        if several and not sweep:
            raise UserError(f"{override}: {self._several_advice(key, value)}")
        if group in self._presets:
            if not value.startswith(("{", "[")) and not _SWEEP_FUNCTION.fullmatch(value):
                for name in _split(value):
                    self._check_preset(group, name.strip())
            return override
        entry = self._keys.get(key)
        if entry is None or not entry.path:
            raise UserError(f"{key}: there is no such setting{self._suggestion(key)}")
        if isinstance(entry, Key) and entry.takes_text and not several:
            return f"{left}={_quoted(value)}"
        if isinstance(entry, Key) and entry.takes_texts and value.startswith("[") and value.endswith("]"):
            return f"{left}={_quoted_items(value)}"
        if isinstance(entry, Section) and not value.startswith(("{", "${")):
            raise UserError(f"{override}: {self._section_advice(key, value)}")
        return override

    def _section_advice(self, key: str, value: str) -> str:
        group = key.replace(".", "/")
        if value in [preset.name for preset in self._presets.get(group, [])]:
            return f"{key} is a section; its preset is chosen by {group}={value}"
        return f"{key} is a section; give its settings, `{self._command} --help {key}` explains them"

    def _several_advice(self, key: str, value: str) -> str:
        entry = self._keys.get(key)
        if isinstance(entry, Key) and entry.takes_list:
            return f"a list stands in brackets, '{key}=[{value}]'"
        if isinstance(entry, Key) and entry.takes_text:
            return f"{SWEEP_ADVICE}; a text that has a comma itself needs quotes: '{key}=\"{value}\"'"
        return SWEEP_ADVICE

    def _check_preset(self, group: str, value: str) -> None:
        names = [preset.name for preset in self._presets[group]]
        if value not in names:
            meant = question(f"{group}={name}" for name in nearest(value, names, 1))
            advice = " ".join(filter(None, [meant, f"Presets of {group}: {', '.join(names)}"]))
            raise UserError(f"{group}={value}: there is no such preset; {advice}")

    def _suggestion(self, name: str) -> str:
        """Return what an unknown name could have been, and where all of them are explained."""
        everywhere = f"`{self._command} --help` explains settings, `{self._command} --cfg` lists them"
        names = nearest_keys(name, [*self._keys, *self._presets])
        if not names:
            return f"; {everywhere}"
        section, _, _ = names[0].rpartition(".")
        siblings = [key.rpartition(".")[2] for key in self._keys if section and key.rpartition(".")[0] == section]
        if len(siblings) > _MOST_SIBLINGS:
            return f"; {question(names)} `{self._command} --help {section}` explains all of {section}"
        others = f" ({section} has {', '.join(siblings)})" if siblings else ""
        return f"; {question(names)}{others}"


def grammar_advice(override: str, keys: Mapping[str, Key | Section]) -> str:
    """Return how to write a value that Hydra's grammar cannot read."""
    key, _, value = override.partition("=")
    entry = keys.get(key.lstrip("+"))
    if isinstance(entry, Key) and not (entry.takes_text or entry.takes_texts or entry.kind == "Any"):
        return f"{override}: must be {entry.noun} (`cudal1 train --help {entry.path}` explains it)"
    advice = "a text with spaces, brackets, commas, quotes or letters beyond ASCII needs quotes inside the shell's"
    if isinstance(entry, Key) and entry.takes_texts:
        inner = value.strip("[]")
        advice += f", for example '{key}=[\"{inner}\"]'"
    return f"{override}: cannot be read; {advice}"


def _quoted(value: str) -> str:
    """Return a text as Hydra reads it back unchanged; null, quoted texts and interpolations stay as they are."""
    if value in ("", "null") or "${" in value:
        return value
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value
    return QuotedString(value, Quote.single).with_quotes()


def _quoted_items(value: str) -> str:
    """Return a list of texts, [a, b], as Hydra reads its items back unchanged."""
    items = [item.strip() for item in _split(value[1:-1])]
    return f"[{','.join(map(_quoted, items))}]" if items != [""] else value


def _split(value: str) -> list[str]:
    """Return the parts of a value between the commas outside quotes, brackets, braces and parentheses."""
    depth, quote, parts = 0, "", [""]
    for character in value:
        if character == "," and not quote and depth <= 0:
            parts.append("")
            continue
        parts[-1] += character
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
    return parts
