"""Compare the columns of rows in a checkpoint with the pipeline's.

Descriptions define operators, not the types of their columns. These follow from the input, and
change with a stateless function upstream. So one file of each table of an operator, and of each
edge, is read before anything is changed. Which differences fit, ``state.evolving`` decides.
Source: PROTOCOL sections 10 and 11.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.driver.recovery.acceptance import Acceptance, AcceptanceKind, find_acceptance
from laminar_core.driver.recovery.column_names import Names, names_of, refused_renames
from laminar_core.driver.recovery.compatibility import Mismatch
from laminar_core.driver.recovery.start_texts import ColumnRename
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.base import StatefulSpec
from laminar_core.plan.evolving import rules_of_edge, rules_of_state
from laminar_core.plan.plan import Plan
from laminar_core.records.channel_entries import EdgeRef, InflightEntry
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import FileRef
from laminar_core.records.segment import SegmentRef
from laminar_core.state.column_names import columns_in, renamed_columns, unclear_columns
from laminar_core.state.evolving import Allowed, ColumnChanges, compare_columns
from laminar_core.store.checkpoint_store import CheckpointStore


@dataclass(frozen=True, slots=True)
class ReadDifferently:
    """Rows that are read with other columns than they were written with."""

    operator_id: str
    """The operator whose state they are, or that they are on their way to."""
    what: str
    changes: ColumnChanges
    before: pa.Schema
    now: pa.Schema

    def lines(self) -> Iterator[str]:
        """Yield one text per kind of change."""
        return (f"{self.what}: {line}" for line in self.changes.lines())


@dataclass(frozen=True, slots=True)
class ComparedColumns:
    """All that differs, decided."""

    found: tuple[Mismatch, ...] = ()
    lines: tuple[str, ...] = ()
    used: tuple[Acceptance, ...] = ()
    accepted: tuple[str, ...] = ()
    renames_refused: tuple[str, ...] = ()


def compared_columns(
    manifest: CheckpointManifest,
    plan: Plan,
    store: CheckpointStore,
    accepted: Collection[Acceptance] = (),
    renames: Sequence[ColumnRename] = (),
    described: Collection[ColumnRename] = (),
) -> ComparedColumns:
    """Compare the columns of state and of in-flight rows with the pipeline's.

    ``renames``: other names of columns, as a person says; ``described``: those of them that changed
    a description.

    Raises:
        CorruptCheckpointError: a file has changed since the checkpoint was verified.
        StorageUnavailable: the store did not answer.
    """
    found: list[Mismatch] = []
    lines: list[str] = []
    used: dict[Acceptance, list[str]] = {}
    names = names_of(renames)
    read: list[ReadDifferently] = []
    for one in (*_state(manifest, plan, store, names), *_in_flight(manifest, plan, store, names)):
        if isinstance(one, Mismatch):
            found.append(one)
            continue
        read.append(one)
        lines += one.lines()
        for kind, columns in _needed(one.changes):
            by = find_acceptance(accepted, kind, one.operator_id)
            if by is None:
                found.append(_not_accepted(one, kind, columns))
            else:
                used.setdefault(by, []).append(f"{one.what}: {', '.join(columns)}")
    said = tuple(f"{by}: {'; '.join(what)}" for by, what in used.items())
    told = {operator_id for mismatch in found for operator_id in mismatch.operator_ids}
    needless = _renames_of_nothing(
        manifest, plan, [one for one in renames if one.operator_id not in told], read, described
    )
    refused = (*dict.fromkeys(_unclear_renames(read, names)), *needless)
    return ComparedColumns(tuple(found), tuple(lines), tuple(used), said, refused)


def _unclear_renames(read: Sequence[ReadDifferently], names: Names) -> Iterator[str]:
    for one in read:
        for old, new in unclear_columns(one.before, one.now, names.get(one.operator_id, {})):
            yield (
                f"{one.what} has {old} and {new}, so {old} cannot become {new}: leave the rename "
                "out, or give the column a name that none has"
            )


def _renames_of_nothing(
    manifest: CheckpointManifest,
    plan: Plan,
    renames: Sequence[ColumnRename],
    read: Sequence[ReadDifferently],
    described: Collection[ColumnRename],
) -> Iterator[str]:
    stored: dict[str, set[str]] = {}
    for one in read:
        stored.setdefault(one.operator_id, set()).update(columns_in(one.before))
    applied = {
        rename
        for rename in renames
        for one in read
        if one.operator_id == rename.operator_id
        and renamed_columns(one.before, one.now, {rename.before: rename.now})
    }
    return refused_renames(manifest, plan, renames, stored, applied | set(described))


def column_mismatches(
    manifest: CheckpointManifest, plan: Plan, store: CheckpointStore
) -> Iterator[Mismatch]:
    """Yield state and in-flight rows with other columns than now, which do not fit.

    Raises:
        As ``compared_columns`` does.
    """
    yield from compared_columns(manifest, plan, store).found


def _needed(changes: ColumnChanges) -> Iterator[tuple[AcceptanceKind, tuple[str, ...]]]:
    """Yield what a person has to accept: state that begins late, or that is given up."""
    if changes.began:
        yield AcceptanceKind.STATE_SINCE, changes.began
    if changes.dropped:
        yield AcceptanceKind.STATE_DROP, changes.dropped


def _state(
    manifest: CheckpointManifest, plan: Plan, store: CheckpointStore, names: Names
) -> Iterator[Mismatch | ReadDifferently]:
    wanted = dict(_state_tables(plan))
    where = f"in checkpoint {manifest.checkpoint_id}"
    for (operator_id, table), segment in _one_of_each_table(manifest):
        if operator_id not in wanted:
            continue
        what = f"table {table} of {operator_id}" if table else f"the state of {operator_id}"
        if table not in wanted[operator_id]:
            yield Mismatch(_unknown(f"{what} {where}"), frozenset({operator_id}))
            continue
        now, rules = wanted[operator_id][table]
        before = store.parts.read_state(segment).schema
        changes = compare_columns(before, now, rules, names.get(operator_id))
        yield _judged(ReadDifferently(operator_id, f"{what} {where}", changes, before, now))


def _judged(one: ReadDifferently) -> Mismatch | ReadDifferently:
    if not one.changes.problems:
        return one
    problem = _changed(one.what, "; ".join(one.changes.problems))
    return Mismatch(problem, frozenset({one.operator_id}))


def _one_of_each_table(
    manifest: CheckpointManifest,
) -> Iterator[tuple[tuple[str, str], SegmentRef]]:
    """Yield the smallest segment of each table: all of one table have the same columns.

    An operator whose columns have changed begins a new chain of segments (ADR-0067).
    """
    found: dict[tuple[str, str], SegmentRef] = {}
    for entry in manifest.subtasks:
        for segment in entry.segments:
            key = entry.operator_id, segment.table
            found[key] = min(found.get(key, segment), segment, key=_size_bytes)
    yield from found.items()


def _size_bytes(file: FileRef | InflightEntry) -> int:
    return file.size_bytes


def _state_tables(plan: Plan) -> Iterator[tuple[str, Mapping[str, tuple[pa.Schema, Allowed]]]]:
    for vertex in plan.vertices:
        for spec, inputs in vertex.operators_with_inputs():
            if isinstance(spec, StatefulSpec):
                tables = spec.state_tables(*inputs)
                rules = rules_of_state(spec, *inputs)
                yield spec.operator_id, {n: (s, rules(n)) for n, s in tables.items()}


def _in_flight(
    manifest: CheckpointManifest, plan: Plan, store: CheckpointStore, names: Names
) -> Iterator[Mismatch | ReadDifferently]:
    edges = {(e.upstream, e.downstream, plan.input_index(e)): e for e in plan.edges}
    files = store.parts.inflight(manifest.inflight_files)
    rows: dict[EdgeRef, int] = {}
    smallest: dict[EdgeRef, InflightEntry] = {}
    for entry in manifest.inflight_data:
        rows[entry.edge] = rows.get(entry.edge, 0) + entry.row_count
        smallest[entry.edge] = min(smallest.get(entry.edge, entry), entry, key=_size_bytes)
    for entry in smallest.values():
        key = entry.edge.upstream, entry.edge.downstream, entry.edge.input_index
        edge = edges.pop(key, None)  # One that is gone is told of already.
        if edge is None:
            continue
        before = files.schema(entry)
        where = f"in flight from {edge.upstream} to {edge.downstream}"
        where = f"{rows[entry.edge]:,} rows {where} in checkpoint {manifest.checkpoint_id}"
        changes = compare_columns(
            before, edge.schema, rules_of_edge(plan, edge), names.get(edge.downstream)
        )
        yield _judged(ReadDifferently(edge.downstream, where, changes, before, edge.schema))


def _not_accepted(one: ReadDifferently, kind: AcceptanceKind, columns: tuple[str, ...]) -> Mismatch:
    names = ", ".join(columns)
    if kind is AcceptanceKind.STATE_SINCE:
        problem = f"{one.what} lacks {names}: what was before the checkpoint would not be in it"
    else:
        problem = f"{one.what} has {names}, which nothing needs any more and would be dropped"
    accept = f"accept that with --accept {kind}:{one.operator_id} and a --reason"
    return Mismatch(
        IncompatibleStateError(
            ErrorCode.OPERATORS_CHANGED, f"{problem}; run the pipeline as it was, or {accept}"
        ),
        frozenset({one.operator_id}),
    )


def _unknown(what: str) -> IncompatibleStateError:
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"{what} is unknown to the pipeline; run the pipeline as it was, or start a new job under "
        "another name",
    )


def _changed(what: str, differs: str) -> IncompatibleStateError:
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"the pipeline has other columns now than {what}: {differs}; run the pipeline as it "
        "was, or start a new job under another name",
    )
