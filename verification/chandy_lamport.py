"""The general snapshot algorithm of 1985, for any topology: the reference for the barrier protocol.

Barriers as Laminar sends them are a special case: sources are the initiators, the graph has no
cycles except marked ones, and a subtask may wait. Here any process may start a snapshot, several
may start the same one, channels may form cycles, and no process waits. The explorer compares the
two.

The five rules, as document 004 numbers them:

1. Channels are FIFO; a marker keeps its place among the messages.
2. An initiator records its own state, then sends a marker on every outgoing channel.
3. A process that gets a marker and has not recorded yet does the same, and records what arrives on
   its *other* incoming channels from then on. The marker's own channel is empty (ERRATA 3.1, 4.2).
4. A process that has recorded already closes the marker's channel: what was recorded on it is its
   state.
5. The snapshot is complete when every process has got a marker on every incoming channel.

What an initiator sends after its markers is outside the cut (ERRATA 4.3). The document lacks ids
beyond the first, aborts and processes without input (ERRATA 4.16): any number of snapshots may
overlap here, one that is given up is forgotten for good, and a process without input is complete as
soon as it has recorded.

``step`` says what to do and never sees the state; effects are carried out in order with nothing in
between. Invariants, checked by ``tests/verification/test_chandy_lamport_model.py``:

I1  Recorded states and channel states together are a reachable global state.
I2  Every process records once per snapshot, and every channel is closed once.
I3  A snapshot completes if every process can be reached from an initiator and none aborts it.

Source: Chandy & Lamport 1985, "Distributed Snapshots", ACM TOCS 3(1), sections 3 and 4.
"""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import NewType

from laminar_core.errors import ErrorCode, ProtocolError
from laminar_core.protocol.types import ChannelId

SnapshotId = NewType("SnapshotId", int)
"""Names one snapshot everywhere; initiators that mean the same one use the same id."""

OVER_MAX = 64
"""Ended snapshots remembered one by one; older ids than these are stale."""


# --- events and effects -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SnapshotInitiated:
    """This process starts the snapshot, or starts it too."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class MarkerReceived:
    """A marker was taken from the channel; everything before it has been received."""

    channel: ChannelId
    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message was taken from the channel; it is opaque here."""

    channel: ChannelId
    message: Hashable


@dataclass(frozen=True, slots=True)
class SnapshotAborted:
    """The snapshot is aborted; the aborting process notifies all others."""

    snapshot_id: SnapshotId


Event = SnapshotInitiated | MarkerReceived | MessageReceived | SnapshotAborted


@dataclass(frozen=True, slots=True)
class RecordState:
    """Record the process's own state, now."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Send a marker on every outgoing channel, before any further message."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class ChannelRecorded:
    """The channel is closed; these messages, in order, are its state."""

    snapshot_id: SnapshotId
    channel: ChannelId
    messages: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class PartComplete:
    """This process has recorded its state and all its channels: report it."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class DiscardPart:
    """Drop what was recorded for this snapshot."""

    snapshot_id: SnapshotId


Effect = RecordState | SendMarkers | ChannelRecorded | PartComplete | DiscardPart


# --- state --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    """A snapshot whose local part is not complete: the channels that are still recorded."""

    snapshot_id: SnapshotId
    recorded: tuple[tuple[ChannelId, tuple[Hashable, ...]], ...]
    """Per open channel, by number: what arrived since the state was recorded."""

    def is_recording(self, channel: ChannelId) -> bool:
        """Return whether no marker has come on the channel yet."""
        return any(c == channel for c, _ in self.recorded)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process's view of the snapshots that pass through it."""

    inputs: frozenset[ChannelId]
    open: tuple[OpenSnapshot, ...] = ()
    over: frozenset[SnapshotId] = frozenset()
    """Snapshots that are complete here, or aborted."""
    stale_up_to: SnapshotId = SnapshotId(0)
    """Ids up to this one are over too."""

    def is_over(self, snapshot_id: SnapshotId) -> bool:
        """Return whether nothing is left to do for it here."""
        return snapshot_id in self.over or snapshot_id <= self.stale_up_to

    def find(self, snapshot_id: SnapshotId) -> OpenSnapshot | None:
        """Return the local part, if it has been started and is not complete; else None."""
        return next((s for s in self.open if s.snapshot_id == snapshot_id), None)


Step = tuple[ProcessState, tuple[Effect, ...]]


def initial(inputs: Iterable[ChannelId], newest_id: SnapshotId = SnapshotId(0)) -> ProcessState:
    """Return a process with these incoming channels; ids up to ``newest_id`` are stale."""
    return ProcessState(frozenset(inputs), stale_up_to=newest_id)


