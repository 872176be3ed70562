"""Anchors of the audit log: other objects of the job that name one of its records.

Claims, bases, heartbeats and ends of generations, and the manifests of checkpoints, each name the
newest record of the log when they were written. So an attacker who removes the end of the log has
to remove all of them as well; without them the job cannot be restored, or writes new ones.

An object that should name a record and cannot be read is reported, because the record it names is
unknown. A manifest is not reported if a newer one names a record: that one stands for everything
before it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from laminar_core.errors import CorruptCheckpointError
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.audit import Anchor, Finding
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import GenerationBase, GenerationClaim, GenerationEnd, Heartbeat
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.paths import JobPaths, generation_in, number_in
from laminar_core.records.retention import is_tombstone
from laminar_core.store.bases import read_base
from laminar_core.store.records import bytes_in, read_record

_READERS = 8


@dataclass(frozen=True, slots=True)
class Anchors:
    """Everything that names a record, and what is wrong with the objects that should."""

    found: tuple[Anchor, ...] = ()
    problems: tuple[Finding, ...] = ()

    @property
    def newest(self) -> AuditRef | None:
        """The newest record that any anchor names; None if there is none."""
        refs = (anchor.ref for anchor in self.found)
        return max(refs, key=lambda ref: ref.number, default=None)


@dataclass(frozen=True, slots=True)
class _Holder:
    """An object that may name a record, with the record or the problem of reading it."""

    name: str
    ref: AuditRef | None = None
    problem: str | None = None


def read_anchors(objects: ObjectStore, paths: JobPaths) -> Anchors:
    """Read every object of the job that may name a record of its audit log.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    reader = _Reader(objects, paths)
    with ThreadPoolExecutor(_READERS) as pool:
        read = [*pool.map(reader.manifest, _numbers(objects, paths.checkpoints, number_in))]
        writers = {generation for generation, _ in read if generation is not None}
        recorded = _numbers(objects, paths.generations, generation_in)
        generations = sorted(writers.union(recorded))  # Whoever wrote a checkpoint had a claim.
        of_generations = [*chain.from_iterable(pool.map(reader.generation, generations))]
    manifests = [holder for _, holder in read]
    return Anchors(
        found=tuple(
            Anchor(holder.name, holder.ref)
            for holder in (*of_generations, *manifests)
            if holder.ref is not None
        ),
        problems=(
            *_problems(of_generations),
            *(finding for finding in _problems(manifests) if finding.number is None),
        ),
    )


def _problems(holders: Sequence[_Holder]) -> Iterator[Finding]:
    """Each with the number of the next record that is named: it could name no later one."""
    following: int | None = None
    found: list[Finding] = []
    for holder in reversed(holders):
        if holder.ref is not None:
            following = holder.ref.number
        if holder.problem is not None:
            found.append(Finding("anchor", following, holder.problem))
    yield from reversed(found)


def _numbers(objects: ObjectStore, folder: str, number: Callable[[str], int | None]) -> list[int]:
    return sorted({n for n in map(number, objects.children(folder)) if n})


class _Reader:
    """Reads the holders of one job; what cannot be read is noted, not raised."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self._objects = objects
        self._paths = paths

    def manifest(self, number: int) -> tuple[Generation | None, _Holder]:
        """The writer of a checkpoint, None if it is unknown, and what the manifest names."""
        name = f"the manifest of checkpoint {number}"
        data = bytes_in(self._objects, self._paths.manifest(CheckpointId(number)))
        if data is None or is_tombstone(data):
            return None, _Holder(name)
        try:
            manifest = parse_manifest(data)
        except CorruptCheckpointError as error:
            return None, _unreadable(name, error)
        return Generation(manifest.generation), _Holder(name, manifest.audited)

    def generation(self, number: int) -> list[_Holder]:
        """Return the anchors among the records of a generation, oldest first."""
        generation, paths = Generation(number), self._paths
        of = f"of generation {number}"

        def read(key: str, record_type: type[Heartbeat | GenerationEnd]) -> AuditRef | None:
            return _audited(read_record(self._objects, key, record_type))

        return [
            self._claim(generation),
            _look(f"the base {of}", lambda: _audited(read_base(self._objects, paths, generation))),
            _look(f"the heartbeat {of}", lambda: read(paths.heartbeat(generation), Heartbeat)),
            _look(f"the end {of}", lambda: read(paths.end(generation), GenerationEnd)),
        ]

    def _claim(self, generation: Generation) -> _Holder:
        name = f"the claim of generation {generation}"
        try:
            claim = read_record(self._objects, self._paths.claim(generation), GenerationClaim)
        except CorruptCheckpointError as error:
            return _unreadable(name, error)
        if claim is None:
            problem = f"{name} is gone, and which record it named is unknown"
            return _Holder(name, problem=problem)
        return _Holder(name, claim.announced)


def _audited(record: GenerationBase | Heartbeat | GenerationEnd | None) -> AuditRef | None:
    return None if record is None else record.audited


def _look(name: str, read: Callable[[], AuditRef | None]) -> _Holder:
    try:
        return _Holder(name, read())
    except CorruptCheckpointError as error:
        return _unreadable(name, error)


def _unreadable(name: str, error: CorruptCheckpointError) -> _Holder:
    problem = f"{name} cannot be read, and which record it names is unknown: {error}"
    return _Holder(name, problem=problem)
