"""Records of a job as Arrow tables: completed checkpoints, attempts at them, the audit log.

There is one row per record, so tables are small; fields without a column of their own are JSON
text.
"""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.audit import AuditRecord
from laminar_core.records.manifest import CheckpointManifest, HistoryRecord
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.tables import Part

Row = dict[str, object]

RECORDS_AT_ONCE = 64
"""Records in one part of a table; each costs one request."""

_TIME = pa.timestamp("ms", tz="UTC")
_SUBTASK = pa.struct(
    [
        ("operator_id", pa.string()),
        ("subtask_index", pa.int32()),
        ("row_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("written_bytes", pa.int64()),
        ("sync_ms", pa.float64()),
        ("async_ms", pa.float64()),
        ("properties", pa.string()),
    ]
)
_MANIFEST = pa.schema(
    [
        ("checkpoint_id", pa.int64()),
        ("parent_checkpoint_id", pa.int64()),
        ("generation", pa.int64()),
        ("kind", pa.string()),
        ("mode", pa.string()),
        ("triggered_at", _TIME),
        ("completed_at", _TIME),
        ("duration_ms", pa.float64()),
        ("size_bytes", pa.int64()),
        ("inflight_bytes", pa.int64()),
        ("inflight_rows", pa.int64()),
        ("max_parallelism", pa.int32()),
        ("code_version", pa.string()),
        ("operators", pa.string()),
        ("subtasks", pa.list_(_SUBTASK)),
    ]
)
_HISTORY = pa.schema(
    [
        ("checkpoint_id", pa.int64()),
        ("generation", pa.int64()),
        ("kind", pa.string()),
        ("mode", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("triggered_at", _TIME),
        ("ended_at", _TIME),
        ("duration_ms", pa.float64()),
        ("size_bytes", pa.int64()),
        ("inflight_bytes", pa.int64()),
        ("alignment_ms_max", pa.float64()),
    ]
)
_AUDIT = pa.schema(
    [
        ("number", pa.int64()),
        ("at", _TIME),
        ("action", pa.string()),
        ("actor", pa.string()),
        ("actor_kind", pa.string()),
        ("reason", pa.string()),
        ("outcome", pa.string()),
        ("intent", pa.int64()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("run_id", pa.string()),
        ("code_version", pa.string()),
        ("host", pa.string()),
        ("pid", pa.int64()),
        ("user", pa.string()),
        ("is_signed", pa.bool_()),
        ("previous_sha256", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Records by ascending number, some of them a part."""

    columns: pa.Schema
    list_numbers: Callable[[], Sequence[int]]
    row_of: Callable[[int], Row | None]
    """None: it is not there any more."""

    def schema(self) -> pa.Schema:
        """Return the columns, without reading any record."""
        return self.columns

    def parts(self) -> list[Part]:
        """Return the parts: the numbers of up to ``RECORDS_AT_ONCE`` records each."""
        numbers = self.list_numbers()
        starts = range(0, len(numbers), RECORDS_AT_ONCE)
        return [tuple(numbers[start : start + RECORDS_AT_ONCE]) for start in starts]

    def read(self, part: Part) -> Iterator[pa.Table]:
        """Yield the rows of a part, one per record.

        Raises:
            CorruptCheckpointError: one of them is not what was written.
        """
        rows = [row for number in part if (row := self.row_of(number)) is not None]
        yield pa.Table.from_pylist(rows, schema=self.columns)


def manifest_table(
    store: CheckpointStore, checkpoint_id: CheckpointId | None = None
) -> RecordTable:
    """Return a table of completed checkpoints, or of one; those being deleted are left out."""

    def row_of(number: int) -> Row | None:
        manifest = read(CheckpointId(number))
        return None if manifest is None else _manifest_row(manifest)

    if checkpoint_id is None:
        read, chosen = store.manifests.find, store.manifests.ids
    else:
        read, chosen = store.manifests.read, lambda: [checkpoint_id]
    return RecordTable(_MANIFEST, chosen, row_of)


def history_table(store: CheckpointStore) -> RecordTable:
    """Return a table of the outcomes of all attempts at checkpoints."""

    def row_of(number: int) -> Row | None:
        record = store.attempts.read_outcome(CheckpointId(number))
        return None if record is None else _history_row(record)

    return RecordTable(_HISTORY, store.attempts.ended_ids, row_of)


def audit_table(store: CheckpointStore) -> RecordTable:
    """Return the audit log as it is stored; ``AuditLog.verify`` checks it for changes."""
    log = AuditLog(store.objects, store.paths, lambda: 0)

    def row_of(number: int) -> Row | None:
        record = log.read(number)
        return None if record is None else _audit_row(record)

    return RecordTable(_AUDIT, log.numbers, row_of)


def _manifest_row(manifest: CheckpointManifest) -> Row:
    row = {name: getattr(manifest, name, None) for name in _MANIFEST.names}
    return row | {
        "kind": manifest.kind.value,
        "triggered_at": manifest.triggered_at_ms,
        "completed_at": manifest.completed_at_ms,
        "operators": _json(manifest.operators_description),
        "subtasks": [
            {field.name: getattr(entry, field.name) for field in _SUBTASK}
            | {"properties": _json(entry.properties)}
            for entry in manifest.subtasks
        ],
    }


def _history_row(record: HistoryRecord) -> Row:
    row = {name: getattr(record, name, None) for name in _HISTORY.names}
    return row | {
        "kind": record.kind.value,
        "triggered_at": record.triggered_at_ms,
        "ended_at": record.ended_at_ms,
    }


def _audit_row(record: AuditRecord) -> Row:
    row = {name: getattr(record, name, None) for name in _AUDIT.names}
    return row | {
        "at": record.at_ms,
        "before": None if record.before is None else _json(record.before),
        "after": None if record.after is None else _json(record.after),
        "actor_kind": record.actor_kind.value,
        "host": record.writer.host_id.partition("/")[0],
        "pid": record.writer.pid,
        "user": record.writer.user,
        "is_signed": record.signature is not None,
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
