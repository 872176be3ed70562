"""Payments that are generated instead of read.

A question's folder has a note in place of files. A system that finds it generates the rows itself,
with Laminar's generator, which is a function of row numbers. So all systems have the same rows, and
the price of the generator is part of all figures.
"""

import json
from pathlib import Path

from benchmarks.payments_systems.question import START_US
from laminar_core.connectors.datagen import DatagenSource, EventTime, UniformInt, ZipfKey

NOTE = "generated.json"
SPLITS, BATCH_ROWS = 8, 131_072
_WINDOWS = 20
_WINDOW_US = 300_000_000


def write_note(folder: Path, rows: int, keys: int) -> None:
    """Write the note of so many payments of merchants with numbers, over 20 windows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NOTE).write_text(json.dumps([rows, keys]))


def source_of(folder: Path) -> DatagenSource | None:
    """Return the generator of a question's rows; None: they are in files."""
    note = folder / NOTE
    if not note.exists():
        return None
    rows, keys = json.loads(note.read_text())
    fields = {
        "merchant": ZipfKey(keys),
        "amount_cents": UniformInt(100, 100_000),
        "paid_at": EventTime(START_US, step_us=_WINDOWS * _WINDOW_US // rows),
    }
    return DatagenSource(fields, rows, splits=SPLITS, batch_rows=BATCH_ROWS)
