"""Adapters in PEFT's format: a folder with `adapter_model.safetensors` and `adapter_config.json`.

vLLM, PEFT and TRL read it. Tensors are named `base_model.model.<module>.lora_A.weight` [rank, in] and `lora_B.weight`
[out, rank], and y = x W^T + lora_alpha / rank * (x A^T) B^T.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudal1_ray.errors import UserError
from cudal1_ray.files import read_json_object
from cudal1_ray.rollout.types import AdapterShape

if TYPE_CHECKING:
    from torch import Tensor, nn

    from cudal1_ray.learning.config import PolicyConfig

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
# Names of adapters here and in PEFT.
SUFFIXES = {"lora_a": ".lora_A.weight", "lora_b": ".lora_B.weight"}

# Keys of an adapter_config.json that make it compute something else than this module does, and the values that do not.
PLAIN = {"use_dora": False, "use_rslora": False, "bias": "none", "modules_to_save": None, "rank_pattern": {}}
PLAIN |= {"alpha_pattern": {}, "fan_in_fan_out": False, "lora_bias": False, "layers_to_transform": None}
# Beginnings of the values of init_lora_weights with which PEFT (0.21) changes the base weights as it loads an adapter.
CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")


def peft_name(module: str, which: str) -> str:
    """Return PEFT's name of a module's `lora_a` or `lora_b`."""
    return PREFIX + module + SUFFIXES[which]


def is_adapter_folder(path: str | Path) -> bool:
    """Return whether `path` holds an adapter."""
    return (Path(path) / CONFIG).is_file()


def read_shape(folder: str | Path) -> AdapterShape:
    """Read rank and alpha of the adapter in `folder`.

    Raises:
        UserError: there is no adapter, or one of a kind that is not plain LoRA; naming file and field.
    """
    file = Path(folder).expanduser() / CONFIG
    if not file.is_file():
        raise UserError(f"policy.adapter={folder}: no {CONFIG} there; give a folder in PEFT's format")
    config = read_json_object(file)
    try:
        shape = AdapterShape(int(config["r"]), float(config["lora_alpha"]))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise UserError(f"{file}: no adapter configuration ({type(error).__name__}: {error})") from None
    if config.get("peft_type", "LORA") != "LORA":
        raise UserError(f"{file}: peft_type={config['peft_type']}: only LORA can be read")
    for key, plain in PLAIN.items():
        if config.get(key) not in (plain, None, [], {}, False):
            raise UserError(f"{file}: {key}={config[key]!r}: only plain LoRA can be read")
    if str(first := config.get("init_lora_weights")).lower().startswith(CHANGED_BASE):
        raise UserError(
            f"{file}: init_lora_weights={first!r}: PEFT changes the base weights too when it loads this adapter; save "
            "it as plain LoRA, by PEFT's save_pretrained with path_initial_model_for_weight_conversion, or merge it "
            "into the policy and give that as policy.path"
        )
    return shape


def save_adapter(folder: str | Path, weights: Mapping[str, Tensor], shape: AdapterShape, base: str) -> None:
    """Write an adapter.

    Args:
        weights: by PEFT's names.
        base: folder or hub name of the policy that it adapts, for readers that look for it.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(tensors, str(folder / WEIGHTS), metadata={"format": "pt"})
    modules = sorted({name.removeprefix(PREFIX).rsplit(".", 3)[1] for name in tensors})
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": shape.rank,
        "lora_alpha": int(shape.alpha) if shape.alpha == int(shape.alpha) else shape.alpha,
        "target_modules": modules,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n")


def load_adapter(folder: str | Path) -> dict[str, Tensor]:
    """Read the adapter's tensors, by PEFT's names.

    Raises:
        UserError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = Path(folder).expanduser() / WEIGHTS
    try:
        return load_file(str(file))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: cannot be read as an adapter's weights ({error})") from None


def adapter_parameters(model: nn.Module, folder: str | Path) -> dict[str, Tensor]:
    """Read the adapter in `folder`, by the names of the parameters of `model` that its tensors belong to.

    Raises:
        UserError: a tensor belongs to no adapted layer, or has another shape than that layer's.
    """
    parameters = dict(model.named_parameters())
    ours = {theirs: "." + name for name, theirs in SUFFIXES.items()}
    weights = {}
    for theirs, tensor in load_adapter(folder).items():
        suffix = next((suffix for suffix in ours if theirs.endswith(suffix)), "")
        name = theirs.removeprefix(PREFIX).removesuffix(suffix) + ours.get(suffix, "")
        if not suffix or name not in parameters:
            raise UserError(f"policy.adapter={folder}: {theirs} belongs to no linear layer of this policy's blocks")
        shape = getattr(parameters[name], "ds_shape", parameters[name].shape)  # ZeRO-3 leaves a shard of it
        if shape != tensor.shape:
            raise UserError(
                f"policy.adapter={folder}: {theirs} is {list(tensor.shape)}, the policy's is {list(shape)}; "
                "policy.lora_rank and policy.path must be those that it was trained with"
            )
        weights[name] = tensor
    return weights


def with_adapter_shape(policy: PolicyConfig, folder: str | Path) -> PolicyConfig:
    """Return the policy's configuration with rank and alpha of the adapter in `folder` where it gives no rank.

    Raises:
        UserError: naming both values, where it gives another rank or alpha than the adapter has.
    """
    shape = read_shape(folder)
    if policy.lora_rank == 0:
        return dataclasses.replace(policy, lora_rank=shape.rank, lora_alpha=shape.alpha)
    if (policy.lora_rank, float(policy.lora_alpha)) != (shape.rank, shape.alpha):
        raise UserError(
            f"policy.lora_rank={policy.lora_rank}, policy.lora_alpha={policy.lora_alpha:g}: the adapter in {folder} "
            f"has others; give policy.lora_rank={shape.rank} policy.lora_alpha={shape.alpha:g}"
        )
    return policy
