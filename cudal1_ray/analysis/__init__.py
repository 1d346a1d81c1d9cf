"""What a run achieved, from its folder alone: statistics, tables, technique tags, figures, report.

The names below are loaded when they are first used, so that importing the package costs neither matplotlib
nor pyarrow.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "AnalysisConfig": "config",
    "Comparison": "comparison",
    "Technique": "techniques",
    "combine_seeds": "summary",
    "compare_runs": "comparison",
    "compare_stages": "comparison",
    "count_techniques": "techniques",
    "describe_environment": "environment",
    "find_techniques": "techniques",
    "html_table": "tables",
    "markdown_table": "tables",
    "present": "terminal",
    "print_summary": "terminal",
    "read_run": "run_data",
    "rich_table": "tables",
    "summarise": "summary",
    "write_report": "report",
    "write_summary": "summary",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
