"""Baselines, which candidates are compared to: the reference as it stands, or as a user would first try to speed it up.

A user's own baseline is a Python file with `dress(model)`, which returns what is called in the model's place. The file
runs in the reference's process, inside the sandbox, as the problem does.
"""

from __future__ import annotations

from pathlib import Path

from cudal1_ray.source.nodes import function_named
from cudal1_ray.source.parsing import fault, parse
from cudal1_ray.source.text import decode_source

BASELINES = ("eager", "compile", "compile_reduce_overhead", "cuda_graph", "tuned_eager")


def check_baseline(name: str, device: str) -> str:
    """Return why the baseline `name` is not available on `device`; empty where it is available."""
    if is_file(name):
        return _complaint_about(Path(name))
    if name not in BASELINES:
        return f"unknown baseline {name!r}: choose one of {', '.join(BASELINES)}, or a .py file with dress(model)"
    if name == "cuda_graph" and not device.startswith("cuda"):
        return "cuda_graph needs device cuda"
    return ""


def is_file(name: str) -> bool:
    """Return whether a baseline is a user's own file."""
    return name.endswith(".py")


def dressing(name: str) -> str:
    """Return the text of a baseline's file, "" for one of `BASELINES`.

    Raises:
        OSError: when the file is missing.
        ValueError: when its bytes are no text.
    """
    return decode_source(Path(name).expanduser().read_bytes()) if is_file(name) else ""


def coarse_products(against: str, device: str) -> bool:
    """Return whether the baseline `against` lets matrix products run in TF32."""
    return against == "tuned_eager" and device != "cpu"


def _complaint_about(path: Path) -> str:
    try:
        tree = parse(dressing(str(path)), str(path))
    except OSError as error:
        return f"{path}: {error.strerror}"
    except SyntaxError as error:
        return f"{path}: not valid Python, {fault(error)}"
    except ValueError as error:
        return f"{path}: {error}"
    if function_named(tree, "dress") is None:
        return f"{path}: defines no function dress(model)"
    return ""
