"""Sums of a training call over micro-batches, steps and ranks."""

from __future__ import annotations

import torch
from torch import Tensor


class MetricSums:
    """Adds up on the device, so that no micro-batch waits for a number; ranks meet once, in `reduce`."""

    def __init__(self, device: torch.device):
        self._device = device
        self._sums: dict[str, Tensor] = {}
        self._maxima: dict[str, Tensor] = {}
        self._norms: list[float] = []
        self._rate = 0.0
        self._skipped = 0

    def add(self, values: dict[str, Tensor]) -> None:
        """Add one micro-batch's scalars; keys that end in `_max` are maxima."""
        for key, value in values.items():
            value = value.double()
            if key.endswith("_max"):
                self._maxima[key] = torch.maximum(self._maxima[key], value) if key in self._maxima else value
            else:
                self._sums[key] = self._sums[key] + value if key in self._sums else value

    def step(self, grad_norm: float, learning_rate: float) -> None:
        """Count an optimiser step that was made; its figures are the same on all ranks."""
        self._norms.append(grad_norm)
        self._rate = learning_rate

    def skip(self) -> None:
        """Count an optimiser step that was left out, on all ranks."""
        self._skipped += 1

    def reduce(self) -> dict[str, float]:
        """Return totals over all ranks; every rank must have added the same keys.

        With them are grad_norm (mean over steps), learning_rate (of the last), optimiser_steps and skipped_steps.
        """
        totals: dict[str, float] = {}
        for table, operation in (
            (self._sums, torch.distributed.ReduceOp.SUM),
            (self._maxima, torch.distributed.ReduceOp.MAX),
        ):
            if table:
                values = torch.stack([table[key] for key in sorted(table)]).to(self._device)
                torch.distributed.all_reduce(values, operation)
                totals |= dict(zip(sorted(table), values.tolist(), strict=True))
        steps = len(self._norms)
        mean_norm = sum(self._norms) / steps if steps else 0.0
        metrics = {"grad_norm": mean_norm, "learning_rate": self._rate, "optimiser_steps": float(steps)}
        return {**totals, **metrics, "skipped_steps": float(self._skipped)}
