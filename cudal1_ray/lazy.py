"""Public names of packages that are loaded on first use, so that a configuration costs no torch and no pyarrow."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def attach(package: str, names: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], list[str]]:
    """Return `__getattr__` and `__all__` for a package's `__init__.py`.

    Args:
        package: `__name__` of the package.
        names: module of the package -> the public names that it holds.
    """
    homes = {name: module for module, held in names.items() for name in held}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted(homes)
