"""How a benchmark's command is read, with settings anywhere, and how it ends.

A mistake that its user can mend is one line and exit code 2, never a traceback.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Container, Sequence
from typing import NoReturn

from cudal1_ray.errors import UserError

SETTING = re.compile(r"([+~]*[A-Za-z_][\w.@/]*)=")


def parse_with_settings(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None, other_keys: Container[str] = ()
) -> argparse.Namespace:
    """Parse a command line whose `overrides` are settings, key=value, anywhere in it.

    An option of several words would take the settings behind it for its own.

    Args:
        words: None: those of this process.
        other_keys: what stands before the "=" of words that are no settings.
    """
    words = sys.argv[1:] if words is None else words
    settings = [word for word in words if (key := SETTING.match(word)) and key[1] not in other_keys]
    arguments = parser.parse_args([word for word in words if word not in settings])
    if settings and "overrides" not in arguments:  # a command beside others that take some
        parser.error(f"unrecognized arguments: {' '.join(settings)}")
    if settings:
        arguments.overrides += settings
    return arguments


def run_command(main: Callable[[], int | None]) -> NoReturn:
    """Call a command's `main` and exit with the code that it returns, None being 0; with 2 after a UserError."""
    try:
        sys.exit(main())
    except UserError as error:
        module = sys.modules["__main__"].__spec__
        name = "benchmark" if module is None else module.name.removeprefix("benchmarks.")
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
