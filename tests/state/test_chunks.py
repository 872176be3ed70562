"""State in memory: chunks are the tables themselves."""

import pyarrow as pa

from laminar_core.state.chunks import HeldTable, MemoryBackend

TABLE = pa.table({"n": pa.array(range(1000), pa.int64())})


def test_memory_holds_the_table_itself() -> None:
    backend = MemoryBackend()
    shelf = backend.shelf(TABLE.schema)
    chunk = shelf.put(0, 0, TABLE)
    backend.close()
    assert chunk.read() is TABLE
    assert (chunk.row_count, chunk.size_bytes) == (1000, 8000)
    assert shelf.in_memory


def test_a_slice_counts_as_what_it_shows() -> None:
    assert HeldTable(TABLE.slice(10, 5)).size_bytes == 40
