"""Weights that every worker of an engine reads from a model folder by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from cudal1_ray.rollout.transports.base import NamedTensors, WeightOffer, WeightReceiver

TRANSPORT = "files"


def offer_of_folder(folder: str | Path) -> WeightOffer:
    """Return an offer of the safetensors files of a Hugging Face folder, one bucket each.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(str(file.resolve()) for file in Path(folder).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder}: holds no *.safetensors")
    return WeightOffer(TRANSPORT, TRANSPORT, buckets=tuple(files))


class FilesReceiver(WeightReceiver):
    """Reads one file per bucket; a tensor is in memory only while it is being loaded."""

    def __init__(self, arguments: dict[str, Any], worker: int, device: torch.device):
        """Open nothing."""

    def receive(self, bucket: str) -> NamedTensors:
        from safetensors import safe_open

        with safe_open(bucket, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (the file is no mapping)
                yield name, file.get_tensor(name)

    def close(self) -> None:
        """Hold nothing."""
