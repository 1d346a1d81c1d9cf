"""A causal language model that answers what training asks: log-probabilities of completion tokens, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from cudal1_ray.errors import UserError
from cudal1_ray.learning.batching import MicroBatch
from cudal1_ray.learning.losses import token_entropies, token_logprobs

# Tokens that get logits are rounded up to a multiple of it, for the reason given in `batching.LENGTH_STEP`.
TOKEN_STEP = 128


class PolicyModule(nn.Module):
    """Wraps a Hugging Face model: logits are made only where a completion token follows.

    Prompts are half of all tokens and the vocabulary is the widest layer: leaving their logits out saves time, and in
    large models most of the memory.

    Args:
        model: with `model.get_output_embeddings()` a plain linear layer.
        logit_chunk_tokens: logits are made for so many tokens at a time; beyond it, again in the backward pass.
        autocast: matrix products in bfloat16, when asked for by `forward`.

    Raises:
        UserError: on a model that does more to its logits than a linear layer.
    """

    def __init__(self, model: PreTrainedModel, logit_chunk_tokens: int, autocast: bool):
        super().__init__()
        for field, neutral in (("final_logit_softcapping", None), ("logits_scaling", 1.0), ("logit_scale", 1.0)):
            if getattr(model.config, field, neutral) not in (neutral, None):
                raise UserError(f"policy.path: {model.config.model_type} models with {field} are not supported")
        self.model = model
        self.head = _LogprobHead(model.get_output_embeddings(), logit_chunk_tokens)
        self._autocast = autocast

    def forward(
        self, batch: MicroBatch, temperature: float = 1.0, entropies: str = "none", precise: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of `batch.targets` under softmax(logits / temperature).

        Args:
            entropies: "none" | "value" | "gradient": whether the entropy is wanted too, and can be trained on.
            precise: without autocast, whatever the configuration.

        Returns:
            logprobs: [N] fp32.
            entropies: [N] fp32, or None.
        """
        device = batch.input_ids.device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self._autocast and not precise):
            decoder = getattr(self.model, self.model.base_model_prefix)
            output = decoder(input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False)
            hidden = output.last_hidden_state.flatten(0, 1)[batch.select]
            return self.head(hidden, batch.targets, temperature, entropies)


class _LogprobHead(nn.Module):
    """Output matrix, softmax and choice of the target in one module, in chunks.

    It holds the output matrix itself, so that under ZeRO-3 the matrix is gathered once per pass, not once per chunk.
    """

    def __init__(self, linear: nn.Linear, chunk_tokens: int):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._chunk = chunk_tokens

    def forward(
        self, hidden: Tensor, targets: Tensor, temperature: float, entropies: str
    ) -> tuple[Tensor, Tensor | None]:
        tokens = len(targets)
        spare = -tokens % min(TOKEN_STEP, self._chunk)
        hidden, targets = nn.functional.pad(hidden, (0, 0, 0, spare)), nn.functional.pad(targets, (0, spare))
        logprobs, entropy = self._all(hidden, targets, temperature, entropies)
        return logprobs[:tokens], None if entropy is None else entropy[:tokens]

    def _all(self, hidden: Tensor, targets: Tensor, temperature: float, entropies: str) -> tuple[Tensor, Tensor | None]:
        if len(hidden) <= self._chunk:
            return self._some(hidden, targets, temperature, entropies)
        pairs = [
            checkpoint(self._some, h, t, temperature, entropies, use_reentrant=False)
            for h, t in zip(hidden.split(self._chunk), targets.split(self._chunk), strict=True)
        ]
        logprobs = torch.cat([pair[0] for pair in pairs])
        return logprobs, None if entropies == "none" else torch.cat([pair[1] for pair in pairs])

    def _some(
        self, hidden: Tensor, targets: Tensor, temperature: float, entropies: str
    ) -> tuple[Tensor, Tensor | None]:
        logits = nn.functional.linear(hidden, self.weight, self.bias)
        logprobs = token_logprobs(logits, targets, temperature)
        if entropies == "none":
            return logprobs, None
        with torch.set_grad_enabled(entropies == "gradient" and torch.is_grad_enabled()):
            return logprobs, token_entropies(logits, temperature)
