"""What every settings file shares: bounds of numbers, explanations beside fields, errors that name an override.

The `config.py` of each package declares its section as a dataclass; nothing here knows a section.
"""

from __future__ import annotations

from cudal1_ray.settings.bounds import Bounds, bounded, bounds_of, check_values, choices_of, one_of, several_of
from cudal1_ray.settings.keys import Key, Section, find_keys, section_texts

__all__ = [
    "Bounds",
    "Key",
    "Section",
    "bounded",
    "bounds_of",
    "check_values",
    "choices_of",
    "find_keys",
    "one_of",
    "section_texts",
    "several_of",
]
