"""The paper's table in README and on the results page, from the newest result of `benchmarks.paper.collect`.

Before there is one, or where an arm is not in it, the pages have "not yet run".
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/ is no part of the installed package

import pyarrow.parquet as pq  # noqa: E402

from benchmarks.common.results import FOLDER, read_result  # noqa: E402
from benchmarks.paper.arms import ARMS  # noqa: E402
from benchmarks.paper.curves import has_curves, svg  # noqa: E402
from benchmarks.paper.measured import CONTROL  # noqa: E402
from benchmarks.paper.reservations import hardware  # noqa: E402
from benchmarks.paper.table import NOT_RUN, markdown  # noqa: E402
from benchmarks.paper.winners import SCHEMA as WINNERS  # noqa: E402
from benchmarks.paper.winners import against_corpus, beats_all, summary_rows  # noqa: E402
from cudal1_ray.analysis.tables import markdown_lines  # noqa: E402
from cudal1_ray.evaluation.baselines import BASELINES  # noqa: E402
from cudal1_ray.problems import read_corpus  # noqa: E402
from cudal1_ray.wording import counted  # noqa: E402

# Folders of benchmarks/results: what their table is of.
SUBJECTS = {"arms": "", "arms-freedom": "With the paper's own freedom: no own kernel required, compilers allowed."}
CURVES = "learning-curves.svg"
# The corpus of stage 1, to whose kernels winners are compared.
CORPUS = "kernelbench"
# Arms in README, by what it calls them.
FRONT = {
    "base": "base model",
    "evolution": "evolution, fixed weights",
    "stage1": "stage 1",
    "grpo": "GRPO without contrast",
    "stage2-long": "stages 1 + 2",
    "bucket": "contrastive RL",
}
Row = tuple[str, str, str, str]


def newest(subject: str) -> Path | None:
    """Return the newest result of a subject on any device; None where there is none."""
    files = (FOLDER / subject).glob("????-??-??-*.json")
    return max(files, key=lambda file: (file.name[:10], read_result(file)["written"]), default=None)


def section() -> str:
    """Return the tables of the results page."""
    parts = [text for subject, title in SUBJECTS.items() if (text := _subject(subject, title))]
    if not parts:
        parts = [f"{NOT_RUN.capitalize()}.\n"]
    elif curves() is not None:
        parts.insert(0, f"![learning curves of every arm]({CURVES})\n")
    return "\n".join([*parts, *_winners()])


def _subject(subject: str, title: str) -> str:
    if (file := newest(subject)) is None:
        return ""
    name = file.relative_to(FOLDER).as_posix()
    return f"{title} `{name}`, where every setting and command is:\n\n".lstrip() + markdown(_content(file)) + "\n"


def _content(file: Path) -> dict[str, Any]:
    return read_result(file)["metrics"]


def _winners() -> list[str]:
    parts, corpus = [], read_corpus(CORPUS)
    for subject in SUBJECTS:
        problem_ids = problems_of_stage_3(file) if (file := newest(subject)) else set()
        for file in sorted((FOLDER / subject).glob("*winners*.parquet")):
            rows = pq.read_table(file, schema=WINNERS).to_pylist()
            devices = ", ".join(sorted({row["device"] for row in rows if row["device"]}))
            sizes = ", ".join(sorted({row["sizes"] for row in rows if row["sizes"]})) or "not recorded"
            name = file.relative_to(FOLDER).as_posix()
            heads = ["against", "winners measured", "faster", "median"]
            parts.append(f"The fastest own kernel of each problem, {devices}, sizes {sizes}, `{name}`:\n")
            parts.append("\n".join(markdown_lines(heads, summary_rows(rows) + against_corpus(rows, corpus))) + "\n")
            if problem_ids and any(row["baselines"] for row in rows):
                fastest = [row for row in rows if beats_all(row)]
                share = f"{len(fastest)} of {len(problem_ids)} problems asked in stage 3 "
                share += f"({len(fastest) / len(problem_ids):.0%})"
                parts.append(f"Faster than each of these on {share}; a third is the aim.{_not_measured(fastest)}\n")
    return parts


def _not_measured(rows: list[dict[str, Any]]) -> str:
    """Return which baselines some of these winners were not measured against, and how many."""
    measured = Counter(name for row in rows for name in dict(row["baselines"]))
    lacking = {name: len(rows) - measured[name] for name in BASELINES if name != "eager"}
    texts = [f"{count} against {name}" for name, count in lacking.items() if count]
    return f" Not measured, of these: {', '.join(texts)}." if texts else ""


def problems_of_stage_3(file: Path) -> set[str]:
    """Return the problems that arms of stage 3 asked their policies."""
    arms = [arm for name, arm in _content(file)["arms"].items() if ARMS[name].stage == "contrastive"]
    return {problem for arm in arms for record in arm["seeds"].values() for problem in record["problems"]}


def curves() -> str | None:
    """Return the picture of the learning curves; None without any."""
    if (file := newest("arms")) is None:
        return None
    result = _content(file)
    return svg(result, file.relative_to(FOLDER).as_posix()) if has_curves(result) else None


def drawn_from(picture: str) -> str:
    """Return the result that a picture of the learning curves was drawn from."""
    title = re.search(r"<dc:title>(.*?)</dc:title>", picture)
    return title[1] if title else ""


def front_rows(folder: str) -> list[Row]:
    """Return README's two rows of the table; none before its last arm and an earlier one are assessed."""
    if (file := newest("arms")) is None:
        return []
    arms = _content(file)["arms"]
    names = [arm for arm in FRONT if arms.get(arm, {}).get("assessed")]
    if "bucket" not in names[1:]:
        return []
    name = file.relative_to(FOLDER).as_posix()
    records = [record for arm in arms.values() for record in arm["seeds"].values()]
    on = ", ".join(dict.fromkeys(re.sub(r"NVIDIA (\w+).*", r"\1", hardware(record)) for record in records))
    link = f"[{name}]({folder}{name})"
    geomeans = dict(pair for arm in names for pair in _geomeans(FRONT[arm], arms[arm]["assessed"]))
    held_out = {arm: arms[arm]["assessed"]["held_out"] for arm in names}
    shares = (f"{FRONT[arm]} {of['success']:.0%} ({counted(of['seeds'], 'seed')})" for arm, of in held_out.items())
    return [
        (
            "KernelBench, geometric mean speedup, a failure counted as 0.1x",
            "; ".join(f"{label} {geomean:.2f}x" for label, geomean in geomeans.items()),
            on,
            link,
        ),
        ("Held out, no exemplars, samples accepted", "; ".join(shares), on, link),
    ]


def _geomeans(label: str, assessed: dict[str, Any]) -> list[tuple[str, float]]:
    """Return a policy's geometric mean on training problems, asked as it was trained, after that of its control."""
    if "train with exemplars" not in assessed:
        return [(label, assessed["train"]["geomean"])]
    control = [("before RL (shown earlier kernels)", assessed[CONTROL]["geomean"])] if CONTROL in assessed else []
    return [*control, (f"{label} (shown earlier kernels)", assessed["train with exemplars"]["geomean"])]
