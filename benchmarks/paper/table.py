"""The paper's table as Markdown and as cells, from a result of `benchmarks.paper.collect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.paper.arms import ARMS, arms_from
from benchmarks.paper.figures import SHARES
from benchmarks.paper.measured import CONTROL
from benchmarks.paper.records import rule_settings
from benchmarks.paper.reservations import hardware, reservations
from cudal1_ray.analysis.changes import CHANGES
from cudal1_ray.analysis.tables import markdown_lines
from cudal1_ray.wording import counted

NOT_RUN = "not yet run"
NOT_ASSESSED = "not yet assessed"
FIGURES = {
    "success": "success",
    "own_kernel": "own kernel",
    "copied": "copies",
    "above_shown": "> shown",
    "fast_1": "> 1x",
    "fast_1_2": "> 1.2x",
    "above_1_01": "> 1.01x",
    "mean": "mean",
    "geomean": "geom. mean",
    "geomean_right": "geom. mean of right",
    "median": "median",
    "p75": "p75",
    "p25": "p25",
    "max": "max",
}
LEGEND = (
    "95% bootstrap intervals over problems and, where there are several, seeds. Copies: accepted samples that equal an "
    "exemplar shown or a kernel of stage 1's corpus, names aside. > shown: samples, no copies, more than 3% faster "
    "than every exemplar in their prompt. Geom. mean: over all samples, a failure counts as 0.1. As trained: a policy "
    "whose run showed exemplars is asked with those that it found, others without; the claims compare policies asked "
    "this way."
)
CHANGES_LEGEND = (
    "What candidates change of the exemplars shown. Copied: nothing but names; retuned: numbers and strings too (block "
    "sizes, warps, a precision); rewritten: more. Of each, the share of the samples with code, and of these the "
    "accepted ones and those more than 3% faster than every exemplar in their prompt, as which noise may make a copy. "
    "This table and that of techniques count assessed runs alone."
)
KINDS = ("train with exemplars", CONTROL, "train", "held_out")
FIGURE_HEADINGS = ("problems", "samples", *FIGURES.values())


def kinds(result: dict[str, Any]) -> list[str]:
    """Return what was assessed, in order."""
    assessed = {kind for arm in result["arms"].values() for kind in arm["assessed"]}
    return [kind for kind in KINDS if kind in assessed]


def table_rows(result: dict[str, Any], kind: str) -> list[list[str]]:
    """Return the cells of a table, all text.

    Without exemplars there is a line for each arm of the paper, whether it was run or not; with them for those that
    were assessed so.
    """
    rows = []
    for name, arm in ARMS.items():
        figures = result["arms"].get(name, {}).get("assessed", {}).get(kind)
        if name not in result["arms"] or (figures is None and "exemplars" in kind):
            continue
        cells = [""] * len(FIGURE_HEADINGS)
        if figures is not None:
            cells = [str(figures["problems"]), str(figures["samples"]), *(_cell(key, figures) for key in FIGURES)]
        rows.append([arm.label, seeds_cell(result, name, kind), *cells])
    return rows


def seeds_cell(result: dict[str, Any], arm: str, kind: str) -> str:
    """Return the seeds of an arm that are assessed so, and what is missing of those that the table is to have."""
    records = result["arms"].get(arm, {}).get("seeds", {})
    done = [seed for seed, record in records.items() if kind in record["assessed"]]
    begun = [seed for seed in records if seed not in done]
    missing = [seed for seed in result["planned_seeds"] if seed not in records] if ARMS[arm].every_seed else []
    parts = [", ".join(done), _named(begun, NOT_ASSESSED), _named(missing, NOT_RUN)]
    return "; ".join(part for part in parts if part)


def _start(result: dict[str, Any]) -> str:
    """Return where stage 3 starts in this table, "stage1" or "stage2"."""
    of_stage_3 = (of["seeds"].values() for name, of in result["arms"].items() if ARMS[name].start == "stage2")
    return "stage1" if any(record["start"] == "stage1" for records in of_stage_3 for record in records) else "stage2"


def _named(seeds: Sequence[str], state: str) -> str:
    return f"{', '.join(seeds)} {state}" if seeds else ""


def _cell(name: str, figures: dict[str, Any]) -> str:
    if figures.get(name) is None:  # of an older result too
        return ""
    bounds = figures["intervals"].get(name)
    texts = [_share(value) if name in SHARES else f"{value:.2f}" for value in (figures[name], *(bounds or ()))]
    return f"{texts[0]} ({texts[1]} to {texts[2]})" if bounds else texts[0]


def _share(value: float) -> str:
    return f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"


def ratio_text(comparison: dict[str, Any]) -> str:
    """Return a ratio of geometric means with its interval."""
    if not comparison["right"]:
        return "no right sample on either side"
    low, high = comparison["interval"]
    return f"{comparison['ratio']:.2f} ({low:.2f} to {high:.2f})"


def bar_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return a line for each claim that the table is to bear out: claim, figures, whether they do."""
    rows = []
    for bar in result["bars"]:
        if bar["met"] is None:
            rows.append([bar["bar"], NOT_RUN, ""])
            continue
        if "ratio" in bar:
            figures = f"{ratio_text(bar)}; {ratio_text(bar['without_copies'])} with copies as failures"
            figures += f"; {counted(bar['seeds'], 'seed')}"
        else:
            names = {"base": "before", "stage1": "after stage 1", "bucket": "after"}
            figures = ", ".join(f"{_cell('success', bar[arm])} {text}" for arm, text in names.items() if arm in bar)
        otherwise = "only if copies count" if bar.get("interval", [0.0])[0] > 1.0 else "no"
        rows.append([bar["bar"], figures, "yes" if bar["met"] else otherwise])
    return rows


