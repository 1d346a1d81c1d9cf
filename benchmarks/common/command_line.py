"""How a benchmark's command ends: a mistake that its user can mend is one line and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from cudal1_ray.errors import UserError


def run_command(main: Callable[[], int | None]) -> NoReturn:
    """Call a command's `main` and exit with the code that it returns, None being 0; with 2 after a UserError."""
    try:
        sys.exit(main())
    except UserError as error:
        module = sys.modules["__main__"].__spec__
        name = "benchmark" if module is None else module.name.removeprefix("benchmarks.")
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
