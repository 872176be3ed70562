"""A worker restores from its part of a checkpoint what it would restore from all of it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.codec.inflight import InflightElement
from laminar_core.plan.plan import Broadcast, Forward, Keyed, Partitioning, Rebalance
from laminar_core.protocol.types import Watermark
from laminar_core.protocol.unaligned import Direction
from laminar_core.records.channel_entries import AlignmentEntry, ChannelEntry, InflightEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.worker.deployment import Deployment, RestoredState
from laminar_core.worker.outputs import edge_ref
from laminar_core.worker.restored_part import RestoredPart
from tests.plan.plans import small_plan
from tests.records.manifests import alignment, file_ref, files_of, inflight, manifest, subtask
from tests.store.stores import open_job
from tests.worker.deployments import deployment

OPERATORS = ("in", "keep", "time", "out")
REDISTRIBUTIONS = (None, "keyed", "split", "union")


class Elements:
    """Stands in for the files of in-flight data: each part has one element, which no other has."""

    def __init__(self) -> None:
        self.read_whole: set[str] = set()

    def expect(self, entries: Iterator[InflightEntry]) -> None:
        del entries

    def read(self, entry: InflightEntry) -> list[InflightElement]:
        return [Watermark(100 * entry.sender + 10 * entry.receiver + len(entry.direction))]


def cut(before: int, by: Partitioning, channels: set[tuple[int, int, Direction]]) -> RestoredPart:
    """A checkpoint of ``before`` workers with event times that differ, and something in flight."""
    plan = small_plan(by)
    (edge,) = plan.edges
    every = range(before)
    parts = tuple(
        inflight(
            operator_id="time" if direction == "input" else "keep",
            direction=direction,
            subtask_index=receiver if direction == "input" else sender,
            input_id=sender if direction == "input" else receiver,
            edge=edge_ref(plan, edge),
            sender=sender,
            receiver=receiver,
            path=f"{direction}-{sender}-{receiver}",
        )
        for sender, receiver, direction in sorted(channels)
    )
    mode = "unaligned" if parts else "aligned"
    described = {name: {"kind": name} for name in OPERATORS}
    found = manifest(
        mode=mode,
        is_unaligned=bool(parts),
        parallelism=dict.fromkeys(OPERATORS, before),
        operators_description=described,
        fingerprint={name: fingerprint_of(text) for name, text in described.items()},
        subtasks=tuple(
            subtask(name, n, file_ref(f"{name}-{n}"), properties={"n": n})
            for name, n in product(OPERATORS, every)
        ),
        alignment=tuple(_aligned(vertex, n, before, mode) for vertex, n in _subtasks(before)),
        inflight_files=files_of(*parts),
        inflight_data=parts,
    )
    return RestoredPart.whole(found)


def _subtasks(workers: int) -> Iterator[tuple[str, int]]:
    return product(("in", "time"), range(workers))


def _aligned(vertex_id: str, index: int, workers: int, mode: str) -> AlignmentEntry:
    channels = tuple(
        ChannelEntry(input_id=n, watermark_us=100 * index + n, idle=False) for n in range(workers)
    )
    return alignment(
        vertex_id=vertex_id,
        subtask_index=index,
        mode=mode,
        watermark_us=50 + index,
        channels=channels if vertex_id == "time" else (),
        finished=vertex_id == "in" and index == 0,
    )


def seen(own: Deployment, worker: int) -> dict[str, Any]:
    """All that a worker learns of the checkpoint."""
    state: Any = RestoredState(own, worker, open_job())
    state._inflight_files = Elements()
    (edge,) = own.plan.edges
    assert own.restored is not None
    return {
        "id": own.newest_id,
        "size": state.size(),
        "entries": {
            (name, kind): state._entries(name, kind)
            for name, kind in product(OPERATORS, REDISTRIBUTIONS)
        },
        "segments": {name: state.own_segments(name) for name in OPERATORS},
        "finished": state.finished("in"),
        "event times": {vertex: state.event_time_us(vertex) for vertex in ("in", "time")},
        "edge": state.edge(edge),
        "outgoing": {n: state.outgoing(edge, n) for n in range(own.parallelism)},
        "new receiver": state.has_new_receiver("in"),
        "verifies": (
            sorted(f.path for f in own.restored.files_of_worker(worker, own.parallelism))
            if own.rescaling is None
            else None
        ),
    }


WORKERS = st.integers(1, 4)
EXCHANGES = st.sampled_from([Keyed(("key",)), Rebalance(), Broadcast(), Forward()])
ENDS = st.sampled_from(["input", "output"])


@st.composite
def restarts(draw: st.DrawFn) -> tuple[Partitioning, RestoredPart, int]:
    """An exchange, a checkpoint, and the number of workers that continue from it."""
    by, before = draw(EXCHANGES), draw(WORKERS)
    places = st.tuples(st.integers(0, before - 1), st.integers(0, before - 1), ENDS)
    overtakes = isinstance(by, Keyed | Rebalance)
    channels = draw(st.sets(places, max_size=8)) if overtakes else set()
    return by, cut(before, by, channels), draw(WORKERS)


@given(restarts())
def test_a_part_is_as_good_as_the_whole(restart: tuple[Partitioning, RestoredPart, int]) -> None:
    by, whole, workers = restart
    given_whole = deployment(whole, workers, by)
    for worker, own in enumerate(given_whole.of_workers()):
        assert seen(own, worker) == seen(given_whole, worker)


def test_it_is_that_also_for_an_operator_that_had_another_number_of_subtasks() -> None:
    """Goal: a source that returns after others worked on with more workers is divided anew."""
    by = Keyed(("key",))
    before = cut(3, by, set())
    returns = ("in", "keep")
    mixed = replace(
        before,
        parallelism={**before.parallelism, **dict.fromkeys(returns, 2)},
        subtasks=tuple(
            entry
            for entry in before.subtasks
            if entry.subtask_index < 2 or entry.operator_id not in returns
        ),
    )
    whole = deployment(mixed, 3, by)
    for worker, own in enumerate(whole.of_workers()):
        assert seen(own, worker) == seen(whole, worker)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_file_of_a_checkpoint_has_one_worker_that_verifies_it(workers: int) -> None:
    every: CheckpointManifest = manifest()
    whole = RestoredPart.whole(every)
    paths = [f.path for n in range(workers) for f in whole.files_of_worker(n, workers)]
    assert sorted(paths) == sorted(file.path for file in every.files())


@pytest.mark.parametrize("after", [16, 12])
def test_a_part_does_not_grow_with_the_square_of_the_workers(after: int) -> None:
    """Goal: a worker is sent its own channels, and one line of each other worker at most."""
    by, before = Keyed(("key",)), 16
    end: Direction = "input"
    every = {(n, m, end) for n, m in product(range(before), repeat=2)}
    whole = cut(before, by, every)
    for own in deployment(whole, after, by).of_workers():
        assert own.restored is not None
        channels = sum(len(entry.channels) for entry in own.restored.alignment)
        assert channels <= 3 * before
        assert len(own.restored.inflight_data) <= 3 * before
        assert len(own.restored.inflight_files) == len(own.restored.inflight_data)
