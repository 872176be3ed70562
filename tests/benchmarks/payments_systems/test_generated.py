"""A note is enough to generate all rows of a question."""

from pathlib import Path

import pyarrow as pa

from benchmarks.payments_systems.generated import SPLITS, source_of, write_note
from benchmarks.payments_systems.question import START_US, WINDOW_US
from laminar_core.connectors.discovery import first_splits


def test_a_folder_with_files_has_no_generator(tmp_path: Path) -> None:
    assert source_of(tmp_path) is None


def test_all_rows_are_in_twenty_windows(tmp_path: Path) -> None:
    write_note(tmp_path, 4_000, keys=50)
    source = source_of(tmp_path)
    assert source is not None
    splits = first_splits(source)
    assert splits.num_rows == SPLITS
    reader, batches = source.open(splits), list[pa.RecordBatch]()
    while batch := reader.poll(1_000):
        batches.append(batch.rows)
    rows = pa.Table.from_batches(batches)
    times = rows.column("paid_at").cast(pa.int64()).to_numpy()
    assert rows.num_rows == 4_000
    assert set((times - START_US) // WINDOW_US) == set(range(20))
    assert rows.column("merchant").to_numpy().max() < 50
