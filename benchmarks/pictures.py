"""Pictures of stored results: a line per column of a table, as SVG.

A drawing library would be a dependency for a few lines and labels, and its output changes with its
version, so that a test could not compare pictures with results.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from xml.sax.saxutils import escape, quoteattr

from benchmarks.record import Figure, Record
from benchmarks.tables import Table, shown

WIDTH, HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 620, 60, 280
_COLOURS = ("#3f51b5", "#c62828", "#2e7d32", "#b58900", "#6a1b9a", "#00838f", "#5d4037")
_SIZE = (
    f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
    f'width="{WIDTH}" height="{HEIGHT}"'
)
_STYLE = (
    "text { font: 13px system-ui, sans-serif; fill: #24292f; } .ground { fill: #ffffff; } "
    ".grid { stroke: #d0d7de; } .line { fill: none; stroke-width: 2; } "
    ".middle { text-anchor: middle; } .end { text-anchor: end; }"
)


def picture(table: Table, record: Record) -> str:
    """Return the picture of a table: rows from left to right, values upwards in powers of ten.

    All values are above zero. A vertical stroke goes from the lowest to the highest value of all
    repetitions.
    """
    series = {
        heading: [record.figure(template.format(word)) for word in table.rows.values()]
        for heading, template in table.columns.items()
        if not table.drawn or heading in table.drawn
    }
    figures = [figure for line in series.values() for figure in line if figure is not None]
    scale = _Scale.over([value for figure in figures for value in figure.values])
    lines = [
        f'<svg {_SIZE} role="img" aria-label={quoteattr(table.picture)}>',
        f"  <title>{escape(table.picture)}</title>",
        f"  <style>{_STYLE}</style>",
        '  <rect class="ground" width="100%" height="100%"/>',
        _text(_LEFT, 20, f"{table.picture}, {figures[0].unit}"),
        *_grid(scale),
        *_labels(list(table.rows)),
    ]
    for number, (heading, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        lines.append(_text(_LEFT + 130 * number, 42, heading, colour=colour))
        lines += _line(line, scale, colour)
    return "\n".join([*lines, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Scale:
    """The powers of ten at the lower and the upper edge."""

    lowest: int
    highest: int

    @classmethod
    def over(cls, values: Sequence[float]) -> "_Scale":
        lowest, highest = (log10(value) for value in (min(values), max(values)))
        return cls(floor(lowest), max(ceil(highest), floor(lowest) + 1))

    def y(self, value: float) -> float:
        part = (log10(value) - self.lowest) / (self.highest - self.lowest)
        return round(_BOTTOM - part * (_BOTTOM - _TOP), 1)


def _x(number: int, count: int) -> float:
    return round(_LEFT + (number + 0.5) * (_RIGHT - _LEFT) / count, 1)


def _grid(scale: _Scale) -> Iterator[str]:
    for power in range(scale.lowest, scale.highest + 1):
        y = scale.y(10.0**power)
        yield f'  <path class="grid" d="M{_LEFT} {y}H{_RIGHT}"/>'
        yield _text(_LEFT - 8, y + 4, shown(10.0**power), "end")


def _labels(labels: Sequence[str]) -> Iterator[str]:
    for number, label in enumerate(labels):
        yield _text(_x(number, len(labels)), _BOTTOM + 22, label, "middle")


def _line(figures: Sequence[Figure | None], scale: _Scale, colour: str) -> Iterator[str]:
    points = [
        (_x(number, len(figures)), figure)
        for number, figure in enumerate(figures)
        if figure is not None
    ]
    path = " ".join(f"{x},{scale.y(figure.median)}" for x, figure in points)
    yield f'  <polyline class="line" stroke="{colour}" points="{path}"/>'
    for x, figure in points:
        yield f'  <circle cx="{x}" cy="{scale.y(figure.median)}" r="3.5" fill="{colour}"/>'
        low, high = scale.y(min(figure.values)), scale.y(max(figure.values))
        if low != high:
            yield f'  <path stroke="{colour}" d="M{x} {low}V{high}"/>'


def _text(x: float, y: float, words: str, place: str = "", colour: str = "") -> str:
    place = f' class="{place}"' if place else ""
    style = f' style="fill: {colour}"' if colour else ""
    return f'  <text x="{x}" y="{y}"{place}{style}>{escape(words)}</text>'