def comparison_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return a line for each pair of arms that were both assessed."""
    return [
        [
            *(ARMS[comparison[side]].label for side in ("first", "second")),
            comparison["split"].replace("_", "-"),
            str(comparison["problems"]),
            ratio_text(comparison),
            ratio_text(comparison["without_copies"]),
        ]
        for comparison in result["comparisons"]
    ]


def budget_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return what each run was given, all text; minutes are wall time.

    A run that was started more than once had an optimiser that began anew where the first one's state did not travel.
    """
    rows = []
    for name, arm in result["arms"].items():
        for seed, record in arm["seeds"].items():
            minutes = [
                "" if record[key] is None else f"{record[key]:.1f}"
                for key in ("training_minutes", "assessment_minutes")
            ]
            start = ARMS[record["start"]].label if record["start"] else "the base model"
            starts = str(len(record["environments"])) if ARMS[name].stage else ""
            spent = [str(record["samples"]), f"{record['evaluations']:.0f}", starts, *minutes]
            rows.append([arm["label"], seed, start, record["policy"] or NOT_ASSESSED, *spent, hardware(record)])
    return rows


def change_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return a line for each arm's first and last third of steps: what its candidates change of the exemplars shown."""
    rows = []
    for arm in result["arms"].values():
        for steps, changes in arm.get("changes", {}).items():
            total = sum(samples for samples, _, _ in changes.values())
            cells = [_change_cell(total, *changes[name]) for name in CHANGES]
            rows.append([arm["label"], steps.split(" ", 1)[1], str(total), *cells])
    return rows


def _change_cell(total: int, samples: int, accepted: int, faster: int) -> str:
    if not samples:
        return "0%"
    return f"{samples / total:.0%}: accepted {accepted / samples:.0%}, faster {faster / samples:.0%}"


def _conditions(result: dict[str, Any]) -> list[str]:
    """Return a line for each set of sizes, reward and rules that runs of the table were trained with."""
    lines = {}
    for arm in result["arms"].values():
        for record in arm["seeds"].values():
            settings = record["settings"]
            rules = ", ".join(rule_settings(settings["evaluation"].get("rules", {}))) or "all defaults"
            line = f"Sizes: {settings['problems']['sizes']}. Reward: {settings['rewards']['kind']}. Rules: {rules}."
            if corpus := settings["prompting"].get("related_from"):
                line += f" Every prompt shows kernels of related training problems from {corpus}, the base model's too."
            lines[line] = None
    for label, headroom in dict.fromkeys(
        (arm["label"], record["settings"]["exemplars"].get("headroom", 1.0))
        for name, arm in result["arms"].items()
        for record in arm["seeds"].values()
        if ARMS[name].shows_exemplars
    ):
        if headroom > 1.0:
            lines[f"{label}: no prompt shows an exemplar within {headroom:g} times of the fastest known."] = None
    return list(lines)


def markdown(result: dict[str, Any]) -> str:
    """Return the tables as Markdown: claims, figures of every arm, comparisons, budgets, techniques."""
    lines = [LEGEND, *_conditions(result)]
    if missing := [arm.label for name, arm in arms_from(_start(result)).items() if name not in result["arms"]]:
        lines.append(f"Not yet run: {'; '.join(missing)}.")
    lines += ["", *markdown_lines(["claim", "measured", "holds"], bar_rows(result))]
    for kind in kinds(result) or ["train"]:
        lines += ["", f"**{kind.replace('_', '-')}**", ""]
        lines += markdown_lines(["arm", "seeds", *FIGURE_HEADINGS], table_rows(result, kind))
    if rows := comparison_rows(result):
        ratio = "second over first, geometric mean"
        heads = ["first", "second", "split", "problems", ratio, f"{ratio}, copies as failures"]
        lines += ["", *markdown_lines(heads, rows)]
    heads = [
        "arm",
        "seed",
        "from",
        "policy",
        "samples",
        "evaluations",
        "starts",
        "training, min",
        "start and assessment, min",
        "on",
    ]
    lines += ["", *markdown_lines(heads, budget_rows(result)), "", *(f"- {line}" for line in reservations(result))]
    rows = [
        [arm["label"], name, str(figures["candidates"]), f"{figures['median_speedup']:.2f}x"]
        for arm in result["arms"].values()
        for name, figures in list(arm["techniques"].items())[:6]
    ]
    if rows:
        lines += ["", *markdown_lines(["arm", "technique", "candidates", "median speedup"], rows)]
    if rows := change_rows(result):
        lines += ["", CHANGES_LEGEND, "", *markdown_lines(["arm", "steps", "samples", *CHANGES], rows)]
    return "\n".join(lines)
