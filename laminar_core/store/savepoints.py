"""Savepoints in any store: made from a completed checkpoint, verified, listed, deleted.

Files are written first and read back; ``savepoint.json`` is created last and names them all with
their digests. So an interrupted copy is a directory without a savepoint, and a second copy into it
is refused.
"""

# pyarrow ships no types, which the strict mode of this package would not accept.
# pyright: standard

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import pyarrow as pa
from pyarrow.compute import SortOptions, call_function

from laminar_core._version import __version__
from laminar_core.codec.arrow import encode_segment, with_one_dictionary
from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import (
    CheckpointDeclined,
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.objectstore.opening import (
    ObjectStore,
    address,
    folders_between,
    is_bucket,
    names_at,
    open_object_store,
    place_below,
)
from laminar_core.protocol.types import Generation
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.manifest_fields import SubtaskEntry
from laminar_core.records.paths import is_job_name
from laminar_core.records.record import FileRef
from laminar_core.records.savepoint import (
    MARKER,
    RECORD,
    SavepointDeletion,
    SavepointOrigin,
    SavepointRecord,
    is_own,
    manifest_as_json,
    outside_checkpoint,
    parse_savepoint,
)
from laminar_core.records.segment import SegmentRef, by_table, total_bytes
from laminar_core.state.window_state import KEY_GROUP
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.jobs import is_job, makes_a_job
from laminar_core.store.records import bytes_in, create_and_read_back, create_or_confirm
from laminar_core.store.verification import (
    VerifyReport,
    read_file,
    read_verified,
    verify_part,
)

R = TypeVar("R", bound=FileRef)

_NO_PLACES = ("/", "./", "../")
"""Folders that others can make in a bucket, and that no URI names."""
CANONICAL_BYTES_MAX = 256 << 20
"""State of one subtask that is sorted as a whole; of more, each file is sorted by itself."""


def never() -> bool:
    """Return False: the export is not cancelled."""
    return False


def write_savepoint(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    target: ObjectStore,
    actor: Actor,
    now_ms: int,
    is_cancelled: Callable[[], bool] = never,
) -> SavepointRecord:
    """Copy a completed checkpoint, whole and self-contained, to an empty place.

    Raises:
        ConfigurationError: the target is not empty.
        CorruptCheckpointError: the checkpoint is damaged, or the target does not keep what it gets.
        CheckpointDeclined: ``is_cancelled`` said so.
        StorageUnavailable: one of the stores does not answer.
    """
    require_empty(target)
    target.create()
    copier = _Copier(store, target, is_cancelled)
    subtasks = tuple(copier.state(entry) for entry in manifest.subtasks)
    files = tuple(copier.as_it_is(f, outside_checkpoint(f.path)) for f in manifest.inflight_files)
    parts = tuple(
        e.model_copy(update={"path": outside_checkpoint(e.path)}) for e in manifest.inflight_data
    )
    claim = bytes_in(store.objects, store.paths.claim(Generation(manifest.generation)))
    moved = manifest.model_copy(
        update={
            "subtasks": subtasks,
            "inflight_files": files,
            "inflight_data": parts,
            "audited": None,
        }
    )
    record = SavepointRecord(
        origin=SavepointOrigin(
            job=manifest.job,
            store=store.objects.uri,
            generation=manifest.generation,
            checkpoint_id=manifest.checkpoint_id,
            claim_sha256=None if claim is None else sha256_hex(claim),
        ),
        canonical=copier.canonical,
        actor=actor.name,
        reason=actor.reason,
        created_at_ms=now_ms,
        code_version=f"laminar {__version__}",
        manifest=manifest_as_json(moved),
    )
    _complete(target, record, moved)
    return record


def publish_savepoint(
    target: ObjectStore,
    record: SavepointRecord,
    manifest: CheckpointManifest,
    files: Mapping[str, bytes],
) -> None:
    """Write the files of a savepoint to an empty place, read them back, and then the record.

    Raises:
        ConfigurationError: something is there already.
        CorruptCheckpointError: the target does not keep what it gets.
        StorageUnavailable: it does not answer.
    """
    for path, data in files.items():
        _write_new(target, path, data)
    _complete(target, record, manifest)


def _complete(target: ObjectStore, record: SavepointRecord, manifest: CheckpointManifest) -> None:
    """Make what was written a savepoint."""
    files = {file.path: file.size_bytes for file in manifest.files()}
    _require_all(target, files)
    data = record.to_bytes()
    if not create_or_confirm(target, RECORD, data):
        raise ConfigurationError(
            ErrorCode.TARGET_NOT_EMPTY,
            f"another process made a savepoint in {target.uri} meanwhile: choose another place",
        )
    _require_all(target, {**files, RECORD: len(data)})


def _write_new(target: ObjectStore, path: str, data: bytes | memoryview) -> None:
    try:
        create_and_read_back(target, path, data)
    except CorruptCheckpointError as error:
        if error.code is not ErrorCode.OBJECT_EXISTS:
            raise
        raise ConfigurationError(ErrorCode.TARGET_NOT_EMPTY, str(error)) from error


def _require_all(target: ObjectStore, written: Mapping[str, int]) -> None:
    """See to it that all of the copy is in one place, and not some of it in what was there before.

    Raises:
        StorageUnavailable: the target went away while it was written to.
    """
    found = target.sizes("")
    if lost := sorted(path for path, size in written.items() if found.get(path) != size):
        raise StorageUnavailable(
            ErrorCode.STORE_REPLACED,
            f"{target.uri} has lost {lost[0]}, which was just written: it was unmounted or "
            "replaced; make the savepoint again, in an empty place",
        )


def require_empty(target: ObjectStore) -> None:
    """Refuse a place where something is already.

    Raises:
        ConfigurationError: it is not empty.
    """
    if found := names_at(target):
        raise ConfigurationError(
            ErrorCode.TARGET_NOT_EMPTY,
            f"{target.uri} is not empty ({found[0]}): give a savepoint a place of its own",
        )


def require_free(store: CheckpointStore, target: ObjectStore) -> None:
    """Refuse a place where a savepoint would be among the files of a job, or where something is.

    Raises:
        ConfigurationError: it is in the folder of a job of this store, it would look like one, or
            it is not empty.
        StorageUnavailable: one of the stores does not answer.
    """
    name, *below = folders_between(store.objects.uri, target.uri) or ("",)
    if is_job_name(name):
        makes_one = bool(below) and makes_a_job(name, f"{below[0]}/")
        if makes_one or name == store.job or is_job(store.objects, name):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                f"{target.uri} is in the folder of job {name}, whose files Laminar deletes: give a "
                "savepoint a place outside of it",
            )
    require_empty(target)


