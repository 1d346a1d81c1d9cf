"""Which attention a policy computes with, and attention over packed rows: sequences end to end, each for itself.

Both of ours are registered with transformers, so that every model that lets its attention be chosen can take them:

- `varlen`: flash attention for sequences of many lengths (arXiv 2307.08691), as torch brings it, in one kernel for the
  whole row. CUDA, bfloat16; what is asked of it in fp32 goes the other way.
- `segments`: torch's scaled dot-product attention, once per sequence. Any device and precision; no mask is made, and
  nothing is computed that a mask would throw away.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from cudal1_ray.errors import UserError

_TRANSFORMERS_NAMES = {"varlen": "cudal1_varlen", "segments": "cudal1_segments"}

# What some models add to the scores, and neither of ours computes.
_EXTRAS = ("softcap", "s_aux", "position_bias")

_FLASH_PARAMETERS = frozenset(inspect.signature(varlen_attn).parameters)


def choose_attention(kind: str, device: str, half: bool, packing: bool) -> str:
    """Return the attention to compute with: `kind`, or where that is "auto" the fastest that fits.

    Args:
        device: cuda or cpu.
        half: matrix products are made in bfloat16.
        packing: rows hold several sequences.
    """
    if kind != "auto":
        return kind
    if not packing:
        return "sdpa"  # rows of one sequence each: causal and unmasked, the fast case
    return "varlen" if device == "cuda" and half else "segments"


def describe_attention(name: str) -> str:
    """Return what a name of `choose_attention` stands for, for the log."""
    if name == "varlen":
        return f"varlen (flash attention of torch {torch.__version__} over packed rows)"
    if name == "segments":
        return "segments (scaled dot-product attention, once per sequence)"
    return f"{name} (of transformers)"


def transformers_name(name: str) -> str:
    """Return what transformers calls it; "auto", of a policy that is not trained yet, is its default."""
    return "sdpa" if name == "auto" else _TRANSFORMERS_NAMES.get(name, name)


def varlen_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within each sequence of one packed row, in one kernel.

    Args:
        query: [1, heads, T, size]. key, value: [1, key/value heads, T, size].
        attention_mask: none is needed, and none is looked at.
        cu_seq_lens_q: [S + 1] int32, where sequences begin, and T; None where every row is one sequence.
        max_length_q: tokens of the longest.
        sliding_window: tokens that a token sees, itself included; None: all before it.

    Returns:
        [1, T, heads, size], None.

    Raises:
        UserError: on a model whose attention has terms that neither kernel computes.
    """
    if cu_seq_lens_q is None or not _flash_takes(value):
        return segment_attention(
            module, query, key, value, attention_mask, dropout, scaling, cu_seq_lens_q, None, sliding_window, **kwargs
        )
    _refuse_extras(kwargs)
    # Under autocast rotary positions leave queries and keys in fp32, and the kernel is not on autocast's list.
    rows = [x.transpose(1, 2)[0].to(value.dtype) for x in (query, key, value)]
    left = -1 if sliding_window is None else sliding_window - 1
    options = _flash_options(left, scaling or query.shape[-1] ** -0.5, query.shape[-1], query.shape[1] != key.shape[1])
    out = varlen_attn(*rows, cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q, **options)
    return out[None], None


@torch.compiler.disable
def segment_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Return what `varlen_attention` does, sequence by sequence; [R, T, heads, size] for R rows of one each."""
    _refuse_extras(kwargs)
    outputs = []
    for first, end in _spans(cu_seq_lens_q, query.shape[2]):
        q, k, v = (x[:, :, first:end] for x in (query, key, value))
        mask = None
        if sliding_window is not None and end - first > sliding_window:
            places = torch.arange(end - first, device=query.device)
            behind = places[:, None] - places[None, :]
            mask = ((behind >= 0) & (behind < sliding_window))[None, None]
        outputs.append(sdpa_attention_forward(module, q, k, v, mask, dropout, scaling)[0])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1), None


def _flash_takes(value: Tensor) -> bool:
    return value.is_cuda and value.dtype in (torch.bfloat16, torch.float16)


def _spans(bounds: Tensor | None, length: int) -> Iterator[tuple[int, int]]:
    places = [0, length] if bounds is None else bounds.tolist()
    return itertools.pairwise(places)


def _refuse_extras(kwargs: dict[str, Any]) -> None:
    for name in _EXTRAS:
        if kwargs.get(name) is not None:
            raise UserError(f"policy.attention: this model's attention has {name}; choose eager")


def _flash_options(left: int, scaling: float, size: int, grouped: bool) -> dict[str, Any]:
    """Return keyword arguments of torch's `varlen_attn`, which have changed from release to release.

    Args:
        left: tokens before itself that a token sees; -1 for all.
        size: size of a head.
        grouped: several query heads share a key/value head.
    """
    accepted = _FLASH_PARAMETERS
    options: dict[str, Any] = {"window_size": (left, 0)} if "window_size" in accepted else {"is_causal": True}
    if "scale" in accepted:
        options["scale"] = scaling
    if grouped and "enable_gqa" in accepted:
        options["enable_gqa"] = True  # without the option the kernel finds out by itself
    if (left >= 0 and "window_size" not in accepted) or ("scale" not in accepted and scaling != size**-0.5):
        raise UserError(f"policy.attention=varlen: torch {torch.__version__} cannot do it for this model; use segments")
    return options


ALL_ATTENTION_FUNCTIONS.register(_TRANSFORMERS_NAMES["varlen"], varlen_attention)
ALL_ATTENTION_FUNCTIONS.register(_TRANSFORMERS_NAMES["segments"], segment_attention)
