"""A tiny Llama with a tiny tokenizer, and the logits of its Hugging Face model: the oracle of the engine tests."""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from cudal1_ray.rollout import AdapterShape

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
        """Return the log-probabilities, [len(completion)], by one plain forward pass."""
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


@pytest.fixture(scope="module", autouse=True)
def imports_stay_frozen() -> Iterator[None]:
    """Keep vLLM from thawing what this process has left out of garbage collections, and from freezing its own engines,
    which would then never be collected.

    The end of an engine thaws all that tests import, 0.8 million objects. Each collection takes 1.4 s from then on:
    those that vLLM asks for when an engine starts or ends, and all later ones in the process.
    """
    freeze = gc.freeze

    def freeze_for_others() -> None:
        if not sys._getframe(1).f_globals["__name__"].startswith("vllm."):
            freeze()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", freeze_for_others)
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session")
def first_model(tmp_path_factory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("first"), seed=0)


@pytest.fixture(scope="session")
def second_model(tmp_path_factory) -> TinyModel:
    return make_tiny_model(tmp_path_factory.mktemp("second"), seed=1)


ADAPTER_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def make_adapter(tiny: TinyModel, shape: AdapterShape, seed: int) -> tuple[dict[str, torch.Tensor], TinyModel]:
    """Write an adapter with random A and B, by PEFT's names, and the model with it merged in fp32: the oracle."""
    generator, weights, merged = torch.Generator().manual_seed(seed), {}, copy.deepcopy(tiny.model)
    for name, module in merged.named_modules():
        if name.rpartition(".")[2] in ADAPTER_MODULES:
            a = torch.randn(shape.rank, module.in_features, generator=generator) * 0.2
            b = torch.randn(module.out_features, shape.rank, generator=generator) * 0.2
            weights |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
            module.weight.data += shape.scale * b @ a
    return weights, TinyModel(tiny.path, merged)
