"""Names that a user may have meant by one that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

# Ratio of difflib from which a name is suggested; its own default.
_CLOSENESS = 0.6
# Most names in a suggestion.
_SUGGESTIONS = 3


def nearest(name: str, names: Iterable[str], most: int = _SUGGESTIONS) -> list[str]:
    """Return the names that hold the unknown one, or else those of similar spelling, at most `most` of them."""
    names = list(names)
    holding = [each for each in names if name and name.lower() in each.lower()]
    return holding[:most] or difflib.get_close_matches(name, names, most, _CLOSENESS)


def nearest_keys(name: str, keys: Iterable[str]) -> list[str]:
    """Return the known dotted names nearest to an unknown one: the same last part first, then similar spellings."""
    names = list(dict.fromkeys(key for key in keys if key))
    last = name.rpartition(".")[2]
    same = [key for key in names if key.rpartition(".")[2] == last]
    if same:
        return same[:_SUGGESTIONS]
    alike = difflib.get_close_matches(name, names, _SUGGESTIONS, _CLOSENESS)
    if alike or "." in name:
        return alike
    by_last: dict[str, list[str]] = {}
    for key in names:
        by_last.setdefault(key.rpartition(".")[2], []).append(key)
    parts = difflib.get_close_matches(last, by_last, 1, _CLOSENESS)
    return [key for part in parts for key in by_last[part]][:_SUGGESTIONS]


def nearest_folders(path: Path) -> list[str]:
    """Return the folders beside a folder that there is not, with a name like its own."""
    try:
        names = sorted(each.name for each in path.parent.iterdir() if each.is_dir())
    except OSError:
        return []
    return [str(path.with_name(name)) for name in nearest(path.name, names)]


def question(names: Iterable[str]) -> str:
    """Return "did you mean ...?" for suggested names, "" for none."""
    text = " or ".join(names)
    return f"did you mean {text}?" if text else ""
