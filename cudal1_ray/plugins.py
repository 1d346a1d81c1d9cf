"""A user's own modules, which add rewards, exemplar strategies and algorithms: imported where those are looked up."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from cudal1_ray.errors import UserError

# Carries the names from the driver to its actors. Not a setting: `plugins=[...]` is.
VARIABLE = "CUDAL1_PLUGINS"

_loaded: dict[str, None] = {}


def load_plugins(modules: Sequence[str]) -> None:
    """Import the modules, each once; the current folder is searched too, as `python -m` does.

    Raises:
        UserError: naming the module that cannot be imported, and why.
    """
    if modules and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    for module in modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            raise UserError(f"plugins={module}: cannot be imported ({type(error).__name__}: {error})") from error
        _loaded[module] = None


def plugin_environment() -> dict[str, str]:
    """Return the environment variable with which actors import what this process has imported; empty without any."""
    return {VARIABLE: ",".join(_loaded)} if _loaded else {}


def load_plugins_of_driver() -> None:
    """Import, in an actor's process, the plugins that its driver has."""
    load_plugins([module for module in os.environ.get(VARIABLE, "").split(",") if module])
