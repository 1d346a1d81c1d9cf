"""Which optimisation techniques a candidate uses, with the line that shows it.

The names are those of CUDA-L1's list, and of what inline code makes possible. Evidence is code, never a
comment or a docstring: Python is read as an AST, CUDA and Triton sources as text with their comments removed.
A tag states that a technique is *present*, not that it made the candidate faster; a missing tag is weaker
evidence than a present one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cudal1_ray.analysis.run_data import credited_speedup, is_accepted
from cudal1_ray.analysis.statistics import geometric_mean
from cudal1_ray.source.operations import Operations, read_operations

TECHNIQUES = (
    "operation fusion",
    "memory layout",
    "memory coalescing",
    "mathematical short-circuit",
    "CUDA graphs",
    "reduced precision",
    "warp-level reduction",
    "shared memory",
    "asynchronous execution",
    "thread-block configuration",
    "algorithmic change",
    "vectorisation",
    "torch.compile",
    "inline CUDA",
    "Triton",
)

# Patterns looked for in Python code (imports written out, comments and strings of more than one word blanked) and in
# CUDA sources (comments blanked).
_PYTHON_PATTERNS = {
    "operation fusion": r"\b(addmm|baddbmm|addbmm|addmv|addcmul|addcdiv|lerp)_?\("
    r"|\bscaled_dot_product_attention\(",
    "memory layout": r"\.channels_last|\.as_strided\(|\bto_mkldnn\(|"
    r"(\.t\(\)|\.T|(transpose|permute)\([^()]*\))\.contiguous\(",
    "memory coalescing": r"triton\.language\.(max_contiguous|multiple_of|make_block_ptr)\(",
    "CUDA graphs": r"CUDAGraph\(|cuda\.graph\(|make_graphed_callables\(",
    "reduced precision": r"\.half\(\)|\.bfloat16\(\)|(torch|triton\.language)\.b?float(16|8)|\bautocast\("
    r"|allow_tf32\s*=\s*True|quantize_dynamic\("
    r"|set_float32_matmul_precision\((precision\s*=\s*)?[\"'](high|medium)[\"']",
    # Triton compiles a reduction over a block's axis to warp shuffles, and tl.dot's operands go through shared memory
    "warp-level reduction": r"\btriton\.language\.(sum|max|min|argmax|argmin|reduce)\(",
    "shared memory": r"\btriton\.language\.dot\(",
    "asynchronous execution": r"cuda\.[sS]tream\(|jit\.fork\(|num_stages\s*=",
    "thread-block configuration": r"triton\.(autotune|Config)\(|\bnum_warps\s*=",
    "torch.compile": r"\btorch\.compile\b",
    "inline CUDA": r"\b(load_inline|RawKernel|RawModule)\(",
    "Triton": r"\btriton\.jit\b|\btriton\.language\.program_id\(",
}
_CUDA_PATTERNS = {
    "memory coalescing": r"\b(float[24]|int[24]|half2|__half2|double2|uint4)\s*[*>]|__ldg\(|__ldcs\(",
    "reduced precision": r"\b(__half2?|half2|__nv_bfloat16|at::Half|at::BFloat16|nv_bfloat162)\b",
    "warp-level reduction": r"__shfl\w*\(|__reduce_\w+_sync\(|__ballot_sync\(|WarpReduce|cg::reduce\(|"
    r"cooperative_groups::reduce\(",
    "shared memory": r"\b__shared__\b|BlockReduce",
    "asynchronous execution": r"cp\.async|memcpy_async\(|__pipeline_\w+\(|cudaStreamCreate|cuda::pipeline",
    "thread-block configuration": r"__launch_bounds__|cudaOccupancyMax\w+|\bdim3\s+\w+\s*\([^,)]+,",
    "CUDA graphs": r"\bcudaGraph\w+\(",
    "inline CUDA": r"\b__global__\b",
}
_REDUCE_OVERHEAD = re.compile(r"mode\s*=\s*[\"'](reduce-overhead|max-autotune)[\"']")
_CONSTANT_RESULTS = {
    "zeros",
    "ones",
    "full",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_full",
    "new_ones",
}

# Operations that are one mathematical step under several names, so that a rename is no change of algorithm.
_OPERATION_GROUPS = {
    "matrix product": "matmul mm bmm mv linear Linear addmm baddbmm addmv einsum dot tensordot @",
    "convolution": "convolution cudnn_convolution conv1d conv2d conv3d Conv1d Conv2d Conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d "
    "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "attention": "scaled_dot_product_attention MultiheadAttention multi_head_attention_forward",
    "softmax": "softmax Softmax log_softmax LogSoftmax",
    "recurrence": "LSTM GRU RNN LSTMCell GRUCell RNNCell",
    "scan": "cumsum cumprod cummax cummin flip",
    "sort": "sort argsort topk kthvalue",
    "dense diagonal": "diag diagonal diag_embed tril triu eye",
    "pairwise distance": "cdist pairwise_distance cosine_similarity",
    "Fourier transform": "fft ifft rfft irfft fft2 ifft2 rfft2 irfft2",
    "gather": "gather scatter scatter_add index_select index_add embedding Embedding",
    "reduction": "logsumexp norm",
}
_GROUP_OF = {name: group for group, names in _OPERATION_GROUPS.items() for name in names.split()}


@dataclass(frozen=True)
class Technique:
    """One technique; `line` counts from 1 in the candidate (reference where `in_reference` is set)."""

    name: str
    line: int
    evidence: str
    in_reference: bool = False


def find_techniques(code: str, reference: str = "") -> tuple[Technique, ...]:
    """Return the techniques of `code` that `reference` does not have already, in the order of TECHNIQUES.

    Code that does not parse, or defines no model, has none. Without a reference the tags that need a
    comparison (operation fusion by a kernel, algorithmic change, vectorisation) are left out.
    """
    candidate = read_operations(code)
    if candidate is None or not candidate.has_model:
        return ()
    base = _read_reference(reference) if reference else None
    techniques: dict[str, Technique] = {}
    for patterns, text_of in ((_PYTHON_PATTERNS, "python_text"), (_CUDA_PATTERNS, "cuda_text")):
        for name, pattern in patterns.items():
            text, before = getattr(candidate, text_of), getattr(base, text_of) if base else ""
            matches = list(re.finditer(pattern, text))
            if name not in techniques and len(matches) > len(re.findall(pattern, before)):
                techniques[name] = _at(candidate, name, text.count("\n", 0, matches[0].start()) + 1)
    text = candidate.python_text
    if "CUDA graphs" not in techniques and "torch.compile" in techniques and (match := _REDUCE_OVERHEAD.search(text)):
        techniques["CUDA graphs"] = _at(candidate, "CUDA graphs", text.count("\n", 0, match.start()) + 1)
    if base is not None:
        for technique in _by_comparison(candidate, base):
            techniques.setdefault(technique.name, technique)
    return tuple(techniques[name] for name in TECHNIQUES if name in techniques)


@lru_cache(maxsize=512)  # KernelBench has 270 problems
def _read_reference(source: str) -> Operations | None:
    """Return what `read_operations` does of a reference, which a report compares with many candidates."""
    return read_operations(source)


def _by_comparison(candidate: Operations, base: Operations) -> Iterable[Technique]:
    """Yield the tags that only the difference between candidate and reference can show."""
    constant, before = _constant_result(candidate), _constant_result(base)
    if constant is not None and before is None:
        yield _at(candidate, "mathematical short-circuit", constant)
    if base.loop_lines and len(candidate.loop_lines) < len(base.loop_lines):
        yield Technique("vectorisation", base.loop_lines[0], base.line(base.loop_lines[0]), in_reference=True)
    if candidate.kernel_line:
        own = candidate.forward_operations
        if len(base.forward_operations) >= 2 and len(own) < len(base.forward_operations):
            yield _at(candidate, "operation fusion", candidate.kernel_line)
        return
    if "LSTM" in base.operations or "GRU" in base.operations:
        return  # unrolling a recurrent module by hand changes its operations, not its algorithm
    groups = {_GROUP_OF[name] for name in candidate.all_calls if name in _GROUP_OF}
    for name, line in base.operations.items():
        group = _GROUP_OF.get(name)
        # A fused attention call is the same algorithm as its parts: it is tagged as fusion.
        if group is not None and group not in groups and "attention" not in groups:
            yield Technique("algorithmic change", line, base.line(line), in_reference=True)
            return
    before_groups = {_GROUP_OF[name] for name in base.all_calls if name in _GROUP_OF}
    for name, line in candidate.operations.items():
        if name in _GROUP_OF and _GROUP_OF[name] not in before_groups | {"attention"}:
            yield _at(candidate, "algorithmic change", line)
            return


def _constant_result(reading: Operations) -> int | None:
    """Return the line of a `return` in forward that makes its value without the inputs (zeros, full ...), or None."""
    return next((line for name, line in reading.forward_results if name in _CONSTANT_RESULTS), None)


def _at(reading: Operations, name: str, line: int) -> Technique:
    return Technique(name, line, reading.line(line))


def count_techniques(
    rows: Iterable[Mapping[str, Any]], references: Mapping[str, str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return {stage: {technique: {candidates, share, accepted, geomean}}} over distinct candidates with code.

    `rows` hold stage, problem_id, code, status, speedup; `references` maps problem_id to its source. A
    candidate that was written many times counts once in a stage. `share` is of all distinct candidates of the
    stage; `geomean` is over its accepted candidates with the tag (0.0 where there is none).
    """
    distinct: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("code") and row.get("stage"):
            distinct.setdefault(str(row["stage"]), {})[(str(row.get("problem_id")), row["code"])] = row
    tags: dict[tuple[str, str], set[str]] = {}
    counted: dict[str, dict[str, dict[str, float]]] = {}
    for stage, candidates in distinct.items():
        speedups: dict[str, list[tuple[bool, float]]] = {}
        for key, row in candidates.items():
            if key not in tags:
                tags[key] = {technique.name for technique in find_techniques(key[1], references.get(key[0], ""))}
            for name in tags[key]:
                speedups.setdefault(name, []).append((is_accepted(row), credited_speedup(row)))
        counted[stage] = {}
        for name in TECHNIQUES:
            if name not in speedups:
                continue
            accepted = [speedup for good, speedup in speedups[name] if good]
            counted[stage][name] = {
                "candidates": len(speedups[name]),
                "share": len(speedups[name]) / len(candidates),
                "accepted": len(accepted),
                "geomean": geometric_mean(accepted) if accepted else 0.0,
            }
    return counted
