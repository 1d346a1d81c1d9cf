"""A policy's weights on their way into the learner and out of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from cudal1_ray.learning.adapter_files import adapter_parameters, peft_name
from cudal1_ray.learning.config import LearnerConfig, PolicyConfig
from cudal1_ray.learning.lora import LoraLinear, add_adapters, freeze_all_but_adapters, is_adapter, merged
from cudal1_ray.learning.policy import load_policy
from cudal1_ray.learning.policy_module import PolicyModule

# Gathered from all ranks at a time under ZeRO-3, bytes.
BUCKET_BYTES = 256 << 20


def build_module(
    config: LearnerConfig, policy: PolicyConfig, model_path: str, settings: dict[str, Any], seed: int, attention: str
) -> PolicyModule:
    """Return the policy at `model_path`, ready to be wrapped by DeepSpeed.

    Args:
        settings: DeepSpeed's configuration; under ZeRO-3 it makes transformers load each rank's share only.
        seed: decides fresh adapters.
        attention: what to compute it with, from `attention.choose_attention`.

    Raises:
        UserError: when the path holds no model that can be trained.
    """
    if config.zero_stage == 3:
        with _sharded_loading(settings):
            model = load_policy(policy, model_path, attention)
        _restore_buffers(model)
    else:
        model = load_policy(policy, model_path, attention)
    for module in model.modules():  # a policy's log-probabilities must not depend on chance
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    decoder = getattr(model, model.base_model_prefix)
    if policy.lora_rank > 0:
        add_adapters(decoder, policy.lora_rank, policy.lora_alpha, seed)
        freeze_all_but_adapters(model)
        if policy.adapter:
            for name, tensor in adapter_parameters(model, policy.adapter).items():
                model.get_parameter(name).data.copy_(tensor)
    if policy.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if config.compile:
        # Block by block: all blocks are one program, compiled once, and DeepSpeed's hooks stay outside of it.
        blocks = [module for module in decoder.modules() if isinstance(module, GradientCheckpointingLayer)]
        for block in blocks or [decoder]:
            block.compile(dynamic=True)
    return PolicyModule(model, config.logit_chunk_tokens, config.autocast, config.compile)


def put_first_weights(engine: Any, model: PreTrainedModel, policy: PolicyConfig, model_path: str, rank: int) -> None:
    """Put the weights that train with which a learner starts into a model that DeepSpeed has wrapped, and into the fp32
    copies that its optimiser has. Every rank must call it; rank 0 reads them for all.

    Raises:
        UserError: as `build_module` does.
    """
    weights = _first_weights(model, policy, model_path) if rank == 0 else {}
    engine.empty_partition_cache()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        with torch.no_grad(), _gathered([parameter], modifier_rank=0):
            if name in weights:
                parameter.copy_(weights[name])
            if not hasattr(parameter, "ds_id"):
                torch.distributed.broadcast(parameter.data, src=0)
    if hasattr(engine.optimizer, "refresh_fp32_params"):
        engine.optimizer.refresh_fp32_params()


def _first_weights(model: PreTrainedModel, policy: PolicyConfig, model_path: str) -> dict[str, Tensor]:
    """Return the weights that train with which a learner starts, by the names of the parameters of `model`; of a fresh
    adapter B alone, which is zero, so that A makes no difference.
    """
    if policy.lora_rank == 0:
        return dict(load_policy(policy, model_path).named_parameters())
    parameters = {name: p for name, p in model.named_parameters() if name.endswith(".lora_b")}
    fresh = {name: torch.zeros(getattr(p, "ds_shape", p.shape)) for name, p in parameters.items()}
    return fresh | (adapter_parameters(model, policy.adapter) if policy.adapter else {})


def _restore_buffers(model: PreTrainedModel) -> None:
    """Compute rotary frequencies in fp32 again: within `_sharded_loading` DeepSpeed makes all numbers in the
    weights' precision.

    Rounded to bfloat16 they turn tokens a few thousand places on by half a radian, and the engine's are not rounded.
    """
    for module in model.modules():
        names = [name for name, _ in module.named_buffers(recurse=False) if name.endswith("inv_freq")]
        if names:
            fresh = type(module)(config=module.config)
            for name in names:
                setattr(module, name, getattr(fresh, name).to(getattr(module, name).device))


class _ZeroSettings:
    """What transformers asks of a DeepSpeed configuration before it loads a model in shards."""

    def __init__(self, config: dict[str, Any]):
        self.config = config

    def is_zero3(self) -> bool:
        return True


@contextmanager
def _sharded_loading(settings: dict[str, Any]) -> Iterator[None]:
    """Make transformers give each rank its shard of what it loads within the context; no rank ever holds it all.

    `transformers.integrations.HfDeepSpeedConfig` does so too, but needs the package accelerate.
    """
    from transformers.integrations import deepspeed as integration

    zero = _ZeroSettings(settings)  # transformers keeps no more than a weak reference
    integration.set_hf_deepspeed_config(zero)
    try:
        yield
    finally:
        integration.unset_hf_deepspeed_config()


def gather_weights(engine: Any, model: PreTrainedModel, rank: int, to_cpu: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Yield (Hugging Face name, tensor) of every weight, adapters merged; tied weights once.

    Every rank must exhaust it, since under ZeRO-3 each step gathers a bucket from all; only rank 0 is given weights.

    Args:
        to_cpu: as copies on the CPU; False leaves each where it is, and copies only what is gathered from shards.
    """
    engine.empty_partition_cache()
    modules = dict(model.named_modules())
    for bucket in _buckets([name for name, _ in model.named_parameters() if not is_adapter(name)], model):
        owners = [modules[name.rpartition(".")[0]] for name in bucket]
        needed = [model.get_parameter(name) for name in bucket]
        needed += [p for m in owners if isinstance(m, LoraLinear) for p in (m.lora_a, m.lora_b)]
        gathered = []
        with torch.no_grad(), _gathered(needed):
            for name, owner in zip(bucket, owners, strict=True) if rank == 0 else ():
                adapted = isinstance(owner, LoraLinear) and name.endswith(".weight")
                weight = merged(owner) if adapted else model.get_parameter(name).detach()
                if to_cpu:
                    weight = weight.to("cpu", copy=True)
                elif any(hasattr(p, "ds_id") for p in needed) and not adapted:
                    weight = weight.clone()  # the gathered one is freed with the bucket
                gathered.append((name, weight))
        yield from gathered


