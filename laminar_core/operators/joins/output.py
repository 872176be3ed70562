"""The pieces in which a join emits its result."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

OUTPUT_ROWS_MAX = 65_536


def in_pieces(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of ``OUTPUT_ROWS_MAX``, the last one with fewer.

    ``tables`` are read as they are needed, so a result without end needs only the memory of a
    piece.
    """
    waiting: list[pa.Table] = []
    waiting_rows = 0
    for table in tables:
        waiting.append(table)
        waiting_rows += table.num_rows
        while waiting_rows >= OUTPUT_ROWS_MAX:
            rows = pa.concat_tables(waiting)
            yield one_batch(rows.slice(0, OUTPUT_ROWS_MAX))
            waiting = [rows.slice(OUTPUT_ROWS_MAX)]
            waiting_rows -= OUTPUT_ROWS_MAX
    if waiting_rows:
        yield one_batch(pa.concat_tables(waiting))


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return the rows, at least one, in one batch."""
    (batch,) = rows.combine_chunks().to_batches()
    return batch
