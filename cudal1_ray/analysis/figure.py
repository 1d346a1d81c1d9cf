"""One look for every figure: restrained palette, direct labels, SVG that follows the page's theme.

Figures are drawn in stand-in colours (a distinct hex value for each role) which become CSS variables in the
SVG text, so one drawing is right in both themes. The variables are defined in templates/style.css.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402  (the backend must be chosen before pyplot is loaded)
from matplotlib.artist import Artist  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

# role -> stand-in colour; the stylesheet defines --<role> for each.
_ROLES = [
    "ink",
    "muted",
    "grid",
    "card",
    "accent",
    "accent-2",
    "soft",
    "stage-0",
    "stage-1",
    "stage-2",
    "stage-3",
]
_ROLES += [f"heat-{i}" for i in range(9)] + ["fail"]
INKS = {role: f"#01{place:02x}f3" for place, role in enumerate(_ROLES)}

INK, MUTED, GRID, CARD = INKS["ink"], INKS["muted"], INKS["grid"], INKS["card"]
ACCENT, ACCENT_2, SOFT, FAIL = INKS["accent"], INKS["accent-2"], INKS["soft"], INKS["fail"]
HEAT = [INKS[f"heat-{i}"] for i in range(9)]

# Inches: the width of the report's column, and of a figure for a phone's screen. There an inch is 80 to 90 pixels, so
# that text stays as large as the page's small print.
WIDTH, NARROW_WIDTH = 9.8, 4.3
# Points of one line with a text to hover over; of longer lines every n-th has one.
MOST_HOVERED = 400

# Attribute of an artist that holds its texts.
_HOVER_TEXTS = "hover_texts"
_STAGE_INKS = {
    "untrained": "stage-0",
    "sft": "stage-1",
    "self_supervised": "stage-2",
    "contrastive": "stage-3",
}

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cudal1_ray",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.titlecolor": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Plot:
    """A figure for the report, drawn for a wide page and for a phone; the stylesheet shows one of the two.

    `svg` holds both. It is empty where there is nothing to draw; `omitted` then states why.
    """

    name: str
    title: str
    caption: str
    svg: str = ""
    omitted: str = ""


def stage_ink(stage: str) -> str:
    return INKS[_STAGE_INKS.get(stage, "accent")]


def draw(
    name: str,
    title: str,
    caption: str,
    size: tuple[float, float],
    paint: Callable[[Figure, bool], None],
    narrow_size: tuple[float, float] | None = None,
) -> Plot:
    """Return a figure in the common style as a Plot with inline SVG.

    Args:
        size: inches of the wide figure.
        paint: is called with an empty figure and whether it is the narrow one.
        narrow_size: inches of the narrow figure; without it, the height of the wide one.
    """
    label = f"{title}. {caption}"
    wide = _inline(_painted(size, paint, False), name, label, "wide")
    narrow = _inline(_painted(narrow_size or (NARROW_WIDTH, size[1]), paint, True), f"{name}-narrow", label, "narrow")
    return Plot(name, title, caption, svg=f"{wide}\n{narrow}")


def _painted(size: tuple[float, float], paint: Callable[[Figure, bool], None], narrow: bool) -> str:
    """Return the figure as SVG text, with the texts that `hover` left on it as titles."""
    with matplotlib.rc_context(_STYLE):
        figure = plt.figure(figsize=size, layout="constrained")
        try:
            paint(figure, narrow)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
            titles = _hover_texts(figure)
        finally:
            plt.close(figure)
    return _with_titles(text.getvalue(), titles)


def hover_patch(patch: Artist, text: str) -> None:
    """Show `text` where the pointer rests on a bar or a cell."""
    _set_hover_texts(patch, [text])


def _set_hover_texts(artist: Artist, texts: Sequence[str]) -> None:
    artist.set_gid(f"hover-{id(artist)}")
    setattr(artist, _HOVER_TEXTS, list(texts))


def _hover_texts(figure: Figure) -> dict[str, list[str]]:
    """Return the texts that were set on a figure's artists, by the ids of their groups in the SVG."""
    return {str(a.get_gid()): getattr(a, _HOVER_TEXTS) for a in figure.findobj(lambda a: hasattr(a, _HOVER_TEXTS))}


