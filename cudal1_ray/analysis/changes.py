"""What candidates change of the exemplars that their prompt shows: nothing, numbers and strings, or more."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudal1_ray.analysis.run_data import RunData, credited_speedup, is_accepted, number, text_list
from cudal1_ray.source.anonymous import tokens
from cudal1_ray.source.renaming import same_except_names

CHANGES = ("copied", "retuned", "rewritten")
# Times the fastest exemplar shown above which a candidate counts as faster: training measures within 3%.
FASTER = 1.03


@dataclass
class ChangeCount:
    """Candidates that change the same.

    Attributes:
        samples: how many there are.
        accepted: how many the evaluator accepted.
        faster: how many are more than 3% faster than every exemplar in their prompt.
    """

    samples: int = 0
    accepted: int = 0
    faster: int = 0


def change_of(code: str, exemplars: Sequence[str]) -> str:
    """Return "copied" if a candidate equals one of the exemplars in all except the names that it binds, "retuned" if
    numbers above 2 and strings differ as well (block sizes, warps, a precision), "rewritten" if more does.
    """
    if any(same_except_names(code, exemplar) for exemplar in exemplars):
        return "copied"
    return "retuned" if any(_tokens(code) == _tokens(exemplar) for exemplar in exemplars) else "rewritten"


@functools.lru_cache(maxsize=4096)
def _tokens(code: str) -> tuple[str, ...]:
    return tuple(tokens(code))


def count_changes(
    rows: Iterable[Mapping[str, Any]], exemplars: Mapping[str, Mapping[str, Any]]
) -> dict[str, ChangeCount]:
    """Return the counts by change of the rows that have code and whose prompts showed exemplars.

    Args:
        rows: some of a run's rollouts.
        exemplars: rows with code and speedup, by exemplar_id; a prompt with one that is missing here is left out.
    """
    counts = {name: ChangeCount() for name in CHANGES}
    for row in rows:
        identities = text_list(row.get("exemplar_ids"))
        if not row.get("code") or not identities or not exemplars.keys() >= set(identities):
            continue
        in_prompt = [exemplars[identity] for identity in identities]
        change = counts[change_of(row["code"], [exemplar["code"] for exemplar in in_prompt])]
        fastest = max(number(exemplar["speedup"], 0.0) for exemplar in in_prompt)
        change.samples += 1
        change.accepted += is_accepted(row)
        change.faster += credited_speedup(row) > FASTER * fastest
    return counts


def changes_over_steps(
    rows: Sequence[Mapping[str, Any]], exemplars: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, dict[str, ChangeCount]]]:
    """Return (steps, counts) of the first and the last third of the steps, those without a sample that counts left out;
    of a single step once.
    """
    steps = sorted({step for row in rows if (step := number(row.get("step"))) is not None})
    third = max(1, len(steps) // 3)
    parts = []
    for part in [steps[:third]] if len(steps) == 1 else [steps[:third], steps[-third:]]:
        counts = count_changes([row for row in rows if row.get("step") in part], exemplars)
        if any(change.samples for change in counts.values()):
            name = f"steps {part[0]:g} to {part[-1]:g}" if len(part) > 1 else f"step {part[0]:g}"
            parts.append((name, counts))
    return parts


def change_table(run: RunData) -> list[tuple[str, dict[str, ChangeCount]]]:
    """Return `changes_over_steps` of contrastive RL in a run."""
    rows = [row for row in run.counted_rollouts() if row.get("stage") == "contrastive"]
    exemplars = {str(row["exemplar_id"]): row for row in run.exemplars if row.get("exemplar_id") and row.get("code")}
    return changes_over_steps(rows, exemplars)
