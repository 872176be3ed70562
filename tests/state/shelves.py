"""Backends for tests of state: RocksDB without files, with so little memory that it is used."""

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from laminar_core.state.chunks import Shelf
from laminar_core.state.rocks_chunks import RocksBackend

GATHERED_BYTES = 120
"""Some rows of these tests; more of them go to RocksDB."""


@cache
def rocks_backend() -> RocksBackend:
    """Return one database for all tests of a process, which puts every row away at once."""
    return _opened(0)


@cache
def rocks_shelf(schema: pa.Schema) -> Shelf:
    """Return a shelf that some rows wait for; tables of one schema share it."""
    return _opened(4 * GATHERED_BYTES).shelf(schema)


def stored(pinned: Any, max_parallelism: int = 8) -> pa.Table:
    """Return all tables of a snapshot together: of ``PinnedRows``, ``PinnedEntries`` and others."""
    schema = getattr(pinned.layout, "stored_schema", pinned.layout.schema)
    return pa.concat_tables([schema.empty_table(), *pinned.stored_tables(max_parallelism)])


def _opened(memory_bytes: int) -> RocksBackend:
    folder = tempfile.TemporaryDirectory()
    backend = RocksBackend(Path(folder.name) / "state", memory_bytes, in_memory_files=True)
    atexit.register(folder.cleanup)
    atexit.register(backend.close)
    return backend


def shelf_of(name: str, schema: pa.Schema) -> Shelf | None:
    """Return the shelf of the backend with this name; None: memory."""
    return rocks_shelf(schema) if name == "rocksdb" else None
