"""Write a savepoint from tables of rows: the first state of a new job, or a repaired one.

    writer = SavepointWriter(pipeline.plan(), job="payments")
    writer.state("totals", rows)                    # columns of the state, without ``key_group``
    writer.write("backups/first", Actor("ann"), now_ms)

Without a base, every source begins at its beginning, unless its positions are given. With a
savepoint as base, what is given replaces the rows that were there, and all else stays as it is.

Nothing here knows the kinds of operators. An empty instance of each says what belongs to its state
beside the rows, and another instance is restored from the result before anything is written.
"""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from laminar_core._version import __version__
from laminar_core.aggregates.accumulators import with_versions
from laminar_core.codec.arrow import decode_table, empty_table, encode_segment
from laminar_core.codec.key_groups import key_group_order, key_group_range, key_groups_of
from laminar_core.connectors.base import Found
from laminar_core.driver.discovery import after, checked, entry_of
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.objectstore.opening import open_object_store
from laminar_core.operators.aggregation import WindowAggregate
from laminar_core.operators.base import (
    AnySpec,
    Snapshot,
    StatefulSpec,
    StateTable,
    Subtask,
    SubtaskContext,
    makes_event_time,
    output_watermark_of,
)
from laminar_core.operators.deduplicate import Deduplicate
from laminar_core.operators.late_rows import WithLateRows
from laminar_core.operators.running import RunningAggregate
from laminar_core.operators.windows import window_text
from laminar_core.plan.plan import Plan, SourceNode, Vertex
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_fields import DiscoveryEntry, SubtaskEntry
from laminar_core.records.savepoint import SavepointOrigin, SavepointRecord, manifest_as_json
from laminar_core.records.segment import SegmentRef, by_table
from laminar_core.state.evolving import NOTHING_BUT_WIDER, compare_columns, evolved
from laminar_core.state.expiry import EXPIRES, newest_expiry_us
from laminar_core.state.named_tables import TABLES, layout_of
from laminar_core.state.window_layout import KEY_GROUP, WINDOW_START, window_starts_of
from laminar_core.store.savepoints import (
    canonical,
    publish_savepoint,
    read_savepoint,
    require_empty,
)
from laminar_core.store.state_reading import SavepointFiles, read_operator
from laminar_core.worker.outputs import edge_entry

_FIRST = Generation(1)
_NUMBER = CheckpointId(1)
_COUNTS = ("rows_read", "rows_total")
_MAY_BE_UNKNOWN = ("rows_total", "newest_us")
"""Columns of splits, see ``state.splits``."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The parts of the savepoint, in memory."""

    entries: dict[tuple[str, int], SubtaskEntry] = field(
        default_factory=dict[tuple[str, int], SubtaskEntry]
    )
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    discovery: dict[str, DiscoveryEntry] = field(default_factory=dict[str, DiscoveryEntry])
    times_us: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    """By vertex: the event time that it passes on; None: unknown."""
    alignment: list[AlignmentEntry] = field(default_factory=list[AlignmentEntry])


