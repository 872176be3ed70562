"""Writes the figures of docs/benchmarks.md from the stored results; a test compares them.

``laminar bench NAME --save benchmarks/results`` stores results, and ``python -m benchmarks.page``
(``make bench-page``) writes what stands between ``<!-- figures: NAME -->`` and
``<!-- end of figures -->``. NAME is a table of ``benchmarks/page_tables.py``, or a benchmark that
has no table there: all its figures are then listed by their names. ``<!-- summary -->`` to
``<!-- end of summary -->`` has what is wanted (``benchmarks/summary.py``). Other text is not
touched.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.page_tables import TABLES
from benchmarks.pictures import picture
from benchmarks.record import Record, read_records
from benchmarks.summary import markdown as summary_table
from benchmarks.tables import Table, caption, markdown, plain_table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
IMAGES = PAGE.parent / "images"
_PART = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->\n)", re.DOTALL)
_SUMMARY = re.compile(r"(<!-- summary -->\n).*?(<!-- end of summary -->\n)", re.DOTALL)

Records = Mapping[str, Record]


def names_on(page: str) -> list[str]:
    """Return the names of all parts of the page."""
    return [name for _, name, _ in _PART.findall(page)]


def table_of(name: str, records: Records) -> tuple[Table, Record]:
    """Return the table of a part of the page, and the results that it shows.

    Raises:
        KeyError: there are no results for it.
    """
    table = TABLES.get(name)
    record = records[table.benchmark if table else name]
    return table or plain_table(record), record


def updated(page: str, records: Records) -> str:
    """Return the page with all figures as they are stored."""

    def part(match: re.Match[str]) -> str:
        table, record = table_of(match[2], records)
        blocks = [markdown(table, record)]
        if table.picture:
            blocks.append(f"![{table.picture}](images/{_image(match[2])})\n")
        return "\n".join([match[1], *blocks, caption(record), match[3]])

    def summary(match: re.Match[str]) -> str:
        return "\n".join([match[1], summary_table(records), match[2]])

    return _SUMMARY.sub(summary, _PART.sub(part, page))


def pictures(page: str, records: Records) -> dict[Path, str]:
    """Return the pictures of the page, by file."""
    found = {name: table_of(name, records) for name in names_on(page)}
    return {
        IMAGES / _image(name): picture(table, record)
        for name, (table, record) in found.items()
        if table.picture
    }


def _image(name: str) -> str:
    return f"figures-{name}.svg"


def main() -> None:
    """Write the page and its pictures."""
    records = read_records()
    page = PAGE.read_text()
    PAGE.write_text(updated(page, records))
    for path, text in pictures(page, records).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
