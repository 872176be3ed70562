"""A picture of one checkpoint's alignment, small enough for the page of the asset.

One line per channel: where it comes from, and how long the subtask waited for the barrier on it
after its first barrier (dark), or how many rows the barriers overtook there (light). A subtask with
one channel, or whose channels are not known, is one line.

Dagster's UI draws Markdown of less than 1,000 characters in the page. Longer Markdown is hidden
behind "Show Markdown".
"""

from base64 import b64encode
from collections import Counter
from dataclasses import dataclass
from xml.sax.saxutils import escape

from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.records.manifest import CheckpointManifest

MARKDOWN_MAX = 999
"""The longest Markdown that Dagster's UI draws in the page."""

_VISIBLE_MS = 1.0
_BARS_MAX = 12
"""With the shortest names no more fit."""
_WIDTH, _GAP, _STEP = 120, 6, 15
_NAME_LENGTH_MAX = 14


@dataclass(frozen=True, slots=True)
class Bar:
    """One channel. ``wait_ms``: until its barrier was reached; None: the barriers overtook rows."""

    label: str
    wait_ms: float | None
    inflight_rows: int = 0

    @property
    def text(self) -> str:
        """The label and the figures."""
        rows = f"{self.inflight_rows} rows overtaken" if self.inflight_rows else "overtaken"
        said = rows if self.wait_ms is None else f"{self.wait_ms:.0f} ms"
        if self.wait_ms is not None and self.inflight_rows:
            said = f"{said}, {rows}"
        return f"{self.label} {said}"


def bars_of(manifest: CheckpointManifest) -> list[Bar]:
    """Return the bars: overtaken channels first, those with the most rows, then the slowest."""
    rows: Counter[tuple[str, int, str, int]] = Counter()
    for entry in manifest.inflight_data:
        edge = entry.edge
        rows[edge.downstream, entry.receiver, edge.upstream, entry.sender] += entry.row_count
    bars = [bar for entry in manifest.alignment for bar in _bars(entry, rows)]
    return sorted(bars, key=lambda bar: (-bar.inflight_rows, -(bar.wait_ms or 0), bar.label))


def chart(bars: list[Bar]) -> str | None:
    """Return Markdown with the picture of as many bars as fit; None if there is nothing to see."""
    if not any((bar.wait_ms or 0) >= _VISIBLE_MS or bar.inflight_rows for bar in bars):
        return None
    for count in range(min(len(bars), _BARS_MAX), 0, -1):
        image = b64encode(svg(bars, count).encode()).decode()
        found = f"![alignment per channel](data:image/svg+xml;base64,{image})"
        if len(found) <= MARKDOWN_MAX:
            return found
    raise AssertionError("one bar fits, because names are shortened")


def svg(bars: list[Bar], count: int) -> str:
    """Return the first ``count`` bars as SVG. It sets its own background, because themes differ."""
    shown, left_out = bars[:count], len(bars) - count
    longest_ms = max((bar.wait_ms or 0 for bar in shown), default=0) or 1.0
    dark, light = "", ""
    for number, bar in enumerate(shown):
        if bar.wait_ms is None:
            light += _line(number, _WIDTH)
        else:
            dark += _line(number, round(bar.wait_ms * _WIDTH / longest_ms))
    lines = [bar.text for bar in shown]
    if left_out:
        lines.append(f"and {left_out} more")
    texts = (f'<text y="{_baseline(n)}">{escape(line)}</text>' for n, line in enumerate(lines))
    height = _STEP * len(lines) + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="480" height="{height}" font-size="11" '
        'font-family="sans-serif" stroke-width="9"><path d="M0 0h480v999H0z" fill="#fff"/>'
        f'<g transform="translate({_WIDTH + _GAP})">{"".join(texts)}</g>'
        f"{_path(dark, '#08519c')}{_path(light, '#9ecae1')}</svg>"
    )


def _bars(entry: AlignmentEntry, rows: Counter[tuple[str, int, str, int]]) -> list[Bar]:
    receiver = (entry.vertex_id, entry.subtask_index)
    to = _short(*receiver)
    if not entry.slowest_channels:
        overtaken = sum(count for channel, count in rows.items() if channel[:2] == receiver)
        return [Bar(to, float(entry.alignment_ms), overtaken)]
    return [
        Bar(
            f"{_short(each.upstream, each.sender)}→{to}",
            None if each.barrier_ms is None else float(each.barrier_ms),
            rows[*receiver, each.upstream, each.sender],
        )
        for each in entry.slowest_channels
    ]


def _short(vertex_id: str, subtask_index: int) -> str:
    if len(vertex_id) > _NAME_LENGTH_MAX:
        vertex_id = f"…{vertex_id[1 - _NAME_LENGTH_MAX :]}"
    return f"{vertex_id}[{subtask_index}]"


def _path(lines: str, colour: str) -> str:
    return f'<path d="{lines}" stroke="{colour}"/>' if lines else ""


def _line(number: int, width: int) -> str:
    return f"M0 {_baseline(number) - 4}h{width}" if width else ""


def _baseline(number: int) -> int:
    return _STEP * number + 12