class _Copier:
    """Copies the files of one checkpoint, each read back after it was written."""

    def __init__(
        self, store: CheckpointStore, target: ObjectStore, is_cancelled: Callable[[], bool]
    ) -> None:
        self.canonical = True
        self._store = store
        self._target = target
        self._is_cancelled = is_cancelled

    def state(self, entry: SubtaskEntry) -> SubtaskEntry:
        """The rows of one subtask, each table as one sorted file if they are all its own."""
        segments = entry.segments
        name = f"operators/{entry.operator_id}/state_{entry.subtask_index}"
        parts = (_part(name, number) for number in count())
        if not all(is_own(segment.path) for segment in segments):
            self.canonical = False  # Only the operator knows how such rows are merged.
            copied = [self.as_it_is(segment, next(parts)) for segment in segments]
        elif total_bytes(segments) <= CANONICAL_BYTES_MAX:
            copied = [self._sorted(entry, of, next(parts)) for of in by_table(segments).values()]
        else:
            self.canonical = self.canonical and len(segments) == len(by_table(segments))
            copied = [self._sorted(entry, (segment,), next(parts)) for segment in segments]
        written_bytes = total_bytes(copied)
        return entry.model_copy(update={"segments": tuple(copied), "written_bytes": written_bytes})

    def as_it_is(self, ref: R, path: str) -> R:
        """One file, byte by byte."""
        data = read_verified(self._store.objects, self._store.paths, ref)
        self._write(path, data)
        return ref.model_copy(update={"path": path})

    def _sorted(
        self, entry: SubtaskEntry, segments: tuple[SegmentRef, ...], path: str
    ) -> SegmentRef:
        parts = [self._store.parts.read_state(segment) for segment in segments]
        table = with_one_dictionary(pa.concat_tables(parts))
        is_keyed = "key_groups" in entry.properties or segments[0].key_groups is not None
        segment = encode_segment(canonical(table) if is_keyed else table.combine_chunks())
        self._write(path, segment.data)
        file = FileRef(path=path, size_bytes=len(segment.data), sha256=segment.sha256)
        newest = [s.newest_window_us for s in segments]
        return SegmentRef(
            **file.model_dump(),
            table=segments[0].table,
            row_count=table.num_rows,
            newest_window_us=None if None in newest else max(n for n in newest if n is not None),
        )

    def _write(self, path: str, data: bytes | memoryview) -> None:
        if self._is_cancelled():
            raise CheckpointDeclined(
                ErrorCode.CANCELLED, "the job ended before the savepoint was copied completely"
            )
        _write_new(self._target, path, data)


