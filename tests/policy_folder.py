"""A policy's folder, as far as finding one looks into it before an engine reads it."""

from __future__ import annotations

from pathlib import Path


def make_policy_folder(folder: Path) -> Path:
    """Make a folder with the files of a model, which hold none, and return it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder
