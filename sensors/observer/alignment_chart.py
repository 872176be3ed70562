"""A picture of one checkpoint's alignment, small enough to be part of an event.

One bar per subtask: the time until its first barrier arrived (light), and until the last one did
(dark); beside it the rows that the barriers overtook on its channels.
"""

from base64 import b64encode
from dataclasses import dataclass
from xml.sax.saxutils import escape

from laminar_core.records.manifest import CheckpointManifest

BARS_MAX = 12
"""The slowest; more are only counted."""

_VISIBLE_MS = 1.0
_LEFT, _WIDTH, _STEP = 112, 120, 16
_LABEL_LENGTH_MAX = 18


@dataclass(frozen=True, slots=True)
class Bar:
    """One subtask; ``channels`` are those on which something was in flight."""

    label: str
    start_delay_ms: float
    alignment_ms: float
    inflight_rows: int = 0
    channels: int = 0


def bars_of(manifest: CheckpointManifest) -> list[Bar]:
    """Return the bars, the slowest subtasks first."""
    rows: dict[tuple[str, int], list[int]] = {}
    for entry in manifest.inflight_data:
        rows.setdefault((entry.edge.downstream, entry.receiver), []).append(entry.row_count)
    bars = [
        Bar(
            f"{entry.vertex_id}[{entry.subtask_index}]",
            float(entry.start_delay_ms),
            float(entry.alignment_ms),
            sum(overtaken := rows.get((entry.vertex_id, entry.subtask_index), [])),
            len(overtaken),
        )
        for entry in manifest.alignment
    ]
    return sorted(bars, key=lambda bar: (-bar.alignment_ms, -bar.start_delay_ms, bar.label))


def chart(bars: list[Bar]) -> str | None:
    """Return Markdown with the picture; None if all bars are too short to see."""
    if not any(_length_ms(bar) >= _VISIBLE_MS or bar.inflight_rows for bar in bars):
        return None
    image = b64encode(svg(bars).encode()).decode()
    return f"![alignment per subtask](data:image/svg+xml;base64,{image})"


def svg(bars: list[Bar]) -> str:
    """Return the picture as SVG. It sets its own colours and background, because themes differ."""
    shown, left_out = bars[:BARS_MAX], len(bars) - BARS_MAX
    longest_ms = max((_length_ms(bar) for bar in shown), default=0.0) or 1.0
    lines = [_bar(bar, number, _WIDTH / longest_ms) for number, bar in enumerate(shown)]
    if left_out > 0:
        lines.append(f'<text x="4" y="{_baseline(len(shown))}">and {left_out} faster ones</text>')
    height = _STEP * (len(lines) + 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="500" height="{height}" '
        'font-family="sans-serif" font-size="11" stroke-width="10">'
        f'<rect width="500" height="{height}" fill="#fff" stroke="none"/><g stroke="none">'
        f"{''.join(lines)}</g></svg>"
    )


def _bar(bar: Bar, number: int, px_per_ms: float) -> str:
    y = _baseline(number)
    delay_px, wait_px = (round(ms * px_per_ms) for ms in (bar.start_delay_ms, bar.alignment_ms))
    label = bar.label
    if len(label) > _LABEL_LENGTH_MAX:
        label = f"…{label[1 - _LABEL_LENGTH_MAX :]}"
    said = f"{bar.start_delay_ms:.0f} + {bar.alignment_ms:.0f} ms"
    if bar.inflight_rows:
        said = f"{said}, {bar.inflight_rows} rows on {bar.channels} channels"
    return (
        f'<text x="4" y="{y}">{escape(label)}</text>'
        + _line(_LEFT, y, delay_px, "#9ecae1")
        + _line(_LEFT + delay_px, y, wait_px, "#08519c")
        + f'<text x="{_LEFT + delay_px + wait_px + 5}" y="{y}">{said}</text>'
    )


def _line(x: int, y: int, width: int, colour: str) -> str:
    return f'<path d="M{x} {y - 4}h{width}" stroke="{colour}"/>' if width else ""


def _baseline(number: int) -> int:
    return _STEP * (number + 1)


def _length_ms(bar: Bar) -> float:
    return bar.start_delay_ms + bar.alignment_ms
