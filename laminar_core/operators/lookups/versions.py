"""The lookup in a stream of versions: each row with what is known of its key when it comes.

Both inputs are divided by the key. The state is the newest version of each key. There is no order
between the inputs, so which version a row meets differs from run to run; the as-of join is the one
whose result does not. What holds in every run: each row leaves once and at once, with a version
that has come before it, and never with an older one than an earlier row of its key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import numpy as np
import pyarrow as pa

from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.arrow import empty_table
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import (
    JsonObject,
    PendingSnapshot,
    Snapshot,
    StateTable,
    SubtaskContext,
)
from laminar_core.operators.columns import require_columns, require_distinct
from laminar_core.operators.keyed import (
    key_group_properties,
    number,
    owned_key_groups,
    restored_key_groups,
)
from laminar_core.operators.lookups.columns import LookupColumns, known_keys, plain_columns
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.values import KeyedValues, PinnedValues, ValueState
from laminar_core.operators.windows import event_times_us, require_time_column
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.named_tables import TABLES, TableLayout, described
from laminar_core.state.rescaling import Redistribution
from laminar_core.state.window_layout import KEY_GROUP
from laminar_core.state.window_state import rows_of_key_groups

LEFT, RIGHT = 0, 1
NEWEST = "newest"
"""The table of the state, and its column with the newest version of a key; null if it is gone."""

_NEVER_US = int(np.iinfo(np.int64).max)
_ALWAYS_US = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class Life:
    """How long versions live: ``ttl_us`` after their time, seen from the time of a row.

    ``lag_us``: how far the times of rows may lag behind the watermark.
    """

    ttl_us: int
    left_time: str
    right_time: str
    lag_us: int = 0


@dataclass(frozen=True, slots=True)
class VersionLookup:
    """Give each row the newest version of its key that has come; see the module.

    ``deleted``: a column of versions; where it is true, the key has no version any more.
    """

    redistribution: ClassVar[Redistribution] = "keyed"
    operator_id: str
    columns: LookupColumns
    deleted: str | None = None
    life: Life | None = None
    """None: a version lives until the next one comes."""

    @property
    def needs_event_time(self) -> bool:
        """Whether versions expire."""
        return self.life is not None

    @property
    def input_names(self) -> Sequence[str]:
        """Return what each input is called in messages."""
        return ("left input", "right input")

    def describe(self) -> JsonObject:
        """Return the keys and the table. The time to live may become another one."""
        columns = self.columns
        fields = [pa.field(key, pa.null()) for key in columns.right_keys]
        return {
            "kind": "version-lookup",
            "on": dict(zip(columns.left_keys, columns.right_keys, strict=True)),
            "deleted": self.deleted,
            TABLES: described([ValueState(pa.null()).layout(NEWEST, fields)]),
        }

    def output_schema(self, *inputs: pa.Schema) -> pa.Schema:
        """Return the columns of the rows, then those of the versions.

        Raises:
            ConfigurationError: a column is missing (WRONG_SCHEMA), keys cannot be compared
                (UNSUPPORTED_TYPE), or two columns would have one name (INVALID_PIPELINE).
        """
        left, right = inputs
        self.columns.check(self.operator_id, left, right)
        require_distinct(
            [*self.columns.right_keys, KEY_GROUP, EXPIRES, NEWEST],
            "rename the key with map: the state has a column for each",
        )
        if self.life is not None:
            for schema, time in ((left, self.life.left_time), (right, self.life.right_time)):
                require_columns(schema, [time])
                require_time_column(schema, time)
        if self.deleted is not None:
            require_columns(right, [self.deleted])
            if not pa.types.is_boolean(right.field(self.deleted).type):
                raise ConfigurationError(
                    ErrorCode.UNSUPPORTED_TYPE,
                    f"{self.operator_id}: {self.deleted!r} says whether a key is deleted, so it is "
                    f"bool, not {right.field(self.deleted).type}",
                )
        if not len(self.columns.added(right)):
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self.operator_id} adds no column: name one of {', '.join(right.names)}",
            )
        return self.columns.joined(left, right).schema

    def state_tables(self, *inputs: pa.Schema) -> Mapping[str, pa.Schema]:
        """Return the columns of the only table."""
        return {NEWEST: self.layout(inputs[RIGHT]).schema}

    def layout(self, right: pa.Schema) -> TableLayout:
        """Return the table of the state: keys, the version as a struct, and when it expires."""
        fields = [pa.field(key, self._plain(right, key)) for key in self.columns.right_keys]
        return self.declared(right).layout(NEWEST, fields)

    def declared(self, right: pa.Schema) -> ValueState:
        """Return what is kept of each key."""
        ttl = None if self.life is None else timedelta(microseconds=self.life.ttl_us)
        return ValueState(pa.struct(list(self.columns.added(right))), ttl)

    def open(self, context: SubtaskContext, *inputs: pa.Schema) -> "VersionLooker":
        """Create the running instance."""
        return VersionLooker(self, context, inputs)

    def _plain(self, schema: pa.Schema, key: str) -> pa.DataType:
        return plain_columns(empty_table(schema), [key]).schema.field(key).type


class VersionLooker:
    """One subtask: the newest version of each key in its range of key groups."""

    def __init__(
        self, spec: VersionLookup, context: SubtaskContext, inputs: Sequence[pa.Schema]
    ) -> None:
        self._spec = spec
        self._context = context
        self._joined = spec.columns.joined(*inputs)
        self._layout = spec.layout(inputs[RIGHT])
        declared = spec.declared(inputs[RIGHT])
        self._values = KeyedValues(spec.operator_id, self._layout, declared, context.backend)
        self._added = spec.columns.added(inputs[RIGHT])

    @property
    def expired_row_count(self) -> int:
        """The number of versions dropped so far because no newer one came in time."""
        return self._values.expired_row_count

    @property
    def held_row_count(self) -> int:
        """The number of rows in memory."""
        return self._values.row_count

    def process_input(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Keep versions, or yield rows with the versions of their keys.

        Raises:
            DataError: a version has no event time, and needs one to expire (NULL_EVENT_TIME).
        """
        if not batch.num_rows:
            return iter(())
        if index == LEFT:
            result = self._looked_up(batch)
            return iter(() if result is None else (result,))
        self._learn(batch)
        return iter(())

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        """Drop the versions that no row in time can see any more; yield nothing."""
        life = self._spec.life
        if life is not None and watermark_us != WATERMARK_END_US:
            self._values.purge(watermark_us - life.lag_us)
        return ()

    def output_watermark(self, watermark_us: int) -> int:
        """Return the watermark as it is: rows leave at once, and versions are no rows."""
        return watermark_us

    # --- rows and versions ----------------------------------------------------------------------

    def _learn(self, batch: pa.RecordBatch) -> None:
        """Replace the versions of these keys by the last one of each."""
        columns, life = self._spec.columns, self._spec.life
        known = known_keys(columns.keys_of(pa.Table.from_batches([batch]), RIGHT))
        if not known.all():
            batch = batch.filter(pa.array(known))
        if not batch.num_rows:
            return
        times_us = np.full(len(batch), _ALWAYS_US, np.int64)
        if life is not None:
            times_us = event_times_us(batch, life.right_time)
        keys = Keys.of_rows(batch, columns.right_keys, times_us)
        last = np.zeros(len(keys), np.int64)
        last[keys.of_row] = np.arange(batch.num_rows)  # Of several rows the last one remains.
        self._values.put(keys, self._versions(batch.take(pa.array(last))))
        if life is None:
            self._values.purge(_ALWAYS_US)

    def _versions(self, rows: pa.RecordBatch) -> pa.Array:
        """Return each row as one value, null if it says that its key is gone."""
        plain = plain_columns(pa.Table.from_batches([rows]), self._added.names)
        gone = pa.nulls(rows.num_rows, pa.bool_())
        if self._spec.deleted is not None:
            gone = rows.column(self._spec.deleted)
        parts = [as_array(column) for column in plain.columns]
        mask = gone.fill_null(pa.scalar(value=False))
        return pa.StructArray.from_arrays(parts, fields=list(self._added), mask=mask)

    def _looked_up(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        rows, columns = pa.Table.from_batches([batch]), self._spec.columns
        keys = columns.keys_of(rows, LEFT)
        asked = Keys(keys, np.empty(0, np.int64), self._times_us(batch))
        versions = self._values.get(asked)
        added = pa.Table.from_arrays(versions.flatten(), schema=self._added)
        found = versions.is_valid().to_numpy(zero_copy_only=False)
        return columns.result(self._joined, rows, added, found)

    def _times_us(self, batch: pa.RecordBatch) -> Integers:
        """Return the times at which versions are looked at: none lives as long as a null."""
        life = self._spec.life
        if life is None:
            return np.full(len(batch), _ALWAYS_US, np.int64)
        times = batch.column(life.left_time)
        if not times.null_count:
            return event_times_us(batch, life.left_time)
        known = times.is_valid().to_numpy(zero_copy_only=False)
        found = np.full(len(batch), _NEVER_US, np.int64)
        found[known] = event_times_us(batch.filter(pa.array(known)), life.left_time)
        return found

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin the versions; their table is built in the asynchronous phase."""
        del checkpoint_id
        return self._pending(self._values.pin())

    def snapshot_changes(self, checkpoint_id: CheckpointId) -> PendingSnapshot:
        """Pin what changed since the last call; a later version replaces an earlier one."""
        del checkpoint_id
        return self._pending(self._values.take_changes())

    def merge_tables(
        self, name: str, tables: Iterable[pa.Table], expired_us: int | None
    ) -> Iterable[pa.Table]:
        """Keep the newest version of each key."""
        assert name == NEWEST, name
        yield self._layout.merge(tables, expired_us)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Restore from the snapshots of all subtasks whose key groups overlap this one's."""
        owned = owned_key_groups(self._context)
        ranges = restored_key_groups(snapshots, self._context)
        for snapshot, groups in zip(snapshots, ranges, strict=True):
            for table in snapshot.tables:
                self._values.restore(rows_of_key_groups(table.rows, owned))
            if groups.start in owned:
                dropped = number(snapshot.properties["expired_row_count"])
                self._values.expired_row_count += dropped
        self._values.restore_mark([snapshot.expired_us.get(NEWEST) for snapshot in snapshots])

    def _pending(self, pinned: PinnedValues) -> PendingSnapshot:
        properties: JsonObject = {
            **key_group_properties(self._context),
            "expired_row_count": self._values.expired_row_count,
        }
        passed_us = self._values.expired_us
        expired_us = {} if passed_us is None else {NEWEST: passed_us}
        groups = self._context.max_parallelism

        def finish_snapshot() -> Snapshot:
            tables = (StateTable(NEWEST, rows) for rows in pinned.stored_tables(groups))
            return Snapshot(tables, properties, expired_us=expired_us)

        return finish_snapshot
