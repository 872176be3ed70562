"""Parts of in-flight files as a manifest lists them: by file, the queues of an edge as columns.

An entry for each part would repeat the names of its file, operator and edge, and after an unaligned
checkpoint there can be a part for each channel: as many as the square of the workers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from pydantic import Field, model_validator

from laminar_core.records.channel_entries import EdgeRef, InflightEntry, PartBytes
from laminar_core.records.limits import COUNT_MAX, ITEMS_MAX
from laminar_core.records.paths import Direction
from laminar_core.records.ranges import Ranges, count_of, numbers_in, ranges_of
from laminar_core.records.record import Count, FileBytes, FileRef, Many, Record, Sha256

_ENTRY_FIELDS = set(InflightEntry.model_fields)


class InflightParts(Record):
    """Parts of the queues that one subtask has on one edge.

    The lists have a value for each part. They are in the order of ``peers``.
    """

    operator_id: str
    direction: Direction
    subtask_index: Count = Field(description="The owner of the queues.")
    edge: EdgeRef
    peers: Ranges = Field(description="Subtasks at the other end: senders of input, or receivers.")
    input_id: Count = Field(description="Of the first peer's channel; others follow as peers do.")
    offset: Many[FileBytes]
    size_bytes: Many[PartBytes]
    sha256: Many[Sha256]
    event_count: Many[Count]
    row_count: Many[Count]

    @model_validator(mode="after")
    def _has_a_value_for_each_part(self) -> Self:
        columns = (self.offset, self.size_bytes, self.sha256, self.event_count, self.row_count)
        if {count_of(self.peers)} != (lengths := set(map(len, columns))):
            raise ValueError(f"{count_of(self.peers)} parts have columns of {sorted(lengths)}")
        if not self.peers:
            raise ValueError("there are no parts")
        if self.input_id + self.peers[-1][1] - self.peers[0][0] > COUNT_MAX:
            raise ValueError("a channel has a number of more than 64 bits")
        return self

    @classmethod
    def of(cls, entries: Sequence[InflightEntry]) -> Self:
        """Fold the parts of queues that differ in nothing but the peer, in their order."""
        first = entries[0]
        return cls(
            operator_id=first.operator_id,
            direction=first.direction,
            subtask_index=first.subtask_index,
            edge=first.edge,
            peers=ranges_of(map(_peer, entries)),
            input_id=first.input_id,
            offset=tuple(entry.offset for entry in entries),
            size_bytes=tuple(entry.size_bytes for entry in entries),
            sha256=tuple(entry.sha256 for entry in entries),
            event_count=tuple(entry.event_count for entry in entries),
            row_count=tuple(entry.row_count for entry in entries),
        )

    def entries(self, path: str) -> Iterator[InflightEntry]:
        """Yield an entry for each part of this file."""
        distance = self.input_id - self.peers[0][0]
        columns = (self.offset, self.size_bytes, self.sha256, self.event_count, self.row_count)
        owner, is_input = self.subtask_index, self.direction == "input"
        for peer, offset, size_bytes, sha256, event_count, row_count in zip(
            numbers_in(self.peers), *columns, strict=True
        ):
            # Every value has been validated here, and there can be very many.
            yield InflightEntry.model_construct(
                _ENTRY_FIELDS,
                path=path,
                offset=offset,
                size_bytes=size_bytes,
                sha256=sha256,
                operator_id=self.operator_id,
                direction=self.direction,
                subtask_index=owner,
                input_id=peer + distance,
                edge=self.edge,
                sender=peer if is_input else owner,
                receiver=owner if is_input else peer,
                event_count=event_count,
                row_count=row_count,
            )


class InflightFile(FileRef):
    """A file with in-flight data, and its parts."""

    parts: Many[InflightParts]


def folded_files(
    files: Iterable[FileRef], entries: Iterable[InflightEntry]
) -> Iterator[InflightFile]:
    """Yield the files with their parts."""
    queues: dict[str, dict[tuple[str | int, ...], list[InflightEntry]]] = {}
    for entry in entries:
        queues.setdefault(entry.path, {}).setdefault(_alike(entry), []).append(entry)
    for file in files:
        parts = sorted(queues.pop(file.path).items()) if file.path in queues else ()
        yield InflightFile(
            path=file.path,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
            parts=tuple(InflightParts.of(sorted(alike, key=_peer)) for _, alike in parts),
        )
    if queues:
        raise ValueError(f"in-flight data is in files that are not listed: {sorted(queues)[:20]}")


def why_too_many(files: Iterable[InflightFile]) -> str | None:
    """Return why these parts would take too much memory; None: they do not."""
    count = sum(len(parts.offset) for file in files for parts in file.parts)
    if count <= ITEMS_MAX:
        return None
    return f"{count} parts in files, and {ITEMS_MAX} is the most that is read"


def unfolded_parts(
    files: Iterable[InflightFile], vertices: Iterable[str]
) -> tuple[InflightEntry, ...]:
    """Return all parts by channel, as vertices are ordered, the receiver's queue first.

    Vertices that are not listed come last.
    """
    files = tuple(files)
    others = sorted({parts.edge.downstream for file in files for parts in file.parts})
    rank = {v: n for n, v in enumerate(dict.fromkeys((*vertices, *others)))}

    def place(entry: InflightEntry) -> tuple[int | str, ...]:
        downstream, *rest = entry.queue
        return rank[downstream], *rest

    entries = (e for file in files for parts in file.parts for e in parts.entries(file.path))
    return tuple(sorted(entries, key=place))


def _peer(entry: InflightEntry) -> int:
    return entry.sender if entry.direction == "input" else entry.receiver


def _alike(entry: InflightEntry) -> tuple[str | int, ...]:
    """Return what the queues of an ``InflightParts`` have in common."""
    edge = entry.edge
    names = entry.operator_id, edge.upstream, edge.downstream, edge.input_index, edge.feedback
    distance = entry.input_id - _peer(entry)
    return *names, entry.direction, entry.subtask_index, distance