class SavepointWriter:
    """Collects rows per operator and table, and writes them as a savepoint of a job."""

    def __init__(self, plan: Plan, job: str, base: str | None = None) -> None:
        """Begin a savepoint; ``base``: the URI of one whose contents stay where none are given.

        Raises:
            ConfigurationError: there is no savepoint at ``base``, or it is of another pipeline.
            CorruptCheckpointError: it is damaged.
        """
        self._plan = plan
        self._job = job
        self._base = None if base is None else read_savepoint(open_object_store(base))
        self._cut = None if self._base is None else self._base.record.cut()
        self._specs: dict[str, tuple[AnySpec, tuple[pa.Schema, ...]]] = {
            spec.operator_id: (spec, inputs)
            for vertex in plan.vertices
            for spec, inputs in vertex.operators_with_inputs()
        }
        self._rows: dict[tuple[str, str], pa.Table] = {}
        self._positions: dict[str, pa.Table] = {}
        self._time_us: int | None = None
        self._require_same_pipeline()

    # --- what goes into it ----------------------------------------------------------------------

    def columns(self, operator_id: str, table: str = "") -> pa.Schema:
        """Return the columns that rows of a table of state need: all but ``key_group``.

        Raises:
            ConfigurationError: the pipeline has no such operator or table (INVALID_OPTION).
        """
        spec, inputs = self._stateful(operator_id)
        tables = spec.state_tables(*inputs)
        if table not in tables:
            known = ", ".join(name or "(without a name)" for name in tables)
            raise _invalid(f"{operator_id} has no table {table!r} of state; it has: {known}")
        return pa.schema([f for f in tables[table] if f.name != KEY_GROUP])

    def rows(self, operator_id: str, table: str = "") -> pa.Table:
        """Return the rows that the base has of one table of state, one per key.

        Raises:
            ConfigurationError: there is no such table (INVALID_OPTION).
            CorruptCheckpointError: the base is damaged.
        """
        wanted = self.columns(operator_id, table)
        if self._base is None or self._cut is None:
            return empty_table(wanted)
        found = read_operator(SavepointFiles(self._base), self._cut, operator_id, table)
        return empty_table(wanted) if found is None else found.select(wanted.names)

    def state(self, operator_id: str, rows: pa.Table, table: str = "") -> None:
        """Give all rows of one table of an operator's state; ``key_group`` is computed.

        Columns may have narrower types than the state.

        Raises:
            ConfigurationError: there is no such table, its rows were given before, a key is there
                twice, or no window begins at a ``window_start`` (INVALID_OPTION), or its columns
                are others (WRONG_SCHEMA).
        """
        wanted = self.columns(operator_id, table)
        if (operator_id, table) in self._rows:
            name = f"{operator_id}.{table}" if table else operator_id
            raise _invalid(f"the rows of {name} are given twice: give all of them in one table")
        given = rows.drop_columns([KEY_GROUP]) if KEY_GROUP in rows.schema.names else rows
        if problems := compare_columns(given.schema, wanted, NOTHING_BUT_WIDER).problems:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"the rows are no state of {operator_id}: {'; '.join(problems)}",
            )
        keys, is_once = self._keys(operator_id, table)
        fitting = evolved(given, wanted, {})
        if is_once and (count := _distinct(fitting, keys)) != fitting.num_rows:
            raise _invalid(
                f"{fitting.num_rows:,} rows of {operator_id} have {count:,} keys: give one row for "
                f"each {', '.join(keys)}"
            )
        self._require_windows(operator_id, fitting)
        self._rows[operator_id, table] = self._stored(operator_id, table, fitting, keys)

    def beginning(self, source: str) -> pa.Table:
        """Return the splits of a source at their beginning, for ``positions``.

        Raises:
            ConfigurationError: there is no such source (INVALID_OPTION), or it cannot be read.
        """
        return self._first_step(self._source(source)).splits

    def positions(self, source: str, splits: pa.Table) -> None:
        """Give the positions at which a source goes on: all its splits, with other offsets.

        Raises:
            ConfigurationError: there is no such source, its positions were given before, or a value
                is missing or negative (INVALID_OPTION), or the splits are not those that it has
                (WRONG_SCHEMA).
        """
        if source in self._positions:
            raise _invalid(f"the positions of {source} are given twice: give all its splits once")
        known = self._known_splits(source)
        same = splits.schema.names == known.schema.names and (
            Counter(splits.column("split_id").to_pylist())
            == Counter(known.column("split_id").to_pylist())
        )
        if not same:
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"these are not the {known.num_rows} splits of {source}: take those that it has, "
                "and change the offsets",
            )
        self._positions[source] = _positions(source, splits, known)

    def event_time(self, time_us: int) -> None:
        """Say how far the state has come in event time: a watermark, in microseconds since 1970.

        Windows that ended before are not emitted again, and what comes behind it is late. Without
        it, a job knows of no event time before its first rows.

        Raises:
            ConfigurationError: there is a base, which has event time of its own (INVALID_OPTION).
        """
        if self._cut is not None:
            raise _invalid("a base has its own event time: give one only without a base")
        self._time_us = time_us

    # --- writing --------------------------------------------------------------------------------

    def write(self, target: str, actor: Actor, now_ms: int) -> SavepointRecord:
        """Write the savepoint into an empty place; read back what was written.

        Raises:
            ConfigurationError: the target is not empty, or a source cannot be read.
            IncompatibleStateError: an operator does not take its rows.
            CorruptCheckpointError: the base is damaged.
            StorageUnavailable: a store does not answer.
        """
        objects = open_object_store(target)
        require_empty(objects)
        written = self._made()
        manifest = self._manifest(written, now_ms)
        record = SavepointRecord(
            origin=self._origin(objects.uri),
            canonical=False,
            actor=actor.name,
            reason=actor.reason,
            created_at_ms=now_ms,
            code_version=f"laminar {__version__}",
            manifest=manifest_as_json(manifest),
        )
        objects.create()
        publish_savepoint(objects, record, manifest, written.files)
        return record

    def _made(self) -> _Written:
        """Make all parts, each restored once to see that it can be."""
        written = _Written()
        for vertex in self._plan.vertices:
            time_us = self._time_of(written, vertex)
            if vertex.source is not None:
                self._add_source(written, vertex.source)
            for spec in vertex.operators:
                time_us = self._add_operator(written, spec, time_us)
            written.times_us[vertex.vertex_id] = time_us
            if vertex.sink is not None:
                for index in range(self._workers):
                    entry = self._before(vertex.sink.operator_id, index)
                    self._put(written, entry, self._kept(entry, ()))
        return written

    def _add_source(self, written: _Written, node: SourceNode) -> None:
        source = node.operator_id
        given = self._positions.get(source)
        if self._cut is None:
            found = self._first_step(node)
            given = found.splits if given is None else given
            written.discovery[source] = entry_of(after(found))
        for index in range(self._workers):
            entry = self._before(source, index)
            kept = self._kept(entry, ("",) if given is not None else ())
            rows = [] if given is None or index else [StateTable("", given)]
            self._put(written, entry, kept, rows)

    def _time_of(self, written: _Written, vertex: Vertex) -> int | None:
        """Return the event time that comes to the vertex, and write it down."""
        edges = [e for e in self._plan.inputs_of(vertex.vertex_id) if not e.feedback]
        times_us = [written.times_us.get(edge.upstream) for edge in edges] or [self._time_us]
        known = [time_us for time_us in times_us if time_us is not None]
        if self._cut is not None or len(known) < len(times_us):
            return None
        time_us = min(known)
        if edges:
            entry = AlignmentEntry(
                vertex_id=vertex.vertex_id,
                subtask_index=0,
                mode="aligned",
                start_delay_ms=0.0,
                alignment_ms=0.0,
                watermark_us=time_us,
            )
            written.alignment.append(entry)
        return time_us

    def _add_operator(self, written: _Written, spec: AnySpec, time_us: int | None) -> int | None:
        """Add all subtasks; return the event time that the operator passes on."""
        operator_id, passed_us = spec.operator_id, time_us
        mine = {name: rows for (o, name), rows in self._rows.items() if o == operator_id}
        for index in range(self._workers):
            context = self._context(operator_id, index)
            entry = self._before(operator_id, index, self._empty(spec, context, time_us))
            owned = key_group_range(index, self._plan.max_parallelism, self._workers)
            rows = [StateTable(name, _within(table, owned)) for name, table in mine.items()]
            kept = self._kept(entry, tuple(mine))
            if mine:
                there = [StateTable(s.table, decode_table(data)) for s, data in kept]
                whole = Snapshot(
                    (*there, *rows), dict(entry.properties), expired_us=entry.expired_us
                )
                restored = spec.open(context, *self._specs[operator_id][1])
                _restore(restored, whole, operator_id)
                if time_us is not None and not makes_event_time(spec):
                    passed_us = output_watermark_of(restored, time_us)
            self._put(written, entry, kept, rows)
        return passed_us

    def _empty(self, spec: AnySpec, context: SubtaskContext, time_us: int | None) -> Snapshot:
        """Return what an instance without rows keeps that has come to this event time."""
        opened = spec.open(context, *self._specs[spec.operator_id][1])
        if time_us is not None and not makes_event_time(spec):
            emitted = list(opened.on_watermark(time_us))
            assert not emitted, f"{spec.operator_id} has no rows"
        return opened.snapshot(_NUMBER)()

    def _put(
        self,
        written: _Written,
        entry: SubtaskEntry,
        kept: list[tuple[SegmentRef, bytes]],
        rows: list[StateTable] | None = None,
    ) -> None:
        """Add an entry with the segments of before that stay, and new ones."""
        place = f"operators/{entry.operator_id}/state_{entry.subtask_index}"
        made = [_file(t.name, canonical(t.rows)) for t in rows or () if t.rows.num_rows]
        placed: list[SegmentRef] = []
        for number, (segment, data) in enumerate([*kept, *made]):
            path = f"{place}_{number}.seg" if number else f"{place}.seg"
            placed.append(segment.model_copy(update={"path": path}))
            written.files[path] = data
        done = entry.model_copy(update={"segments": tuple(placed)})
        written.entries[entry.operator_id, entry.subtask_index] = done

    def _kept(
        self, entry: SubtaskEntry, replaced: tuple[str, ...]
    ) -> list[tuple[SegmentRef, bytes]]:
        """Return the segments of the base's entry that are not replaced, with their bytes."""
        if self._base is None:
            return []
        return [
            (segment, self._base.read(segment))
            for name, segments in by_table(entry.segments).items()
            if name not in replaced
            for segment in segments
        ]

    def _before(self, operator_id: str, index: int, empty: Snapshot | None = None) -> SubtaskEntry:
        """Return the entry of the base, or one of an operator that has begun."""
        if self._cut is not None:
            return next(
                e
                for e in self._cut.subtasks
                if (e.operator_id, e.subtask_index) == (operator_id, index)
            )
        snapshot = empty or Snapshot()
        return SubtaskEntry(
            operator_id=operator_id,
            subtask_index=index,
            properties=dict(snapshot.properties),
            expired_us=dict(snapshot.expired_us),
            sync_ms=0.0,
            async_ms=0.0,
        )

    def _manifest(self, written: _Written, now_ms: int) -> CheckpointManifest:
        entries = tuple(written.entries.values())
        if self._cut is not None:
            assert self._base is not None, "it has the cut"
            inflight = self._cut.inflight_files
            written.files.update((file.path, self._base.read(file)) for file in inflight)
            changed = self._cut.model_copy(update={"subtasks": entries, "audited": None})
            return CheckpointManifest.model_validate_json(changed.model_dump_json())
        described = self._plan.descriptions()
        return CheckpointManifest(
            job=self._job,
            generation=_FIRST,
            checkpoint_id=_NUMBER,
            parent_checkpoint_id=None,
            kind=CheckpointKind.SAVEPOINT,
            mode="aligned",
            triggered_at_ms=now_ms,
            completed_at_ms=now_ms,
            duration_ms=0.0,
            max_parallelism=self._plan.max_parallelism,
            parallelism=dict.fromkeys(described, self._workers),
            fingerprint={o: fingerprint_of(d) for o, d in described.items()},
            operators_description=described,
            edges=tuple(edge_entry(self._plan, edge) for edge in self._plan.edges),
            code_version=f"laminar {__version__}",
            subtasks=entries,
            alignment=tuple(written.alignment),
            discovery=written.discovery,
        )

    def _origin(self, uri: str) -> SavepointOrigin:
        """A repaired savepoint stands where its base stood; any other is of no job that ran."""
        if self._base is not None:
            return self._base.record.origin
        return SavepointOrigin(
            job=self._job, store=uri, generation=_FIRST, checkpoint_id=_NUMBER, claim_sha256=None
        )

    # --- the pipeline ---------------------------------------------------------------------------

    @property
    def _workers(self) -> int:
        return 1 if self._cut is None else self._cut.workers

    def _context(self, operator_id: str, index: int) -> SubtaskContext:
        groups = self._plan.max_parallelism
        return SubtaskContext(operator_id, index, self._workers, groups, _FIRST)

    def _require_same_pipeline(self) -> None:
        if self._cut is None or self._base is None:
            return
        now = {o: fingerprint_of(d) for o, d in self._plan.descriptions().items()}
        there = {o: self._cut.fingerprint[o] for o in self._cut.parallelism}
        groups = self._cut.max_parallelism == self._plan.max_parallelism
        if now != there or not groups or self._cut.carried:
            differ = sorted(o for o in {*now, *there} if now.get(o) != there.get(o))
            raise _invalid(
                f"{self._base.objects.uri} is of another pipeline ({', '.join(differ)}): repair it "
                "with the pipeline that it was made with"
            )

    def _stateful(self, operator_id: str) -> tuple[StatefulSpec, tuple[pa.Schema, ...]]:
        spec, inputs = self._specs.get(operator_id, (None, ()))
        if not isinstance(spec, StatefulSpec):
            known = [o for o, (s, _) in self._specs.items() if isinstance(s, StatefulSpec)]
            raise _invalid(
                f"the pipeline has no operator {operator_id} with rows of state; it has: "
                f"{', '.join(known)}"
            )
        return spec, inputs

    def _keys(self, operator_id: str, table: str) -> tuple[tuple[str, ...], bool]:
        """Return the columns that are the key, and whether each key has one row."""
        spec, inputs = self._stateful(operator_id)
        match spec:
            case RunningAggregate(keys=keys):
                return keys, True
            case WindowAggregate(keys=keys) | WithLateRows(merge=WindowAggregate(keys=keys)):
                return keys, False
            case Deduplicate():
                return ("producer",), False
            case _:
                described = self._specs[operator_id][0].describe()
                layout = layout_of(table, spec.state_tables(*inputs)[table], described)
        if TABLES not in described or not layout.keys:
            raise _invalid(f"{operator_id} does not describe the keys of its state")
        return layout.keys, layout.merging == "newest"

    def _require_windows(self, operator_id: str, rows: pa.Table) -> None:
        """Refuse rows of panes that do not exist."""
        spec, _ = self._stateful(operator_id)
        merging = spec.merge if isinstance(spec, WithLateRows) else spec
        if not isinstance(merging, WindowAggregate):
            return
        window, given = merging.window, rows.column(WINDOW_START)
        if given.null_count:
            raise _invalid(f"a row of {operator_id} has no {WINDOW_START}: give each row one")
        apart_us = (window_starts_of(rows) - window.offset_us) % window.slide_us
        if apart_us.any():
            found = given[int(np.flatnonzero(apart_us)[0])].as_py().isoformat()
            raise _invalid(
                f"{operator_id} has no {WINDOW_START} {found}: give starts of {window_text(window)}"
            )

    def _stored(
        self, operator_id: str, table: str, rows: pa.Table, keys: tuple[str, ...]
    ) -> pa.Table:
        """Return the rows with their key groups, as a checkpoint has them."""
        spec, inputs = self._stateful(operator_id)
        wanted = spec.state_tables(*inputs)[table]
        divided = [
            key for key in keys if key != EXPIRES
        ]  # It identifies a timer, and does not divide.
        groups = [
            key_groups_of(batch, divided, self._plan.max_parallelism) for batch in rows.to_batches()
        ]
        column = pa.array(np.concatenate([np.empty(0, np.int32), *groups]).astype(np.int32))
        stored = rows.append_column(KEY_GROUP, column).select(wanted.names).cast(wanted)
        merging = spec.merge if isinstance(spec, WithLateRows) else spec
        if isinstance(merging, RunningAggregate | WindowAggregate):
            stored = with_versions(stored, merging.layout(inputs[0]).accumulators)
        return stored.take(pa.array(key_group_order(stored.column(KEY_GROUP).to_numpy())))

    # --- sources --------------------------------------------------------------------------------

    def _source(self, source: str) -> SourceNode:
        nodes = {node.operator_id: node for node in self._plan.sources()}
        if source not in nodes:
            raise _invalid(f"the pipeline has no source {source}; it has: {', '.join(nodes)}")
        return nodes[source]

    def _first_step(self, node: SourceNode) -> Found:
        found = node.source.discovery().step({})
        return checked(node.operator_id, type(node.source).__name__, found, next_split_id=0)

    def _known_splits(self, source: str) -> pa.Table:
        node = self._source(source)
        if self._cut is None or self._base is None:
            return self._first_step(node).splits
        parts = [
            decode_table(self._base.read(segment))
            for entry in self._cut.subtasks
            if entry.operator_id == source
            for segment in entry.segments
        ]
        return pa.concat_tables(parts) if parts else self._first_step(node).splits.slice(0, 0)