def step(state: ProcessState, event: Event) -> Step:
    """Advance by one event. Pure: same arguments, same result, no I/O.

    Raises:
        ProtocolError: the event cannot happen on a FIFO channel; the state is intact.
    """
    match event:
        case SnapshotInitiated(snapshot_id):
            if state.is_over(snapshot_id) or state.find(snapshot_id) is not None:
                return state, ()  # Somebody else's marker came first.
            return _record(state, snapshot_id, None)
        case MarkerReceived(channel, snapshot_id):
            return _on_marker(state, channel, snapshot_id)
        case MessageReceived(channel, message):
            _check(state, channel)
            return replace(state, open=tuple(_keep(s, channel, message) for s in state.open)), ()
        case SnapshotAborted(snapshot_id):
            return _on_abort(state, snapshot_id)


def _on_marker(state: ProcessState, channel: ChannelId, snapshot_id: SnapshotId) -> Step:
    _check(state, channel)
    if state.is_over(snapshot_id):
        return state, ()  # Given up; a complete one has had all its markers.
    snapshot = state.find(snapshot_id)
    if snapshot is None:
        return _record(state, snapshot_id, channel)
    if not snapshot.is_recording(channel):
        raise ProtocolError(
            ErrorCode.DUPLICATE_BARRIER,
            f"marker {snapshot_id} came twice on channel {channel}",
        )
    return _close(state, snapshot, channel)


def _check(state: ProcessState, channel: ChannelId) -> None:
    if channel not in state.inputs:
        raise ProtocolError(ErrorCode.ILLEGAL_EVENT, f"there is no channel {channel} here")


def _record(state: ProcessState, snapshot_id: SnapshotId, empty: ChannelId | None) -> Step:
    """Apply rules 2 and 3; ``empty`` is the channel of the first marker."""
    others = sorted(state.inputs - ({empty} if empty is not None else set()))
    snapshot = OpenSnapshot(snapshot_id, tuple((channel, ()) for channel in others))
    first: tuple[Effect, ...] = (RecordState(snapshot_id), SendMarkers(snapshot_id))
    if empty is not None:
        first = (*first, ChannelRecorded(snapshot_id, empty, ()))
    state, completed = _update(state, snapshot)
    return state, (*first, *completed)


def _close(state: ProcessState, snapshot: OpenSnapshot, channel: ChannelId) -> Step:
    """Rule 4."""
    messages = next(kept for c, kept in snapshot.recorded if c == channel)
    rest = tuple((c, kept) for c, kept in snapshot.recorded if c != channel)
    state, completed = _update(state, replace(snapshot, recorded=rest))
    return state, (ChannelRecorded(snapshot.snapshot_id, channel, messages), *completed)


def _update(state: ProcessState, snapshot: OpenSnapshot) -> Step:
    """Rule 5, as far as one process can see it."""
    others = tuple(s for s in state.open if s.snapshot_id != snapshot.snapshot_id)
    if snapshot.recorded:
        return replace(state, open=(*others, snapshot)), ()
    state = _forget(replace(state, open=others), snapshot.snapshot_id)
    return state, (PartComplete(snapshot.snapshot_id),)


def _on_abort(state: ProcessState, snapshot_id: SnapshotId) -> Step:
    if state.is_over(snapshot_id):
        return state, (DiscardPart(snapshot_id),)
    started = state.find(snapshot_id) is not None
    others = tuple(s for s in state.open if s.snapshot_id != snapshot_id)
    state = _forget(replace(state, open=others), snapshot_id)
    return state, ((DiscardPart(snapshot_id),) if started else ())


def _forget(state: ProcessState, snapshot_id: SnapshotId) -> ProcessState:
    """Remember only that it is over, so that nothing can start it again."""
    over = sorted({*state.over, snapshot_id})
    dropped, kept = over[:-OVER_MAX], over[-OVER_MAX:]
    stale = max([state.stale_up_to, *dropped])
    return replace(state, over=frozenset(kept), stale_up_to=SnapshotId(stale))


def _keep(snapshot: OpenSnapshot, channel: ChannelId, message: Hashable) -> OpenSnapshot:
    recorded = tuple(
        (c, (*kept, message) if c == channel else kept) for c, kept in snapshot.recorded
    )
    return replace(snapshot, recorded=recorded)


# --- the whole ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completion:
    """Detects that a snapshot is complete everywhere; the collector of the parts keeps it."""

    snapshot_id: SnapshotId
    missing: frozenset[str]
    """Processes whose part has not been reported; fixed when the snapshot is started."""

    @property
    def complete(self) -> bool:
        """Whether every process has its state and all its channels (rule 5)."""
        return not self.missing

    def with_part(self, snapshot_id: SnapshotId, process: str) -> "Completion":
        """Take a report; reports of other snapshots, and repeated ones, change nothing."""
        if snapshot_id != self.snapshot_id:
            return self
        return replace(self, missing=self.missing - {process})


def unreached(
    processes: Collection[str], channels: Iterable[tuple[str, str]], initiators: Iterable[str]
) -> frozenset[str]:
    """Return processes that no marker can reach; with any, a snapshot never completes.

    ``channels`` are (sender, receiver).
    """
    edges = list(channels)
    reached: set[str] = set(initiators)
    while True:
        further = {receiver for sender, receiver in edges if sender in reached} - reached
        if not further:
            return frozenset(processes) - reached
        reached |= further
