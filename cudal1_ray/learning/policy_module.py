"""A causal language model that answers what training asks: log-probabilities of completion tokens, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cudal1_ray.errors import UserError
from cudal1_ray.learning.batching import MicroBatch
from cudal1_ray.learning.logprob_head import LogprobHead


class PolicyModule(nn.Module):
    """Wraps a Hugging Face model: logits are made only where a completion token follows.

    Prompts are half of all tokens and the vocabulary is the widest layer: leaving their logits out saves time, and in
    large models most of the memory.

    Args:
        model: with `model.get_output_embeddings()` a plain linear layer.
        logit_chunk_tokens: tokens for which logits are made at a time; of more, again in the backward pass.
        autocast: matrix products in bfloat16, when asked for by `forward`.
        compiled: as `LogprobHead` takes it.

    Raises:
        UserError: on a model that does more to its logits than a linear layer.
    """

    def __init__(self, model: PreTrainedModel, logit_chunk_tokens: int, autocast: bool, compiled: bool = False):
        super().__init__()
        for field, neutral in (("final_logit_softcapping", None), ("logits_scaling", 1.0), ("logit_scale", 1.0)):
            if getattr(model.config, field, neutral) not in (neutral, None):
                raise UserError(f"policy.path: {model.config.model_type} models with {field} are not supported")
        self.model = model
        self.head = LogprobHead(model.get_output_embeddings(), logit_chunk_tokens, compiled)
        self._autocast = autocast

    def forward(
        self, batch: MicroBatch, temperature: float = 1.0, entropies: str = "none", precise: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return log-probabilities of `batch.targets` under softmax(logits / temperature).

        Args:
            entropies: "none" | "value" | "gradient": whether the entropy is wanted too, and can be trained on.
            precise: without autocast, whatever the configuration.

        Returns:
            logprobs: [N] fp32.
            entropies: [N] fp32, or None.
        """
        device = batch.input_ids.device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self._autocast and not precise):
            decoder, where = getattr(self.model, self.model.base_model_prefix), _where_sequences_are(batch)
            output = decoder(input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False, **where)
            hidden = output.last_hidden_state.flatten(0, 1).index_select(0, batch.select)
            return self.head(hidden, batch.targets, temperature, entropies)


def _where_sequences_are(batch: MicroBatch) -> dict[str, Tensor | int]:
    """Return what attention over packed rows takes, in transformers' words; nothing for rows of one sequence."""
    if batch.bounds is None:
        return {}
    return {
        "cu_seq_lens_q": batch.bounds,
        "cu_seq_lens_k": batch.bounds,
        "max_length_q": batch.longest,
        "max_length_k": batch.longest,
    }
