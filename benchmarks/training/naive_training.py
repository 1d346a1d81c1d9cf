"""The training loop one writes first: padded batches, the model's own loss, AdamW. What the learner is measured by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from cudal1_ray.learning import TrainingSequence

# The label that transformers gives no loss.
IGNORED = -100


class NaiveLoop:
    """Supervised fine-tuning of the policy in `folder` with transformers and torch alone.

    Weights and both moments of AdamW are in the policy's own precision: less memory and fewer bytes to move than the
    learner's fp32 master weights, a point in this loop's favour.

    Args:
        rows: sequences of a micro-batch at first; halved as often as memory runs out.
        autocast: matrix products in bfloat16 over fp32 weights.
    """

    def __init__(self, folder: str, dtype: str, device: str, rows: int, autocast: bool, gradient_checkpointing: bool):
        self.device, self.rows, self._autocast = device, rows, autocast
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa")
        self._model = model.to(device).train()
        if gradient_checkpointing:
            self._model.gradient_checkpointing_enable({"use_reentrant": False})
        self._optimiser = torch.optim.AdamW(self._model.parameters(), lr=1e-5, betas=(0.9, 0.95), fused=True)

    def step(self, sequences: Sequence[TrainingSequence]) -> float:
        """Take one optimiser step and return the loss in nats per completion token."""
        while True:
            try:
                return self._step(sequences)
            except torch.OutOfMemoryError:
                if self.rows == 1:
                    raise
            self.rows //= 2  # outside of the handler, which still holds what was allocated
            self._optimiser.zero_grad()
            torch.cuda.empty_cache()

    def _step(self, sequences: Sequence[TrainingSequence]) -> float:
        tokens, total = (
            sum(len(sequence.completion_token_ids) for sequence in sequences),
            torch.zeros((), device=self.device),
        )
        for first in range(0, len(sequences), self.rows):
            input_ids, attention_mask, labels = self._pad(sequences[first : first + self.rows])
            with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self._autocast):
                loss = self._model(
                    input_ids=input_ids,
                    attention_mask=attention_mask,
                    labels=labels,
                    use_cache=False,
                    num_items_in_batch=tokens,
                ).loss
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimiser.step()
        self._optimiser.zero_grad()
        return float(total)

    def _pad(self, sequences: Sequence[TrainingSequence]) -> tuple[Tensor, Tensor, Tensor]:
        shape = len(sequences), max(map(len, sequences))
        input_ids, labels = torch.zeros(shape, dtype=torch.int64), torch.full(shape, IGNORED)
        mask = torch.zeros(shape, dtype=torch.int64)
        for row, sequence in enumerate(sequences):
            tokens = torch.tensor(sequence.prompt_token_ids + sequence.completion_token_ids)
            first = len(sequence.prompt_token_ids)
            input_ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
            labels[row, first : len(tokens)] = tokens[first:]
        return input_ids.to(self.device), mask.to(self.device), labels.to(self.device)
