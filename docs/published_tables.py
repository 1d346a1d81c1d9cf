"""The tables of CUDA-L1's published kernels: what they measure under each set of rules, what refused ones became."""

from __future__ import annotations

from collections import Counter
from typing import Any

from result_figures import FOLDER, latest_result, read_result

_FILES = {"cuda_l1_published_h100": "H100", "cuda_l1_published_a100": "A100"}
_MEASURED = ("rules", "file", "evaluated", "accepted", "with own kernel", "same operations", "mean", "geometric mean",
             "median", "max", "> 1.01x")  # fmt: skip


def measured() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: the authors' own figures, then ours under each set of rules."""
    rules = _metrics()["rules"]
    rows = [
        ("the authors'", name, "", str(authors["success"]), "", "", *_columns(authors))
        for file, name in _FILES.items()
        for authors in [rules["default"]["files"][file]["eager"]["authors"]]
    ]
    for name, of_rules in rules.items():
        for file, summaries in of_rules["files"].items():
            of = summaries["eager"]
            counts = (of["published"], of["success"], of["with_own_kernel"], of["flags"].get("same_operations", 0))
            rows.append((f"`{name}`", _FILES[file], *map(str, counts), *_columns(of["measured"])))
    return _MEASURED, rows


def refused_before() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows: by former reason, how many of those evaluated are accepted, and why others are not."""
    before = _metrics()["refused_before"]["reasons"]
    rules = [name for name in next(iter(before.values())) if name != "refused"]
    rows = []
    for reason, became in {**before, "all": _added(before)}.items():
        accepted = [f"{became[name].get('accepted', 0)} of {sum(became[name].values())}" for name in rules]
        others = sorted(became["default"].items(), key=lambda item: -item[1])
        others = ", ".join(f"`{other}` {count}" for other, count in others if other != "accepted")
        rows.append((f"`{reason}`" if reason in before else reason, str(became["refused"]), *accepted, others))
    return ("refused before for", "", *(f"accepted, `{name}`" for name in rules), "the rest, `default`"), rows


def source() -> str:
    """Return the result's path in benchmarks/results."""
    return latest_result("published-kernels", "h200", "rules").relative_to(FOLDER).as_posix()


def _metrics() -> dict[str, Any]:
    return read_result(FOLDER / source())["metrics"]


def _columns(of: dict[str, float]) -> tuple[str, ...]:
    return (*(f"{of[name]:.2f}x" for name in ("mean", "geomean", "median", "max")), str(of["above_1_01"]))


def _added(reasons: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the sums over all former reasons, in the form of one."""
    rules = [name for name in next(iter(reasons.values())) if name != "refused"]
    results = {name: sum((Counter(of[name]) for of in reasons.values()), Counter()) for name in rules}
    return {"refused": sum(of["refused"] for of in reasons.values()), **results}
