"""Writes the table of docs/metrics.md from the catalogue; a test compares them."""

import re
from pathlib import Path

from laminar_core.metrics.catalogue import METRICS, Metric

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
MARK = "<!-- table: metrics -->\n\n"
HEAD = "| in Prometheus | by OTLP | type | labels | meaning |\n|---|---|---|---|---|\n"


def row(metric: Metric) -> str:
    """Return one line of the table."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    names = f"| `{metric.prometheus}` | `{metric.name}` | {metric.kind} "
    return f"{names}| {labels} | {metric.meaning} |\n"


def updated(page: str) -> str:
    """Return the page with the table as it should be."""
    table = HEAD + "".join(map(row, METRICS))
    return re.sub(f"{re.escape(MARK)}(\\|.*\n)*", lambda _: MARK + table, page)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
