"""A tiny Llama with a tiny tokenizer, and what its Hugging Face model says: the oracle of the engine tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

TEXTS = [
    "class ModelNew(nn.Module):",
    "def forward(self, x):",
    "return torch.relu(x) + self.weight",
    "import torch\nimport torch.nn as nn",
    "x = F.gelu(x, approximate='tanh')",
]
MAX_MODEL_LEN = 128


@dataclass(frozen=True)
class TinyModel:
    path: str
    model: torch.nn.Module

    def logprobs(self, prompt: tuple[int, ...], completion: tuple[int, ...], temperature: float = 1.0) -> torch.Tensor:
        """[len(completion)], by one plain forward pass."""
        ids = torch.tensor([[*prompt, *completion]])
        with torch.no_grad():
            logits = self.model(ids).logits[0, len(prompt) - 1 : -1].float()
        return (logits / temperature).log_softmax(-1).gather(-1, ids[0, len(prompt) :, None]).squeeze(-1)

    def greedy(self, prompt: tuple[int, ...], count: int, end: int) -> tuple[int, ...]:
        ids: list[int] = []
        while len(ids) < count and (not ids or ids[-1] != end):
            with torch.no_grad():
                logits = self.model(torch.tensor([[*prompt, *ids]])).logits
            ids.append(int(logits[0, -1].argmax()))
        return tuple(ids)


def make_tiny_model(path: Path, seed: int, tied: bool = True) -> TinyModel:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<pad>", "<bos>", "<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(path)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=MAX_MODEL_LEN,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.3,  # wide: distributions are far from uniform, so a wrong one is seen
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(path)
    return TinyModel(str(path), model)


@pytest.fixture(scope="session")
def first_model(tmp_path_factory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("first"), seed=0)


@pytest.fixture(scope="session")
def second_model(tmp_path_factory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("second"), seed=1)
