"""The looks of line plots as SVG: one for all pictures of benchmarks, so that two of them may stand on a page."""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")

OTHERS, TEXT = "#9ca3af", "#4b5563"  # colours: of lines that stand back, and of words


def plot_style(salt: str) -> dict[str, Any]:
    """Return the settings of matplotlib for one picture.

    Args:
        salt: makes the ids in the file; the same picture is then the same text each time.
    """
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": OTHERS,
        "xtick.color": TEXT,
        "ytick.color": TEXT,
        "text.color": TEXT,
        "axes.labelcolor": TEXT,
    }
