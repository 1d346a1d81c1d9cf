"""Policies: made from scratch, or loaded from a Hugging Face folder or a GGUF file; saved as Hugging Face folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cudal1_ray.errors import UserError, first_line
from cudal1_ray.learning.config import PolicyConfig
from cudal1_ray.learning.tokenizer import train_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def build_policy(
    config: PolicyConfig, texts: Sequence[str] = (), seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the policy that a run starts from, on the CPU, with its tokenizer.

    Args:
        texts: what a scratch policy's tokenizer is learnt from; unused for others.
        seed: decides a scratch policy's weights; torch's global generator is left as it was.

    Raises:
        UserError: when a field or the path does not work.
    """
    config.validate()
    if config.kind == "scratch":
        return _from_scratch(config, texts, seed)
    return load_policy(config, config.path), load_tokenizer(config.path)


def load_policy(config: PolicyConfig, path: str, attention: str | None = None) -> PreTrainedModel:
    """Return the model at `path` in `config.dtype`.

    Args:
        path: a Hugging Face folder or hub name, or a GGUF file.
        attention: which to compute with, where `config.attention` is not it.

    Raises:
        UserError: when there is no model there.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    from cudal1_ray.learning.attention import transformers_name

    _no_progress_bars()
    folder, extra = _locate(path)
    kernel = transformers_name(attention or config.attention)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=_dtype(config), attn_implementation=kernel, **extra)
    except SafetensorError as error:  # of a download that was cut short
        raise UserError(f"policy.path={path}: its weights cannot be read ({first_line(error)})") from None
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"policy.path={path}: {first_line(error)}") from None
    if extra:  # the weights were unpacked: nothing quantised is left to speak of
        model.hf_quantizer = None
        model.is_quantized = False
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        # GGUF files carry the output matrix apart even where it is the embedding: untied, it would train apart too.
        model.config.tie_word_embeddings = model.config.tie_word_embeddings or _outputs_are_embeddings(model)
        model.tie_weights()
        end = _special_ids(path)["eos"]
        model.config.eos_token_id = model.generation_config.eos_token_id = end
    model.config.use_cache = False
    return model


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer beside the model at `path` (folder, hub name or GGUF file).

    Raises:
        UserError: when there is none.
    """
    from transformers import AutoTokenizer

    folder, extra = _locate(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **extra)
    except (OSError, ValueError, ImportError) as error:
        raise UserError(f"policy.path={path}: no tokenizer there: {first_line(error)}") from None
    for name, token_id in (_special_ids(path) if extra else {}).items():
        if token_id is not None:
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(token_id))
    if tokenizer.eos_token_id is None:
        raise UserError(f"policy.path={path}: its tokenizer has no end token, so no completion could end")
    return tokenizer


def save_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: str | Path,
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write a folder that transformers and vLLM load.

    Args:
        weights: by Hugging Face name, where they are not those in `model` (gathered from several ranks, merged).
    """
    _no_progress_bars()
    cached, model.config.use_cache = model.config.use_cache, True  # its users will want to generate
    model.save_pretrained(str(folder), **({} if weights is None else {"state_dict": weights}))
    model.config.use_cache = cached
    if tokenizer is not None:
        tokenizer.save_pretrained(str(folder))


def _from_scratch(
    config: PolicyConfig, texts: Sequence[str], seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from cudal1_ray.learning.attention import transformers_name
    from cudal1_ray.learning.induction import ROTARY_BASE, start_with_induction

    if not texts:
        raise UserError(
            "policy.kind=scratch: there is no text to learn a tokenizer from; choose problems with a corpus"
        )
    assert config.vocab_size is not None and config.max_position is not None  # `validate` has asked for them
    tokenizer = train_tokenizer(texts, config.vocab_size, config.max_position)
    shape = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 64) * 64,  # matrix products like round numbers
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_position,
        initializer_range=config.init_std,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        use_cache=False,
        attn_implementation=transformers_name(config.attention),
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(shape)
        start_with_induction(model)
    return model.to(_dtype(config)), tokenizer


def _locate(path: str) -> tuple[str, dict[str, str]]:
    """Return what `from_pretrained` takes for a path: (folder or hub name, extra arguments).

    Raises:
        UserError: when the path is a local one and nothing loadable is there.
    """
    local = Path(path).expanduser()
    if local.suffix == ".gguf":
        if not local.is_file():
            raise UserError(f"policy.path={path}: no such file; give the path of a .gguf file")
        try:
            import accelerate  # noqa: F401
            import gguf  # noqa: F401
        except ImportError as error:
            raise UserError(f"policy.path={path}: {error}; GGUF files need `pip install gguf accelerate`") from None
        return str(local.parent), {"gguf_file": local.name}
    if local.is_dir():
        if not (local / "config.json").is_file():
            raise UserError(f"policy.path={path}: no config.json there; give a folder in Hugging Face format")
        return str(local), {}
    if path.startswith(("/", "./", "../", "~")) or path.count("/") > 1:
        raise UserError(f"policy.path={path}: no such folder; give a folder in Hugging Face format, or a hub name")
    return path, {}


def _special_ids(path: str) -> dict[str, int | None]:
    """End and padding tokens as a GGUF file states them; transformers takes its own defaults for the family instead."""
    from gguf import GGUFReader

    fields = GGUFReader(Path(path).expanduser()).fields
    keys = {"eos": "tokenizer.ggml.eos_token_id", "pad": "tokenizer.ggml.padding_token_id"}
    return {name: int(fields[key].contents()) if key in fields else None for name, key in keys.items()}


def _outputs_are_embeddings(model: PreTrainedModel) -> bool:
    """Return whether the output matrix equals the embedding, up to the rounding of quantisation."""
    import torch

    inputs, outputs = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if inputs.shape != outputs.shape:
        return False
    rows = torch.linspace(0, len(inputs) - 1, min(512, len(inputs))).long()
    likeness = torch.cosine_similarity(inputs[rows].float(), outputs[rows].float(), dim=-1)
    return bool(likeness.median() > 0.98)


def _dtype(config: PolicyConfig) -> torch.dtype:
    import torch

    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.dtype]


def _no_progress_bars() -> None:
    """Turn off transformers' progress bars, one per file: the run has its own display."""
    from transformers.utils import logging

    logging.disable_progress_bar()
