"""What candidates are compared to: the reference as it stands, or as a user would first try to speed it up."""

from __future__ import annotations

BASELINES = ("eager", "compile", "compile_reduce_overhead", "cuda_graph", "tuned_eager")


def check_baseline(name: str, device: str) -> str:
    """Empty, or why this baseline cannot be had."""
    if name not in BASELINES:
        return f"unknown baseline {name!r}: choose one of {', '.join(BASELINES)}"
    if name == "cuda_graph" and not device.startswith("cuda"):
        return "cuda_graph needs device cuda"
    return ""


def coarse_products(against: str, device: str) -> bool:
    """Does this baseline let products run in TF32?"""
    return against == "tuned_eager" and device != "cpu"
