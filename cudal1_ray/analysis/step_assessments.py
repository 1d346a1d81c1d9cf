"""Own kernels and the fast_p measures of each assessed policy, and how they moved from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cudal1_ray.analysis.run_data import RunData, counted_rows, number
from cudal1_ray.analysis.tables import format_share, format_speedup, split_name, stage_name
from cudal1_ray.wording import counted

# (heading, key, whether it is a share)
COLUMNS = (
    ("right", "success", True),
    ("own kernel", "own_kernel", True),
    ("> 1.0\u00d7", "fast_1", True),
    ("> 1.2\u00d7", "fast_1_2", True),
    ("geometric mean", "geomean", False),
    ("best of n: right", "best_success", True),
    ("best of n: > 1.0\u00d7", "best_fast_1", True),
)


def step_assessments_table(run: RunData) -> str:
    """Return HTML of the policy's assessments between steps and of the shares of samples with an own kernel.

    It is empty where the run has neither.
    """
    return _during(run.looks) + _kernels(run.assessments)


def _during(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    body = []
    for row in rows:
        how = "with" if row.get("exemplars") else "without"
        place = f"{stage_name(str(row.get('stage')))}, after step {row.get('step')}"
        count = int(number(row.get("samples"), 0.0))
        samples = counted(count, "sample")
        where = f"{split_name(str(row.get('split')))} problems, {how} exemplars, {samples}"
        cells = []
        for _, key, share in COLUMNS:
            value = number(row.get(key)) if count else None
            cells.append("" if value is None else format_share(value) if share else format_speedup(value))
        row_html = "".join(f"<td>{cell}</td>" for cell in cells)
        body.append(f'<tr><th scope="row">{escape(place)}<small>{escape(where)}</small></th>{row_html}</tr>')
    head = "".join(f"<th>{heading}</th>" for heading, *_ in COLUMNS)
    return _table(head, body)


def _kernels(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return HTML of the shares of samples in which a kernel of the candidate's own ran, by stage and split."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in counted_rows(rows):
        if "own_kernel" in row:
            groups.setdefault((str(row.get("stage")), str(row.get("split"))), []).append(row)
    body = []
    for (stage, split), group in groups.items():
        accepted = [row for row in group if row.get("status") == "accepted"]
        shares = [sum(bool(row["own_kernel"]) for row in accepted)]
        shares += [sum((number(row.get("speedup")) or 0.0) > factor for row in accepted) for factor in (1.0, 1.2)]
        row_html = "".join(f"<td>{format_share(count / len(group))}</td>" for count in shares)
        where = f"{split_name(split)} problems, {counted(len(group), 'sample')}"
        body.append(
            f'<tr><th scope="row">{escape(stage_name(stage))}<small>{escape(where)}</small></th>{row_html}</tr>'
        )
    head = "<th>right with an own kernel</th><th>&gt; 1.0\u00d7</th><th>&gt; 1.2\u00d7</th>"
    return _table(head, body) if body else ""


def _table(head: str, body: Sequence[str]) -> str:
    rows = "".join(body)
    return (
        f'<div class="scroll"><table class="results"><thead><tr><th>policy</th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
