"""Weights on their way under a running server: found in a run, checked against those being served, kept for replicas.

What a run has written is served as a copy (hard links where the file system allows it): a run deletes its older
checkpoints, but a replica that starts hours later needs the very weights that the others serve.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_object, write_atomically
from cudal1_ray.serving.served_policy import find_policy, newest_policy

# Of a model folder, whichever library wrote it.
COPIED_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
# Keys of config.json about how a model was saved, not about what it computes.
_BESIDE_THE_POINT = ("transformers_version", "_name_or_path", "dtype", "torch_dtype", "use_cache")


@dataclass(frozen=True)
class Weights:
    """What a server serves at a time.

    Attributes:
        version: counts from 1, up by one with every folder that is rolled in: the policy version in answers.
        folder: a model folder that does not change any more.
        source: the name of the checkpoint it came from, for people.
    """

    version: int
    folder: str
    source: str


def source_name(folder: Path) -> str:
    """Return a short name: contrastive-000012 for .../checkpoints/contrastive-000012/policy."""
    return folder.parent.name if folder.name == "policy" else folder.name


def allowed_folder(path: str, roots: list[str]) -> Path:
    """Return the model folder that `path` points at (a run, a checkpoint, a model folder).

    Raises:
        UserError: it lies outside of all `roots`, or holds no model.
    """
    top = Path(path).expanduser().resolve()
    if not any(top.is_relative_to(Path(root).resolve()) for root in roots):
        raise UserError(f"path={path}: weights may come from the folders of weights.roots only")
    newest = newest_policy(top) if (top / "checkpoints").is_dir() else None
    return newest or find_policy(str(top)).folder


def take_copy(folder: Path, store: Path, version: int, served: Path) -> Weights:
    """Copy a model folder into `store`, and check the copy: what was checked is what is loaded.

    Raises:
        UserError: the folder is damaged, or not the same model with other weights. Nothing is left of the copy.
    """
    weights = link_files(folder, store, version)
    try:
        check_weights(Path(weights.folder), served, label=folder)
    except BaseException:
        shutil.rmtree(weights.folder, ignore_errors=True)
        raise
    return weights


def link_files(folder: Path, store: Path, version: int) -> Weights:
    """Copy a model folder into `store` without reading it.

    Raises:
        UserError: a file cannot be copied. Nothing is left of the copy.
    """
    copy = store / f"version-{version}-{uuid.uuid4().hex[:8]}"
    try:
        copy.mkdir(parents=True)
        for pattern in COPIED_FILES:
            for file in folder.glob(pattern):
                _link(file.resolve(), copy / file.name)
    except BaseException as error:
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"{folder}: cannot be copied ({error.strerror or error})") from None
        raise
    return Weights(version, str(copy), source_name(folder))


def drop_copies(store: Path, keep: tuple[str, ...]) -> None:
    """Delete all copies except those named."""
    for copy in store.glob("version-*"):
        if str(copy) not in keep:
            shutil.rmtree(copy, ignore_errors=True)


def remember_current(store: Path, server_id: str, weights: Weights) -> None:
    """Record in `store` what a server serves."""
    write_atomically(store / "current.json", json.dumps({"server_id": server_id, "weights": asdict(weights)}))


def read_current(store: Path, server_id: str) -> Weights | None:
    """Return what the server of this id recorded in `store` last; None where there is no such record or folder."""
    try:
        state = json.loads((store / "current.json").read_text())
        weights = Weights(**state["weights"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return weights if state.get("server_id") == server_id and Path(weights.folder).is_dir() else None


def check_weights(folder: Path, served: Path, label: Path | None = None) -> None:
    """Read every tensor of `folder` and compare names and shapes with those of the folder being served.

    Raises:
        UserError: naming the file and what is wrong with it: damaged, another architecture or tokenizer, tensors that
            are missing, surplus, of another shape or not finite.
    """
    label = label or folder
    old, new = _json(served / "config.json", served), _json(folder / "config.json", label)
    for key in sorted((old.keys() | new.keys()) - set(_BESIDE_THE_POINT)):
        if old.get(key) != new.get(key):
            raise UserError(
                f"{label / 'config.json'}: {key}={new.get(key)!r}, but {old.get(key)!r} is being served; "
                "another architecture wants a server of its own"
            )
    if (folder / "tokenizer.json").exists():
        tokenizer, served_tokenizer = _json(folder / "tokenizer.json", label), _json(served / "tokenizer.json", served)
        if any(tokenizer.get(part) != served_tokenizer.get(part) for part in ("model", "added_tokens")):
            raise UserError(f"{label / 'tokenizer.json'}: not the tokenizer being served; start another server")
    served_shapes, shapes = _shapes(served, served), _shapes(folder, label, read=True)
    for name in sorted(served_shapes.keys() | shapes.keys()):
        if served_shapes.get(name) != shapes.get(name):
            raise UserError(
                f"{label}: tensor {name} is {shapes.get(name) or 'missing'}, "
                f"but {served_shapes.get(name) or 'not there'} in the weights being served"
            )


def _shapes(folder: Path, label: Path, read: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of all safetensors files; `read`: their values must be finite."""
    import torch
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 (the file is no mapping)
                    shapes[name] = tuple(tensors.get_slice(name).get_shape())
                    if read and not bool(torch.isfinite(tensors.get_tensor(name)).all()):
                        raise UserError(f"{label / file.name}: tensor {name} holds values that are not finite")
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{label / file.name}: damaged ({error}); save the checkpoint again") from None
    if not shapes:
        raise UserError(f"{label}: holds no weights (*.safetensors)")
    return shapes


def _json(file: Path, label: Path) -> dict[str, Any]:
    try:
        return read_json_object(file, label / file.name)
    except FileNotFoundError:
        raise UserError(f"{label / file.name}: there is no such file") from None


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(file, target)  # with the file's time, by which a follower knows it
