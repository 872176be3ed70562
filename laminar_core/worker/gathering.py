"""Small batches of a source are gathered: one unit of work takes the rows of several polls.

A batch costs each operator, each exchange and each turn of the loop the same few dozen calls,
however few rows it has. So while a reader has more rows right now, it is polled again before they
are processed. Nothing waits for rows that have yet to come, and no cut finds rows between a poll
and its processing, because both are in one unit of work.
"""

from collections.abc import Callable

import pyarrow as pa

from laminar_core.codec.dictionaries import can_be_joined, joined
from laminar_core.connectors.base import SourceBatch
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.host.clock import Clock

GATHERED_ROWS_MAX = 1_024
"""Rows with which a batch is no longer small: most of what it costs depends on its rows."""

GATHERED_BYTES_MAX = 1 << 20
"""Bytes with which a batch is no longer small, because gathering copies them.

Dictionaries count only for the first batch: the others share them as a rule.
"""

GATHERING_MS_MAX = 5.0
"""Time for which a reader is polled again: the first rows wait for the last ones."""

_INDEX_BITS = 32

Poll = Callable[[int], SourceBatch | None]
"""Returns the next rows of a reader, at most so many, or None if none are there right now."""


def gathered(poll: Poll, rows_max: int, clock: Clock) -> SourceBatch | None:
    """Return the rows of one poll, or of several if they are few, at most ``rows_max``.

    No poll follows one with letters. The rows may be of several splits, so the batch of several
    polls has no ``split_id``.

    Raises:
        ConfigurationError: the columns of the batches differ (INVALID_PIPELINE).
    """
    started_ms = clock.monotonic_ms()
    newest = poll(rows_max)
    if newest is None:
        return None
    found = [newest]
    rows_max = min(rows_max, GATHERED_ROWS_MAX)
    row_count, size_bytes = newest.rows.num_rows, newest.rows.nbytes
    types = newest.rows.schema.types
    can_be_united = all(map(can_be_joined, types)) and not any(map(_has_few_indexes, types))
    while (
        row_count < rows_max
        and can_be_united
        and size_bytes < GATHERED_BYTES_MAX
        and newest.letters is None
        and clock.monotonic_ms() - started_ms < GATHERING_MS_MAX
    ):
        more = poll(rows_max - row_count)
        if more is None:
            break
        found.append(more)
        newest = more
        row_count += more.rows.num_rows
        size_bytes += sum(map(_size_bytes, more.rows.columns))
    if len(found) == 1:
        return newest
    return SourceBatch(_one([batch.rows for batch in found]), letters=newest.letters)


def _has_few_indexes(data_type: pa.DataType) -> bool:
    """Whether dictionaries together may have more values than an index can name."""
    if pa.types.is_dictionary(data_type):
        return data_type.index_type.bit_width < _INDEX_BITS
    return any(_has_few_indexes(data_type.field(at).type) for at in range(data_type.num_fields))


def _size_bytes(column: pa.Array) -> int:
    return column.indices.nbytes if isinstance(column, pa.DictionaryArray) else column.nbytes


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        schema = batches[0].schema
        if all(batch.schema == schema for batch in batches):  # Null is in a dictionary.
            columns = [joined(parts) for parts in zip(*batches, strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"a source returned batches whose columns differ: {error}",
        ) from error
