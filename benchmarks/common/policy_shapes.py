"""Policies with random weights: for speed, which does not depend on what a policy has learnt."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from cudal1_ray.config import Config
from cudal1_ray.errors import UserError

# hidden size, layers, heads, key/value heads, intermediate size, vocabulary, tied output matrix (Qwen2 family)
SHAPES = {
    "tiny": (192, 3, 3, 3, 512, 1024, True),
    "small": (512, 8, 8, 2, 1536, 16384, True),
    "qwen2.5-coder-0.5b": (896, 24, 14, 2, 4864, 151936, True),
    "qwen2.5-coder-1.5b": (1536, 28, 12, 2, 8960, 151936, True),
    "qwen2.5-coder-7b": (3584, 28, 28, 4, 18944, 152064, False),
}


def write_random_policy(folder: Path, shape: str, dtype: str, device: str) -> None:
    """Write a Qwen2 of that shape in Hugging Face format, with a tokenizer of few words beside it.

    Args:
        dtype: float32 | bfloat16.
        device: to draw the weights on; a GPU does it in a moment.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from cudal1_ray.learning import train_tokenizer

    logging.disable_progress_bar()
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(_config(shape), dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    train_tokenizer(["def forward(self, x):", "return torch.relu(x)"], 300).save_pretrained(folder)


def write_configured_policy(config: Config, folder: Path, option: str) -> None:
    """Write the configured policy from scratch, with a tokenizer made of the configured problems beside it.

    Args:
        option: the command's option that takes the folder of another policy.

    Raises:
        UserError: naming the option when the configured policy has no shape to be made in.
    """
    from cudal1_ray.learning import build_policy, save_policy
    from cudal1_ray.problems import load_problems

    scratch = dataclasses.replace(config.policy, kind="scratch", lora_rank=0)
    try:
        scratch.validate()
    except UserError as error:
        raise UserError(f"{option}: give the folder of a policy, or settings to make one with; {error}") from None
    texts = [problem.source for problem in load_problems(config.problems)]
    save_policy(*build_policy(scratch, texts, config.seed), folder)


def _config(shape: str) -> Any:
    from transformers import Qwen2Config

    hidden, layers, heads, kv_heads, intermediate, vocabulary, tied = SHAPES[shape]
    return Qwen2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32768,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
