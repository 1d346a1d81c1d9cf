"""What a run achieved, from its folder alone: statistics, tables, technique tags, figures, report.

The names below are loaded when they are first used, so that importing the package costs neither matplotlib
nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from cudal1_ray.analysis.comparison import Comparison, compare_runs
    from cudal1_ray.analysis.environment import describe_environment
    from cudal1_ray.analysis.report import write_report
    from cudal1_ray.analysis.run_data import read_run
    from cudal1_ray.analysis.summary import combine_seeds, summarise
    from cudal1_ray.analysis.tables import html_table, markdown_table, rich_table
    from cudal1_ray.analysis.techniques import Technique, count_techniques, find_techniques
    from cudal1_ray.analysis.terminal import present

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "comparison": ["Comparison", "compare_runs"],
        "environment": ["describe_environment"],
        "report": ["write_report"],
        "run_data": ["read_run"],
        "summary": ["combine_seeds", "summarise"],
        "tables": ["html_table", "markdown_table", "rich_table"],
        "techniques": ["Technique", "count_techniques", "find_techniques"],
        "terminal": ["present"],
    },
)
