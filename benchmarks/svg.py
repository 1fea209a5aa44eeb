"""A drawing as SVG text: rectangles, lines, words and bands in the colours of a page that may be light or dark.

A drawing carries its own background and both palettes; which one shows, the reader's `prefers-color-scheme` decides.
Coordinates are pixels from the upper left.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

SHAPES = """\
svg { font: 13px system-ui, sans-serif } .soft { font-size: 12px } .title { font-weight: 600; font-size: 15px }
.line-a, .line-b { stroke-width: 2; fill: none } .band { opacity: 0.2 }
"""
#: Spelled out twice rather than by variables, which renderers other than browsers do not know.
COLOURS = """\
.page {{ fill: {page} }} text, .whisker {{ fill: {ink} }} .whisker {{ stroke: {ink} }} .soft {{ fill: {soft} }}
.grid {{ stroke: {grid} }} .a {{ fill: {a} }} .b {{ fill: {b} }} .rest {{ fill: {rest} }}
.line-a {{ stroke: {a} }} .line-b {{ stroke: {b} }}
"""
LIGHT = {
    "page": "#ffffff",
    "ink": "#1f2328",
    "soft": "#59636e",
    "grid": "#d8dee4",
    "a": "#2563a8",
    "b": "#c2570c",
    "rest": "#9aa4ae",
}
DARK = {
    "page": "#0d1117",
    "ink": "#e6edf3",
    "soft": "#9198a1",
    "grid": "#30363d",
    "a": "#58a6ff",
    "b": "#f0883e",
    "rest": "#6e7681",
}


class Drawing:
    """Shapes in the order they are drawn; `kind` is a class of SHAPES or COLOURS."""

    def __init__(self, width: int, height: int, *, title: str) -> None:
        self._size = width, height
        self._title = title
        self._shapes: list[str] = [f'<rect class="page" width="{width}" height="{height}"/>']

    def rectangle(self, x: float, y: float, *, width: float, height: float, kind: str) -> None:
        """A bar."""
        self._shapes.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" rx="2"/>'
        )

    def line(self, x: float, y: float, *, to: tuple[float, float], kind: str) -> None:
        """A straight line."""
        self._shapes.append(f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to[0]:.1f}" y2="{to[1]:.1f}"/>')

    def path(self, points: Sequence[tuple[float, float]], *, kind: str) -> None:
        """Lines from point to point."""
        self._shapes.append(f'<polyline class="{kind}" points="{_pairs(points)}"/>')

    def area(self, points: Sequence[tuple[float, float]], *, kind: str) -> None:
        """What the points enclose."""
        self._shapes.append(f'<polygon class="{kind}" points="{_pairs(points)}"/>')

    def text(self, x: float, y: float, text: str, *, kind: str = "", anchor: str = "start") -> None:
        """A line of words on the base line `y`."""
        self._shapes.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def svg(self) -> str:
        """The file's text."""
        width, height = self._size
        style = SHAPES + COLOURS.format(**LIGHT)
        style += "@media (prefers-color-scheme: dark) {\n" + COLOURS.format(**DARK) + "}\n"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" role="img">\n<title>{escape(self._title)}</title>\n<style>\n{style}</style>\n'
        )
        return head + "\n".join(self._shapes) + "\n</svg>\n"


def _pairs(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
