"""The report of a run: one HTML file that needs nothing else, written for readers that did not watch the run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from cudal1_ray.analysis.candidates import best_candidates, references_of
from cudal1_ray.analysis.changes import change_table
from cudal1_ray.analysis.environment import describe_environment
from cudal1_ray.analysis.plots import all_plots
from cudal1_ray.analysis.plots_outcome import HEAT_EDGES, rejection_counts
from cudal1_ray.analysis.plots_progress import role_shares
from cudal1_ray.analysis.problem_table import problem_lines
from cudal1_ray.analysis.run_data import SPLITS, RunData, degenerate_problems, is_accepted, number, read_run, text_list
from cudal1_ray.analysis.samples import instructive_samples
from cudal1_ray.analysis.statistics import FAILURE_IN_GEOMEAN
from cudal1_ray.analysis.step_assessments import step_assessments_table
from cudal1_ray.analysis.summary import save_summary, summarise, write_report_file
from cudal1_ray.analysis.tables import (
    convention_text,
    degenerate_text,
    format_duration,
    format_interval,
    format_share,
    format_speedup,
    html_table,
    interval_of_ratio,
    split_name,
    stage_name,
)
from cudal1_ray.analysis.techniques import TECHNIQUES, count_techniques
from cudal1_ray.evaluation.reasons import describe
from cudal1_ray.wording import counted

# Best candidates shown, at most one for each problem.
BEST_CANDIDATES = 4
# Single completions shown: the latest of each frequent reason of rejection, and accepted ones.
SAMPLES = 9
# Characters shown of a prompt and of a completion; `cudal1 samples` shows all of them.
SAMPLE_CHARACTERS = 6000
# Exemplar draws shown, the latest first.
LOGGED_DRAWS = 12
# (heading, metrics field, whether it is a share) of the table of steps.
_STEP_COLUMNS = (
    ("seconds", "step_s", False),
    ("correct", "success_rate", True),
    ("geometric mean", "geomean_speedup", False),
    ("best", "best_speedup", False),
    ("reward", "reward_mean", False),
    ("spread", "reward_std", False),
    ("groups with a signal", "informative_groups", False),
    ("tokens, mean", "completion_tokens_mean", False),
    ("longest", "completion_tokens_max", False),
    ("cut", "truncated_share", True),
    ("loss", "loss", False),
    ("KL", "kl", False),
    ("learning rate", "learning_rate", False),
)


def write_report(run_folder: str | Path) -> Path:
    """Write report/index.html and summary.json of a run, finished or not; return the former's path.

    Raises UserError when the folder does not exist, holds no run, or cannot be written.
    """
    run = read_run(run_folder)
    summary = summarise(run)
    path = Path(run_folder) / "report" / "index.html"
    html = render_report(run, summary)
    save_summary(summary, path.with_name("summary.json"))
    write_report_file(path, html)
    return path


def render_report(run: RunData, summary: Mapping[str, Any]) -> str:
    """Return the report as HTML text."""
    references = references_of(run)
    assessed = bool(summary["stages"])
    environment = run.environment or describe_environment()
    return template("report.html.j2").render(
        style=Markup(read_template("style.css")),
        run=summary["run"],
        facts=facts(run, summary),
        headline=headline(summary),
        tiles=tiles(run, summary),
        table=Markup(html_table(summary, convention=False)) if assessed else "",
        best_table=Markup(html_table(summary, best_of_n=True, convention=False)) if assessed else "",
        convention=convention_text(summary) if assessed else degenerate_text(summary),
        looks=Markup(step_assessments_table(run)),
        failure_in_geomean=f"{FAILURE_IN_GEOMEAN:g}",
        best_of_n_convention=summary["conventions"]["best_of_n"],
        comparisons=summary["comparisons"],
        any_copies=any("copies_fail" in row for row in summary["comparisons"]),
        heat_edges=HEAT_EDGES,
        plots=all_plots(run, summary),
        problems=problem_lines(run),
        samples=instructive_samples(run, SAMPLES),
        sample_characters=SAMPLE_CHARACTERS,
        folder=str(run.folder),
        steps=step_table(run),
        techniques=technique_table(run, references),
        changes=change_table(run),
        candidates=best_candidates(run, references, BEST_CANDIDATES),
        rejections=rejection_counts(run),
        draws=last_draws(run, LOGGED_DRAWS),
        config_text=run.config_text,
        environment=environment,
        environment_recorded=bool(run.environment),
        notes=run.notes,
        written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def headline(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return supervised fine-tuning against the last assessed stage; None if unassessed.

    Without an assessment of that stage the first one with an accepted sample is compared: before it every geometric
    mean is what a failure counts as. `unsolved` names the stages before it that solved nothing.

    On held-out problems, unless no stage had a single accepted sample there: then `nothing_on` names that split, and
    the figures are those of the other one.
    """

    def solved(split: str) -> bool:
        return any(splits[split]["success_rate"] > 0 for splits in summary["stages"].values() if split in splits)

    nothing_on = next((s for s in SPLITS if any(s in x for x in summary["stages"].values()) and not solved(s)), None)
    for split in sorted(SPLITS, key=lambda s: s == nothing_on):
        stages = [(stage, splits[split]) for stage, splits in summary["stages"].items() if split in splits]
        if stages:
            last, after = stages[-1]
            tuned = (i for i, (stage, _) in enumerate(stages[:-1]) if stage == "sft")
            right = (i for i, (_, entry) in enumerate(stages) if entry["success_rate"] > 0)
            start = next(tuned, next(right, 0))
            first, before = stages[start]
            change = next(
                (c for c in summary["comparisons"] if (c["first"], c["second"], c["split"]) == (first, last, split)),
                None,
            )
            return {
                "split": split,
                "first": first,
                "before": before,
                "last": last,
                "after": after,
                "change": change,
                "single": first == last,
                "unsolved": [stage for stage, entry in stages[:start] if entry["success_rate"] == 0],
                "nothing_on": nothing_on if nothing_on != split else None,
            }
    return None


