"""State of a checkpoint for reading: every row once, verified, without the pipeline."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pyarrow as pa

from laminar_core.codec.arrow import decode_table
from laminar_core.records.manifest import CheckpointManifest, FileRef
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.segment import SegmentRef
from laminar_core.state.reading import finished_window_us, merged_rows
from laminar_core.store.savepoints import FoundSavepoint

_READERS = 4


class StateFiles(Protocol):
    """Access to the files of a manifest: of a job's checkpoints, or of a savepoint."""

    def read_state(self, ref: FileRef) -> pa.Table:
        """Read one file, verified before it is decoded."""
        ...


class SavepointFiles:
    """Access to the files of a savepoint."""

    def __init__(self, savepoint: FoundSavepoint) -> None:
        self._savepoint = savepoint

    def read_state(self, ref: FileRef) -> pa.Table:
        """Read one file, verified before it is decoded.

        Raises:
            CorruptCheckpointError: missing, or not what was written.
        """
        return decode_table(self._savepoint.read(ref))


def table_names(operator_id: str, *manifests: CheckpointManifest) -> tuple[str, ...]:
    """Return the names of the operator's tables of state that have rows in one of the manifests.

    Most operators have one table, without a name.
    """
    entries = (e for m in manifests for e in m.subtasks if e.operator_id == operator_id)
    return tuple(sorted({segment.table for entry in entries for segment in entry.segments}))


def read_rows(
    files: StateFiles, manifest: CheckpointManifest, entry: SubtaskEntry, table: str = ""
) -> pa.Table | None:
    """Return the rows of one table of an operator subtask, one per key; None if it wrote none.

    Files whose rows have all expired are not read.

    Raises:
        CorruptCheckpointError: a file is missing, or not what was written.
        DataError: a sum leaves its type.
        IncompatibleStateError: a newer Laminar wrote it, with state of another meaning.
    """
    description = manifest.operators_description[entry.operator_id]
    expired_us = entry.expired_us.get(table)
    if expired_us is None and not table:  # As before format 5.
        expired_us = finished_window_us(description, entry.properties)
    segments = [segment for segment in entry.segments if segment.table == table]
    wanted = [segment for segment in segments if _is_open(segment, expired_us)]
    wanted = wanted or segments[-1:]  # Somebody has to say what the columns are.
    if not wanted:
        return None
    if len(wanted) == 1:
        tables = [files.read_state(wanted[0])]
    else:
        with ThreadPoolExecutor(_READERS) as pool:
            tables = list(pool.map(files.read_state, wanted))
    return merged_rows(tables, description, expired_us, table)


def read_operator(
    files: StateFiles, manifest: CheckpointManifest, operator_id: str, table: str = ""
) -> pa.Table | None:
    """Return the rows of all subtasks of an operator, one per key; None if it wrote none.

    ``table``: one of ``table_names``, of an operator that has several.
    """
    entries = [entry for entry in manifest.subtasks if entry.operator_id == operator_id]
    found = [read_rows(files, manifest, entry, table) for entry in entries]
    tables = [table for table in found if table is not None]
    return pa.concat_tables(tables) if tables else None


def _is_open(segment: SegmentRef, expired_us: int | None) -> bool:
    newest_us = segment.newest_window_us
    return expired_us is None or newest_us is None or newest_us > expired_us
