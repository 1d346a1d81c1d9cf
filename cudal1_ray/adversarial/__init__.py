"""Candidates with a known right verdict: those that cheat, and honest ones that resemble them.

They test an evaluator of GPU code, this project's or another: run each against its problem and compare.
`samples` defines what a sample holds.
"""

from __future__ import annotations

from cudal1_ray.adversarial.samples import KINDS, SUITES, Sample, load_problem, load_samples

__all__ = ["KINDS", "SUITES", "Sample", "load_problem", "load_samples"]
