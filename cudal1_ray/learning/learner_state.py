"""Checkpoints of a learner, exact to the bit, and a fresh start of its optimiser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cudal1_ray.errors import UserError, first_line

TAG = "deepspeed"


def clear_optimiser(engine: Any) -> None:
    """Forget gradient moments and step counts, as if the optimiser were new."""
    optimiser = engine.optimizer
    inner = getattr(optimiser, "optimizer", optimiser)
    for state in inner.state.values():
        for key, value in state.items():
            if isinstance(value, Tensor):
                value.zero_()
            elif isinstance(value, (int, float)):
                state[key] = type(value)(0)


def save(
    engine: Any, folder: Path, rank: int, world_size: int, state: dict[str, Any], generator: torch.Generator
) -> None:
    """Write weights and optimiser (DeepSpeed's files), and this rank's own state and random numbers beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    frozen = not all(p.requires_grad for p in engine.module.parameters())
    engine.save_checkpoint(str(folder), tag=TAG, save_latest=False, exclude_frozen_parameters=frozen)
    shape = {"world_size": world_size, "zero_stage": engine.zero_optimization_stage()}
    random = {"torch": torch.get_rng_state(), "minibatches": generator.get_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    torch.save({**state, "shape": shape, "random": random}, _own_file(folder, rank))
    torch.distributed.barrier()


def obstacle(folder: Path, world_size: int, zero_stage: int) -> str:
    """Return why a learner of `world_size` ranks cannot take weights and optimiser from `folder`; empty when it can.

    Raises:
        UserError: naming the file that is damaged.
    """
    if not _own_file(folder, 0).is_file() or not (folder / TAG).is_dir():
        return "they are not there"
    with _reading(_own_file(folder, 0)):
        shape = torch.load(_own_file(folder, 0), weights_only=True, map_location="cpu")["shape"]
    for key, mine, name in (
        ("world_size", world_size, "cluster.learner.count"),
        ("zero_stage", zero_stage, "learner.zero_stage"),
    ):
        if shape[key] != mine:
            return f"made with {name}={shape[key]}, cannot be continued with {mine}"
    return ""


def load_own(folder: Path, rank: int, generator: torch.Generator) -> dict[str, Any]:
    """Put this rank's random numbers back, as far as they are there; return the `state` that was saved with them.

    Empty where the folder has none for any rank; another number of ranks takes what rank 0 had.
    """
    file = next((file for file in (_own_file(folder, rank), _own_file(folder, 0)) if file.is_file()), None)
    if file is None:
        return {}
    with _reading(file):
        state = torch.load(file, weights_only=True, map_location="cpu")
        _restore_random(state.pop("random"), generator)
    return state


def load(engine: Any, folder: Path, rank: int, world_size: int, generator: torch.Generator) -> dict[str, Any]:
    """Put weights, optimiser and random numbers back; return the `state` that was saved.

    Raises:
        UserError: when there is no checkpoint, a damaged one, or one of another number of ranks or ZeRO stage.
    """
    if not _own_file(folder, 0).is_file():
        raise UserError(f"{folder}: no learner checkpoint there")
    if reason := obstacle(folder, world_size, engine.zero_optimization_stage()):
        raise UserError(f"{folder}: {reason}")
    engine.empty_partition_cache()
    with _reading(folder / TAG):
        engine.load_checkpoint(str(folder), tag=TAG, load_module_strict=False)
    return load_own(folder, rank, generator)


def _restore_random(random: dict[str, Tensor], generator: torch.Generator) -> None:
    torch.set_rng_state(random["torch"])
    generator.set_state(random["minibatches"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name a file or folder of a checkpoint that cannot be read: what is damaged raises errors of many kinds."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        advice = "restore it, or delete this checkpoint to go on from the one before"
        raise UserError(f"{path}: cannot be read ({first_line(error)}); {advice}") from error


def _own_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.pt"
