"""The cuts of the barrier protocol, beside those of the algorithm of 1985 in all its schedules."""

from collections import deque
from typing import NamedTuple

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.protocol.types import ChannelId
from verification.chandy_lamport import (
    ChannelRecorded,
    MarkerReceived,
    MessageReceived,
    ProcessState,
    RecordState,
    SendMarkers,
    SnapshotId,
    SnapshotInitiated,
    initial,
    step,
)
from verification.explorer import WORLDS, Classes
from verification.explorer.records import Record
from verification.explorer.search import Search

SOURCES = {"a": 2, "b": 1}
"""Records of each, as in the world ``fan-in-few``; both send to ``j``."""

Cut = tuple[tuple[int, int, tuple[int, ...]], ...]
"""Per source: records sent, records processed, and the numbers of those in flight."""

MARKER = -1
ID = SnapshotId(1)


class Flow(NamedTuple):
    """A source, its channel, and what was recorded of both."""

    sent: int = 0
    under_way: tuple[int, ...] = ()
    processed: int = 0
    recorded: int | None = None
    state_of_channel: tuple[int, ...] | None = None


class Schedule(NamedTuple):
    """One state of the system of 1985."""

    flows: tuple[Flow, ...]
    sources: tuple[ProcessState, ...]
    sink: ProcessState
    counted: tuple[int, ...] | None = None
    """Number of rows that the sink had processed when it recorded."""


def with_flow(now: Schedule, n: int, **changes) -> Schedule:
    flows = list(now.flows)
    flows[n] = flows[n]._replace(**changes)
    return now._replace(flows=tuple(flows))


def at_source(now: Schedule, n: int) -> Schedule:
    state, effects = step(now.sources[n], SnapshotInitiated(ID))
    sources = (*now.sources[:n], state, *now.sources[n + 1 :])
    now, flow = now._replace(sources=sources), now.flows[n]
    if SendMarkers(ID) not in effects:
        return now
    return with_flow(now, n, recorded=flow.sent, under_way=(*flow.under_way, MARKER))


def at_sink(now: Schedule, event) -> Schedule:
    state, effects = step(now.sink, event)
    now = now._replace(sink=state)
    for effect in effects:
        match effect:
            case RecordState():
                now = now._replace(counted=tuple(flow.processed for flow in now.flows))
            case ChannelRecorded(_, channel, messages):
                kept = tuple(m for m in messages if isinstance(m, int))
                now = with_flow(now, channel, state_of_channel=kept)
    return now


def received(now: Schedule, n: int) -> Schedule:
    first, *rest = now.flows[n].under_way
    now = with_flow(now, n, under_way=tuple(rest))
    if first == MARKER:
        return at_sink(now, MarkerReceived(ChannelId(n), ID))
    now = at_sink(now, MessageReceived(ChannelId(n), first))
    return with_flow(now, n, processed=now.flows[n].processed + 1)


def next_states(now: Schedule):
    for n, count in enumerate(SOURCES.values()):
        flow = now.flows[n]
        if flow.sent < count:
            yield with_flow(now, n, sent=flow.sent + 1, under_way=(*flow.under_way, flow.sent))
        if flow.recorded is None:
            yield at_source(now, n)
        if flow.under_way:
            yield received(now, n)
    if now.counted is None:
        yield at_sink(now, SnapshotInitiated(ID))


def cuts_of_1985() -> set[Cut]:
    """All cuts, whoever starts the snapshot and whenever."""
    first = Schedule(
        (Flow(),) * len(SOURCES),
        (initial([]),) * len(SOURCES),
        initial(ChannelId(n) for n in range(len(SOURCES))),
    )
    seen, waiting, found = {first}, deque([first]), set()
    while waiting:
        now = waiting.popleft()
        for after in set(next_states(now)) - seen:
            seen.add(after)
            waiting.append(after)
        if now.counted is not None and all(f.state_of_channel is not None for f in now.flows):
            found.add(
                tuple(
                    (f.recorded, counted, f.state_of_channel)
                    for f, counted in zip(now.flows, now.counted, strict=True)
                )
            )
    return found


def cuts_of_barriers(**changes) -> set[Cut]:
    """All cuts of the checkpoints that complete in any order of events."""
    world = WORLDS["fan-in-few"].variant("cuts", "", crashes=0, **changes)
    search = Search(world, Classes())
    assert search.run(ManualClock()).complete
    found = set()
    for checkpoint in search.checkpoints():
        *sources, sink = checkpoint.parts
        found.add(
            tuple(
                (
                    source.offset,
                    dict(sink.counts).get(source.node, 0),
                    tuple(e.number for e in (*queued, *source.outputs[0]) if isinstance(e, Record)),
                )
                for source, queued in zip(sources, sink.inputs, strict=True)
            )
        )
    return found


@pytest.mark.parametrize("timeout_ms", [0, 1], ids=["unaligned", "timeout"])
def test_barriers_that_overtake_make_the_cuts_of_1985_all_of_them_and_no_other(timeout_ms) -> None:
    """Goal: an unaligned checkpoint is a snapshot of 1985, and loses none of its freedom.

    Method: all schedules of the one, whoever starts it, and all interleavings of the other.
    """
    assert cuts_of_barriers(alignment_timeout_ms=timeout_ms) == cuts_of_1985()


def test_aligned_cuts_are_those_with_nothing_in_flight() -> None:
    aligned = {cut for cut in cuts_of_1985() if not any(queued for _, _, queued in cut)}
    assert len(aligned) == 6
    assert cuts_of_barriers(alignment_timeout_ms=None) == aligned