def _within(table: pa.Table, owned: range) -> pa.Table:
    groups = table.column(KEY_GROUP).to_numpy()
    return table.filter(pa.array((groups >= owned.start) & (groups < owned.stop)))


def _distinct(rows: pa.Table, keys: tuple[str, ...]) -> int:
    return rows.group_by(list(keys)).aggregate([]).num_rows


def _restore(restored: Subtask, whole: Snapshot, operator_id: str) -> None:
    """See whether an operator takes its rows, whose values somebody else has computed."""
    try:
        restored.restore([whole])
    except LaminarError:
        raise
    except Exception as error:
        nulls = {c for t in whole.tables for c in t.rows.schema.names if t.rows[c].null_count}
        raise _invalid(
            f"{operator_id} cannot be restored from these rows ({error}): check their values; "
            f"columns with nulls are {', '.join(sorted(nulls)) or 'none'}"
        ) from error


def _positions(source: str, splits: pa.Table, known: pa.Table) -> pa.Table:
    """Return the splits with the types of the known ones; each has a position."""
    try:
        given = splits.cast(known.schema)
    except pa.ArrowException as error:
        raise _invalid(f"these are no positions of {source}: {error}") from error
    for name in given.schema.names:
        column = given.column(name)
        if name not in _MAY_BE_UNKNOWN and column.null_count > known.column(name).null_count:
            raise _invalid(f"a split of {source} has no {name}: give one for each split")
        if name in _COUNTS and min(column.drop_null().to_pylist(), default=0) < 0:
            raise _invalid(f"a split of {source} has a negative {name}: give 0 or more")
    return given


def _file(name: str, table: pa.Table) -> tuple[SegmentRef, bytes]:
    """Return a segment that has no place yet, and its bytes."""
    encoded = encode_segment(table)
    segment = SegmentRef(
        path="operators/unplaced",
        size_bytes=len(encoded.data),
        sha256=encoded.sha256,
        row_count=table.num_rows,
        newest_window_us=newest_expiry_us(name, table),
        table=name,
    )
    return segment, bytes(encoded.data)


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)
