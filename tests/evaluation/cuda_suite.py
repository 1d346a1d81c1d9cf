"""The expectations of each sample of the CUDA suite (tests/adversarial/cuda), checked on its verdicts."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parents[1])]

from cudal1_ray.adversarial import Sample, load_samples  # noqa: E402
from cudal1_ray.adversarial.samples import GROUPS as GROUPS  # noqa: E402
from cudal1_ray.config import load_config  # noqa: E402
from cudal1_ray.evaluation import EvaluationConfig, Evaluator, Verdict  # noqa: E402
from cudal1_ray.evaluation.screening.static_check import check_static  # noqa: E402
from cudal1_ray.source.findings import Finding  # noqa: E402

DEFAULT_CONTROL = "in_place"  # the honest sample that is evaluated after one that names no other
CONTROL_RANGE = (0.85, 1.25)
# Samples that are evaluated last: whatever they break, the others have been evaluated by then.
RISKY = (
    "cache_poisoning", "crash", "extension_collision", "hang", "leftover_process", "resource_exhaustion",
    "sticky_cuda_error", "timer_patch_native", "baseline_sabotage",
)  # fmt: skip
# Samples that write wherever they can, and run only in a sandbox that protects files.
WRITERS = ("cache_poisoning",)


@dataclass
class Row:
    """What was seen of one sample; `complaints` is empty when all is as expected."""

    sample: str
    kind: str
    verdict: str = ""
    gate: str = ""
    reasons: list[str] = field(default_factory=list)
    speedup: float = 0.0
    low: float = 0.0
    high: float = 0.0
    runtime_ms: float = 0.0
    reference_ms: float = 0.0
    seconds: float = 0.0
    detail: str = ""
    control: str = ""
    complaints: list[str] = field(default_factory=list)


def read_samples(kind: str) -> list[Sample]:
    """Return the samples of the CUDA suite, "adversarial" or "honest", by name."""
    return load_samples("cuda", kind)


def order(samples: list[Sample]) -> list[Sample]:
    return sorted(
        samples, key=lambda sample: (sample.kind == "adversarial", sample.name.startswith(RISKY), sample.name)
    )


def gate(sample: Sample) -> Finding | None:
    """Return the static gate's finding, given the problem's source as well."""
    return check_static(sample.code).refusal


def cuda_config(kind: str, compile_cache: str = "", arch: str = "") -> EvaluationConfig:
    """Return the shipped configuration; for adversarial samples without the static gate and with short limits.

    Adversarial samples are measured whatever operators they run, even one that adds an operator of its own, so that no
    other rule stands between a trick and its credit.
    """
    config = load_config(["evaluation=cuda"]).evaluation
    config.compile_cache, config.cuda_arch_list = compile_cache, arch
    if kind == "adversarial":
        config.check.static_gate = False
        config.rules.same_operations = "measure"
        config.limits.memory_mib, config.limits.cpu_s = 8192, 300
        config.limits.load_timeout_s, config.limits.first_call_timeout_s = 150.0, 12.0
        config.limits.call_timeout_s = 5.0
    return config


def complaints(sample: Sample, finding: Finding | None, verdict: Verdict) -> list[str]:
    """Return everything that is not as expected. `verdict` of an adversarial sample was given without the gate: the
    gate only reads the text, so with it the result is its finding, or this same verdict.
    """
    if sample.kind == "honest":
        texts = [f"the gate refuses it: {finding.reason}"] if finding else []
        if not verdict.accepted:
            texts.append(f"rejected: {', '.join(verdict.reasons)}")
        elif verdict.credited_speedup < sample.least:
            texts.append(f"credited {verdict.credited_speedup:.3f}x, at least {sample.least:g}x is certain")
        return texts
    texts = []
    if verdict.credited_speedup > sample.most:
        texts.append(f"credited {verdict.credited_speedup:.3f}x that it did not earn")
    elif verdict.accepted and sample.expectation == "refused":
        texts.append("accepted without credit; it must be refused")
    if verdict.accepted == bool(verdict.reasons):
        texts.append("a verdict that contradicts its reasons")
    if finding is not None and finding.reason not in sample.reasons:
        texts.append(f"the gate calls it {finding.reason}")
    if finding is None and set(verdict.reasons) - sample.reasons:
        texts.append(f"called {', '.join(verdict.reasons)}")
    return texts


def control_complaints(control: Sample, verdict: Verdict) -> list[str]:
    """Return how the honest candidate evaluated after a sample differs from its verdict without that sample."""
    if not verdict.accepted:
        return [f"afterwards {control.name} is rejected: {', '.join(verdict.reasons)}: {verdict.detail[:120]}"]
    low, high = (control.least, 1e9) if control.least else CONTROL_RANGE
    if not low < verdict.speedup < high:
        return [f"afterwards {control.name} measures {verdict.speedup:.3f}x"]
    return []


def evaluate(sample: Sample, evaluator: Evaluator) -> Row:
    """Return the sample's row, without its control."""
    finding = gate(sample)
    row = Row(sample.name, sample.kind, gate=finding.reason if finding else "")
    start = time.monotonic()
    verdict = evaluator.evaluate(sample.problem, sample.code)
    row.seconds = time.monotonic() - start
    row.verdict, row.reasons, row.detail = verdict.status, list(verdict.reasons), verdict.detail
    row.speedup, row.low, row.high = verdict.speedup, verdict.speedup_low, verdict.speedup_high
    row.runtime_ms, row.reference_ms = verdict.runtime_ms, verdict.reference_ms
    row.complaints = complaints(sample, finding, verdict)
    return row


def evaluate_control(sample: Sample, honest: dict[str, Sample], evaluator: Evaluator, row: Row) -> None:
    control = honest[sample.control or DEFAULT_CONTROL]
    verdict = evaluator.evaluate(control.problem, control.code)
    row.control = f"{control.name} {verdict.status} {verdict.speedup:.3f}"
    row.complaints += control_complaints(control, verdict)


def keeps_files(evaluator: Evaluator) -> bool:
    return evaluator.sandbox_level() in ("namespaces", "landlock")
