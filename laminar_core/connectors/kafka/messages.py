"""Rows become keys and values in the worker, before anything is sent or staged."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.connectors.base import CommitListener, SinkWriter
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.keys import KeyEncoder
from laminar_core.connectors.formats.messages import OutputFormat
from laminar_core.errors import DataError, ErrorCode
from laminar_core.operators.base import PendingSnapshot, Snapshot
from laminar_core.operators.weights import unweighted, weights_of
from laminar_core.protocol.types import CheckpointId

MESSAGES = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
"""Columns of messages on their way: one message a row. A null key is no key, and a null value says
that its key is gone."""


class MessageWriter:
    """The writer of one subtask: encodes rows, and hands their messages to ``target``.

    With ``deletes`` rows have a weight besides ``schema``, and one of -1 says that its key is gone.
    """

    def __init__(
        self,
        target: SinkWriter | None,
        schema: pa.Schema,
        output_format: OutputFormat,
        key: Sequence[str] | None,
        message_bytes_max: int,
        *,
        deletes: bool = False,
    ) -> None:
        self._encoder = (
            output_format.encoder(schema, message_bytes_max)  # It decides how many rows these are.
            if isinstance(output_format, ArrowIpcFormat)
            else output_format.encoder(schema)
        )
        self._keys = None if key is None else KeyEncoder(schema, key)
        self._schema = schema
        self._bytes_max = message_bytes_max
        self._target = target
        self._deletes = deletes

    @property
    def _messages(self) -> SinkWriter:
        assert self._target is not None, "made for a check"
        return self._target

    def write(self, batch: pa.RecordBatch) -> None:
        """Encode rows and keep their messages.

        Raises:
            DataError: a row has no form in the format, or makes a message that is too large.
            StorageUnavailable: the store did not take a file.
        """
        if not batch.num_rows:
            return
        rows = (unweighted(batch) if self._deletes else batch).cast(self._schema)
        values = self._encoder.encode(rows).cast(pa.large_binary())
        keys = pa.nulls(len(values), pa.large_binary())
        if self._keys is not None:
            keys = self._keys.encode(rows)
        if self._deletes:
            is_gone = pa.array(weights_of(batch) < 0)
            values = call_function("if_else", [is_gone, pa.scalar(None, values.type), values])
        self._check_sizes(keys, values)
        self._messages.write(pa.record_batch([keys, values], schema=MESSAGES))

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the messages of this interval."""
        return self._messages.snapshot(checkpoint_id)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Do nothing: the committer publishes what earlier generations pre-committed."""

    def committed(self, checkpoint_id: CheckpointId) -> None:
        """Pass on that the output up to this checkpoint is visible."""
        if isinstance(self._target, CommitListener):
            self._target.committed(checkpoint_id)

    def collected(self) -> Iterable[pa.RecordBatch]:
        """Return no rows: they are in the topic."""
        return ()

    def close(self) -> None:
        """Drop messages that are in no snapshot."""
        if self._target is not None:
            self._target.close()

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