def facts(run: RunData, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (label, value) lines that describe the run."""
    steps = Counter(str(row.get("stage")) for row in run.metrics if number(row.get("step")) is not None)
    problems = {
        str(row["problem_id"]) for rows in (run.assessments, run.rollouts) for row in rows if row.get("problem_id")
    }
    policy = section if isinstance(section := run.config.get("policy"), dict) else {}
    model = str(policy.get("path") or policy.get("model") or "")
    if not model and policy.get("kind"):
        model = f"{policy['kind']}, {counted(policy.get('layers') or 0, 'layer')} of width {policy.get('hidden_size')}"
    versions = [v for row in run.rollouts if (v := number(row.get("policy_version"))) is not None]
    lines = [
        ("policy", model),
        ("stages", ", ".join(f"{stage_name(s)} ({counted(n, 'step')})" for s, n in steps.items())),
        ("problems", str(len(problems)) if problems else ""),
        ("degenerate problems", str(len(degenerate_problems([*run.assessments, *run.rollouts])) or "")),
        ("rollouts evaluated", f"{len(run.rollouts):,}" if run.rollouts else ""),
        ("policy versions", f"{int(max(versions)) + 1:,}" if versions else ""),
        ("exemplars kept", f"{len(run.exemplars):,}" if run.exemplars else ""),
        ("wall time", format_duration(summary["run"]["wall_s"])),
        ("seed", "" if summary["run"]["seed"] is None else str(summary["run"]["seed"])),
        ("configuration", summary["run"]["config_hash"] or ""),
    ]
    return [(label, value) for label, value in lines if value]


def tiles(run: RunData, summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the figures at the top: value, what it is, and its interval or origin."""
    entries: list[dict[str, str]] = []
    head, confidence = headline(summary), summary["conventions"]["confidence"]
    if head:
        for label, key, share in (
            ("geometric mean speedup", "geomean", False),
            ("median speedup", "median", False),
            ("correct", "success_rate", True),
        ):
            show = format_share if share else lambda value: f"{format_speedup(value)}×"
            before, after = head["before"], head["after"]
            interval = format_interval(after["intervals"].get(key), share)
            note = f"{confidence:.0%} interval {interval}" if interval else ""
            entries.append(_tile(label, show(after[key]), "" if head["single"] else show(before[key]), note))
    rows = run.counted_rollouts()
    speedups = [speedup for row in rows if is_accepted(row) and (speedup := number(row.get("speedup")))]
    if speedups:
        note = f"in training, of {len(speedups):,} correct"
        entries.append(_tile("fastest candidate found", f"{format_speedup(max(speedups))}×", note=note))
    if not head and not speedups:
        last = run.metrics[-1] if run.metrics else {}
        for label, key, show in (
            ("success rate, last step", "success_rate", format_share),
            ("geometric mean, last step", "geomean_speedup", lambda v: f"{format_speedup(v)}×"),
            ("loss, last step", "loss", lambda v: f"{v:.3g}"),
        ):
            if (value := number(last.get(key))) is not None:
                entries.append(_tile(label, show(value)))
        busy = {role: float(share.mean()) for role, (_, share) in role_shares(run).items()}
        entries += [_tile(f"{role} busy", format_share(share)) for role, share in busy.items()]
    return entries


def _tile(label: str, value: str, before: str = "", note: str = "") -> dict[str, str]:
    return {"label": label, "before": before, "value": value, "note": note}


def technique_table(run: RunData, references: Mapping[str, str]) -> dict[str, Any]:
    """Return {"stages": [...], "rows": [(technique, [cell or None for each stage])]} of techniques found."""
    counted = count_techniques(run.counted_rollouts(), references)
    stages = [stage for stage in run.stages() if stage in counted]
    rows = [(name, [counted[stage].get(name) for stage in stages]) for name in TECHNIQUES]
    rows = [(name, cells) for name, cells in rows if any(cells)]
    rows.sort(key=lambda row: -(row[1][-1] or {"share": 0.0})["share"])
    return {"stages": stages, "rows": rows}


def step_table(run: RunData, most: int = 60) -> dict[str, Any]:
    """Return {"headings": [...], "rows": [(stage, step, [text])]} of the last `most` metrics rows with a step."""
    rows = [row for row in run.metrics if number(row.get("step")) is not None]
    columns = [column for column in _STEP_COLUMNS if any(number(row.get(column[1])) is not None for row in rows)]
    cells = [
        (str(row.get("stage")), f"{row['step']:g}", [_cell(row.get(key), share) for _, key, share in columns])
        for row in rows[-most:]
    ]
    return {"headings": [heading for heading, *_ in columns], "rows": cells, "left_out": len(rows) - len(cells)}


def _cell(value: Any, share: bool) -> str:
    figure = number(value)
    if figure is None:
        return ""
    return format_share(figure) if share else f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def last_draws(run: RunData, limit: int) -> list[dict[str, Any]]:
    """Return the latest exemplar draws, newest first, each exemplar with its probability and speedup where known."""
    speedups = {str(row.get("exemplar_id")): number(row.get("speedup")) for row in run.exemplars}
    draws = []
    for row in reversed(run.selections[-limit:]):
        ids = text_list(row.get("exemplar_ids"))
        probabilities = row.get("probabilities") if isinstance(row.get("probabilities"), list) else []
        entries = [
            {
                "id": identity,
                "speedup": speedups.get(identity),
                "probability": number(probabilities[i]) if i < len(probabilities) else None,
            }
            for i, identity in enumerate(ids)
        ]
        step = number(row.get("step"))
        draws.append(
            {
                "stage": str(row.get("stage") or ""),
                "step": "" if step is None else f"{step:g}",
                "problem_id": str(row.get("problem_id") or ""),
                "exemplars": entries,
            }
        )
    return draws


def highlight_python(code: str) -> Markup:
    """Return Python source as HTML spans with Pygments' short class names (colours are in style.css)."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return Markup(highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)))


@cache
def read_template(name: str) -> str:
    """Return the text of a file of templates/."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def template(name: str) -> Template:
    """Return a page of templates/, its filters known."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        speedup=format_speedup,
        share=format_share,
        stage=stage_name,
        split=split_name,
        interval=format_interval,
        bounds=interval_of_ratio,
        python=highlight_python,
        reason=describe,
    )
    return environment.from_string(read_template(name))
