"""State of a checkpoint for reading: every row once, verified, without the pipeline."""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pyarrow as pa

from laminar_core.codec.arrow import decode_table
from laminar_core.records.manifest import CheckpointManifest, FileRef, SubtaskEntry
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


def read_rows(
    files: StateFiles, manifest: CheckpointManifest, entry: SubtaskEntry
) -> pa.Table | None:
    """Return the rows of one operator subtask, one per key; None if it wrote none.

    Files whose windows have all fired are not read.

    Raises:
        CorruptCheckpointError: a file is missing, or not what was written.
        DataError: a sum leaves its type.
        IncompatibleStateError: a newer Laminar wrote it, with state of another meaning.
    """
    description = manifest.operators_description[entry.operator_id]
    finished_us = finished_window_us(description, entry.properties)
    wanted = [segment for segment in entry.segments if _is_open(segment, finished_us)]
    wanted = wanted or list(entry.segments[-1:])  # Somebody has to say what the columns are.
    if not wanted:
        return None
    if len(wanted) == 1:
        tables = [files.read_state(wanted[0])]
    else:
        with ThreadPoolExecutor(_READERS) as pool:
            tables = list(pool.map(files.read_state, wanted))
    return merged_rows(tables, description, entry.properties)


def read_operator(
    files: StateFiles, manifest: CheckpointManifest, operator_id: str
) -> pa.Table | None:
    """Return the rows of all subtasks of an operator, one per key; None if it wrote none."""
    entries = [entry for entry in manifest.subtasks if entry.operator_id == operator_id]
    found = [read_rows(files, manifest, entry) for entry in entries]
    tables = [table for table in found if table is not None]
    return pa.concat_tables(tables) if tables else None


def _is_open(segment: SegmentRef, finished_us: int | None) -> bool:
    newest_us = segment.newest_window_us
    return finished_us is None or newest_us is None or newest_us > finished_us
