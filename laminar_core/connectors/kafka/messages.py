"""Rows become keys and values in the worker, so that the driver only hands bytes to the client."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.connectors.formats.keys import KeyEncoder
from laminar_core.connectors.formats.messages import OutputFormat
from laminar_core.connectors.staged_rows import StagedRows
from laminar_core.errors import DataError, ErrorCode
from laminar_core.operators.base import PendingSnapshot, Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId

MESSAGES = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
"""Columns of a staged file: one message a row. A null key is no key."""


class MessageWriter:
    """The writer of one subtask."""

    def __init__(
        self,
        context: SubtaskContext | None,
        schema: pa.Schema,
        output_format: OutputFormat,
        key: Sequence[str] | None,
        message_bytes_max: int,
    ) -> None:
        self._encoder = output_format.encoder(schema)
        self._keys = None if key is None else KeyEncoder(schema, key)
        self._schema = schema
        self._bytes_max = message_bytes_max
        self._rows = None if context is None else StagedRows(context, MESSAGES)

    @property
    def _staged(self) -> StagedRows:
        assert self._rows is not None, "made for a check"
        return self._rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode rows and keep their messages.

        Raises:
            DataError: a row has no form in the format, or makes a message that is too large.
            StorageUnavailable: the store did not take a file.
        """
        if not batch.num_rows:
            return
        rows = batch.cast(self._schema)
        values = self._encoder.encode(rows).cast(pa.large_binary())
        keys = pa.nulls(len(values), pa.large_binary())
        if self._keys is not None:
            keys = self._keys.encode(rows)
        self._check_sizes(keys, values)
        self._staged.write(pa.record_batch([keys, values], schema=MESSAGES))

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the messages of this interval."""
        return self._staged.snapshot(checkpoint_id)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer publishes what earlier generations staged."""

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return no rows: they are in the topic."""
        return ()

    def close(self) -> None:
        """Drop messages that are in no snapshot."""
        if self._rows is not None:
            self._rows.close()

    def _check_sizes(self, keys: pa.Array, values: pa.Array) -> None:
        """Refuse here what the broker would refuse: after the checkpoint it is too late."""
        lengths = [call_function("binary_length", [a]).fill_null(0) for a in (keys, values)]
        largest = call_function("max", [call_function("add", lengths)]).as_py()
        if largest > self._bytes_max:
            raise DataError(
                ErrorCode.NOT_ENCODABLE,
                f"a row makes a message of {largest:,} bytes, and at most {self._bytes_max:,} are "
                "allowed: make the row smaller with map, or raise message_bytes_max here and "
                "max.message.bytes of the topic",
            )