def hover_points(
    axes: Axes, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, texts: Sequence[str]
) -> None:
    """Show a text where the pointer rests near a point: an invisible marker, larger than the one that is seen."""
    step = -(-len(texts) // MOST_HOVERED) or 1
    (line,) = axes.plot(x[::step], y[::step], "o", markersize=13, color=INK, alpha=0.0, markeredgewidth=0, zorder=9)
    _set_hover_texts(line, texts[::step])


def _with_titles(svg: str, titles: Mapping[str, Sequence[str]]) -> str:
    """Give each marker, or the one shape, of the groups named in `titles` its text, which browsers show on hovering."""
    for number, (gid, texts) in enumerate(titles.items()):
        start = svg.index(f'<g id="{gid}">')
        head, body = svg[:start], svg[start:]
        remaining = [f"<title>{escape(text, quote=False)}</title>" for text in texts]
        if "<use " in body[: body.index("</g>")]:
            parts = re.split(r"(<use [^>]*)/>", body, maxsplit=len(texts))
            body = "".join(
                part if place % 2 == 0 else f"{part}>{remaining[place // 2]}</use>" for place, part in enumerate(parts)
            )
        else:
            body = body.replace(">", f">{remaining[0]}", 1)
        svg = head + body.replace(gid, f"hover-{number}", 1)
    return svg


def speedup_axis(axes: Axes, low: float, high: float, which: str = "y") -> None:
    """Make an axis logarithmic in speedup, with ticks at plain values (0.5x, 1x, 2x, 4x) and a firmer line at 1x."""
    low, high = min(low, 0.9), max(high, 1.15)
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log", base=2)
    (axes.set_ylim if which == "y" else axes.set_xlim)(low / 1.06, high * 1.06)
    candidates = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    if high / low < 6:
        candidates = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5]
    if high / low < 1.8:
        candidates = [0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    ticks = [tick for tick in candidates if low / 1.06 <= tick <= high * 1.06]
    axis.set_ticks(ticks, labels=[f"{tick:g}×" for tick in ticks])
    axis.set_ticks([], minor=True)
    (axes.axhline if which == "y" else axes.axvline)(1.0, color=MUTED, linewidth=0.9, zorder=1)


def label_beside(axes: Axes, text: str, place: tuple[float, float], gap: float, size: float, ink: str = INK) -> None:
    """Write a text of `size` points to the right of a place, `gap` points away."""
    axes.annotate(
        text, place, (gap, 0), textcoords="offset points", va="center", fontsize=size, color=ink, annotation_clip=False
    )


def spread_labels(positions: list[float], gap: float) -> list[float]:
    """Return label positions moved apart to at least `gap`, order kept; colliding ones stay centred."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    groups: list[list[int]] = []  # members of a group sit `gap` apart around the mean of their wished positions

    def first_place(group: list[int]) -> float:
        return sum(positions[i] for i in group) / len(group) - gap * (len(group) - 1) / 2

    for index in order:
        groups.append([index])
        while len(groups) > 1 and first_place(groups[-1]) < first_place(groups[-2]) + gap * len(groups[-2]):
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = list(positions)
    for group in groups:
        for offset, index in enumerate(group):
            placed[index] = first_place(group) + gap * offset
    return placed


def _inline(svg: str, name: str, label: str, kind: str) -> str:
    """Return SVG text fit for an HTML page: no prologue or namespaces, ids of its own, colours as CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"(font: [^;\"]*?)'DejaVu Sans'[^;\"]*", r"\1var(--sans)", svg)
    for role, ink in INKS.items():
        svg = svg.replace(ink, f"var(--{role})")
    width = re.search(r'width="([\d.]+)pt"', svg)
    style = f' style="max-width:{float(width.group(1)) * 1.3333:.0f}px"' if width else ""
    svg = re.sub(r'\swidth="[\d.]+pt"', "", re.sub(r'\sheight="[\d.]+pt"', "", svg, count=1), count=1)
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg", f'<svg class="{kind}" role="img" aria-label="{label}"{style}', 1).strip()
