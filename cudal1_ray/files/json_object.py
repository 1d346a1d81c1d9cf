"""One JSON object in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError, first_line


def read_json_object(path: Path, label: Path | None = None) -> dict[str, Any]:
    """Return the object that a file holds.

    Args:
        label: names the file in errors, where `path` is a copy of it.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: naming the file that cannot be read, is not JSON, or holds no object.
    """
    label = label or path
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{label}: cannot be read as JSON ({first_line(error)}); restore it") from None
    if not isinstance(value, dict):
        raise UserError(f"{label}: holds no JSON object; restore it")
    return value