def gather_adapter(engine: Any, model: PreTrainedModel, rank: int, to_cpu: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Yield (PEFT's name, a copy of the tensor) of every adapter, to rank 0; every rank must exhaust it.

    Args:
        to_cpu: copies on the CPU; False leaves them on the learner's device.
    """
    engine.empty_partition_cache()
    for name, module in model.named_modules():
        if not isinstance(module, LoraLinear):
            continue
        pair = {"lora_a": module.lora_a, "lora_b": module.lora_b}
        with torch.no_grad(), _gathered(list(pair.values())):
            # Copies: a gathered parameter is freed at the end of the context.
            tensors = [(peft_name(name, which), p.detach().clone()) for which, p in pair.items()]
        for name, tensor in tensors if rank == 0 else ():
            yield name, tensor.cpu() if to_cpu else tensor


def _buckets(names: list[str], model: PreTrainedModel) -> Iterator[list[str]]:
    bucket: list[str] = []
    size = 0
    for name in names:
        parameter = model.get_parameter(name)
        weight = getattr(parameter, "ds_numel", parameter.numel()) * parameter.element_size()
        if bucket and size + weight > BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket.append(name)
        size += weight
    if bucket:
        yield bucket


def _gathered(parameters: list[nn.Parameter], modifier_rank: int | None = None) -> AbstractContextManager[Any]:
    """Return a context in which parameters are whole on every rank; of what changes, that of `modifier_rank` stays."""
    if not any(hasattr(p, "ds_id") for p in parameters):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(parameters, modifier_rank=modifier_rank)