def _part(name: str, number: int) -> str:
    return f"{name}_{number}.seg" if number else f"{name}.seg"


def canonical(table: pa.Table) -> pa.Table:
    """Return the rows as one chunk in an order that depends only on the rows.

    Keyed rows are sorted by key group, then by every sortable column. Other rows keep their order,
    because it has a meaning: splits are read in it.
    """
    if KEY_GROUP not in table.schema.names:
        return table.combine_chunks()
    others = [f.name for f in table.schema if f.name != KEY_GROUP and _has_order(f.type)]
    keys = [(name, "ascending") for name in (KEY_GROUP, *others)]
    return table.take(_order(table, keys)).combine_chunks()


def _order(table: pa.Table, keys: list[tuple[str, str]]) -> pa.Array:
    return call_function("sort_indices", [table], SortOptions(sort_keys=keys))


def _has_order(kind: pa.DataType) -> bool:
    try:
        _order(pa.table({"a": pa.nulls(0, kind)}), [("a", "ascending")])
    except pa.ArrowException:
        return False
    return True


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundSavepoint:
    """A savepoint and where it is; ``sha256`` is of its record: the same one, or another."""

    objects: ObjectStore
    record: SavepointRecord
    sha256: str

    def read(self, ref: FileRef) -> bytes:
        """Read one of its files.

        Raises:
            CorruptCheckpointError: missing, or not what was written.
        """
        return read_file(self.objects, ref.path, ref)

    def verify(self) -> VerifyReport:
        """Read and verify every byte."""
        manifest = self.record.cut()
        return VerifyReport(
            manifest.checkpoint_id,
            tuple(verify_part(self.objects, f.path, f, manifest) for f in manifest.files()),
        )


def read_savepoint(objects: ObjectStore) -> FoundSavepoint:
    """Read what is known of the savepoint in ``objects``; its files are not looked at.

    Raises:
        ConfigurationError: there is none, a copy was broken off, or it is being deleted.
        CorruptCheckpointError: its record is damaged.
    """
    if objects.size(MARKER) is not None:
        raise _no_savepoint(f"{objects.uri} was claimed by a job that deletes it")
    data = objects.get(RECORD)
    if data is None:
        if names_at(objects):
            raise _no_savepoint(
                f"{objects.uri} has no {RECORD}: it is not a savepoint, or its copy was interrupted"
            )
        raise _no_savepoint(f"there is nothing at {objects.uri}: give the place of a savepoint")
    try:
        record = parse_savepoint(data)
    except CorruptCheckpointError as error:
        raise CorruptCheckpointError(error.code, f"{address(objects, RECORD)}: {error}") from error
    return FoundSavepoint(objects, record, sha256_hex(data))


def list_savepoints(uri: str) -> Iterator[tuple[str, FoundSavepoint | str]]:
    """Yield the savepoints at ``uri`` and in the folders directly below, with their URIs.

    A damaged or incomplete savepoint yields its problem instead, and so does a folder that may not
    be looked at.
    """
    folders = [name for name in names_at(open_object_store(uri)) if name.endswith("/")]
    below = [place_below(uri, name) for name in folders if name not in _NO_PLACES]
    for place in [uri, *below]:
        if (found := _found_or_problem(place)) is not None:
            yield place, found


def _found_or_problem(place: str) -> FoundSavepoint | str | None:
    try:
        objects = open_object_store(place)
        names = objects.children("")
        return read_savepoint(objects) if RECORD in names or MARKER in names else None
    except (ConfigurationError, CorruptCheckpointError) as error:
        return str(error)
    except StorageUnavailable as error:
        if is_bucket(place) and error.code is not ErrorCode.STORE_ACCESS_DENIED:
            raise  # It is the same server for all of them.
        return str(error)


def delete_savepoint(objects: ObjectStore, deletion: SavepointDeletion) -> None:
    """Delete the savepoint with that digest; repeating it after a crash is harmless.

    The marker is created first, so no reader takes the savepoint for whole or damaged from then on.
    The record stays until all files are deleted, because it names them. A different savepoint at
    the same place is left alone.

    Raises:
        StorageUnavailable: some of it may be gone; call again.
    """
    data = bytes_in(objects, RECORD)
    if data is not None and sha256_hex(data) != deletion.savepoint_sha256:
        return
    if data is not None:
        create_or_confirm(objects, MARKER, deletion.to_bytes())
        for file in parse_savepoint(data).cut().files():
            objects.delete(file.path)
        objects.delete(RECORD)
    objects.delete(MARKER)


def _no_savepoint(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.NO_SUCH_SAVEPOINT, problem)
