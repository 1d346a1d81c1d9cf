"""`cudal1 samples`: completions of a run with their verdicts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys

from cudal1_ray.analysis.run_data import read_run
from cudal1_ray.analysis.samples import RecordedSample, SampleFilter, find_samples
from cudal1_ray.errors import UserError

RULE = "=" * 100
# A step, or the first and the last.
_STEPS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def show_samples(arguments: argparse.Namespace) -> int:
    """Print the samples that are asked for; in a pager where standard output is a terminal.

    Raises:
        UserError: no run is there, it has no such samples, or an argument is none.
    """
    if arguments.limit < 0:
        raise UserError(f"--limit {arguments.limit}: give a number of samples, 0 for all")
    criteria = SampleFilter(
        problem=arguments.problem,
        reason=arguments.reason,
        stage=arguments.stage,
        steps=steps_of(arguments.step),
        order=arguments.order,
        assessed=arguments.assessed,
        limit=arguments.limit,
    )
    run = read_run(arguments.run_folder)
    for note in run.notes:  # what cannot be read is in no count below
        print(f"{run.folder}: {note}", file=sys.stderr)
    samples, count = find_samples(run, criteria)
    if arguments.json:
        for sample in samples:
            print(json.dumps(dataclasses.asdict(sample)))
        return 0
    texts = (sample_line(item) if arguments.brief else sample_text(item, arguments.prompt) for item in samples)
    text = "\n".join(texts)
    if len(samples) < count:
        text += f"\n{len(samples)} of {count:,} samples; --limit 0 shows all"
    if sys.stdout.isatty():
        _page(text)
    else:
        print(text)
    return 0


def steps_of(text: str) -> tuple[int, int] | None:
    """Return first and last step of `30` or `30-32`; None for an empty text.

    Raises:
        UserError: it is neither.
    """
    if not text:
        return None
    steps = _STEPS.fullmatch(text)
    if steps is None:
        raise UserError(f"--step {text:.40}: give a step, like 30, or the first and the last, like 30-32")
    return int(steps[1]), int(steps[2] or steps[1])


def sample_line(sample: RecordedSample) -> str:
    """Return in one line where a sample comes from and what became of it."""
    return f"{sample.place} · {sample.outcome}"


def sample_text(sample: RecordedSample, prompt: bool) -> str:
    """Return a sample in full: where it comes from, its verdict, on demand its prompt, and the completion."""
    lines = [RULE, sample.place, sample.outcome]
    if sample.reward is not None:
        lines[-1] += f" · reward {sample.reward:.3g}"
    if sample.texts["finish_reason"] == "length":
        lines.append("cut at the token limit")
    if sample.texts["detail"]:
        lines.append(sample.texts["detail"])
    if prompt and sample.texts["prompt"]:
        lines += ["--- prompt", sample.texts["prompt"].rstrip("\n")]
    lines += ["--- completion", (sample.texts["completion"] or sample.texts["code"]).rstrip("\n"), ""]
    return "\n".join(lines)


def _page(text: str) -> None:
    """Display a text in the user's pager, or in `less`, which ends by itself where the text fits the screen."""
    import pydoc

    os.environ.setdefault("LESS", "-FRX")
    pydoc.pager(text)
