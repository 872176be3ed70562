"""The splits of a growing source come one after the other, and stay."""

import pyarrow as pa

from laminar_core.testing.growing_source import GrowingSource

TABLES = [pa.table({"n": [10 * split + n for n in range(5)]}) for split in range(3)]


def ids(found) -> list[int]:
    return found.splits.column("split_id").to_pylist()


def test_each_step_finds_one_more() -> None:
    discovery, state, seen = GrowingSource(TABLES).discovery(), {}, []
    for _ in range(3):
        found = discovery.step(state)
        state, seen = found.state, [*seen, (ids(found), found.complete)]
    assert seen == [([0], False), ([1], False), ([2], True)]


def test_an_older_state_finds_what_came_since_then() -> None:
    discovery = GrowingSource(TABLES).discovery()
    first = discovery.step({})
    discovery.step(first.state)
    again = discovery.step(first.state)
    assert (ids(again), again.complete) == ([1, 2], True)


def test_without_an_end_it_is_never_complete() -> None:
    discovery, state = GrowingSource(TABLES, bounded=False).discovery(), {}
    for _ in range(5):
        found = discovery.step(state)
        state = found.state
        assert not found.complete


def test_a_reader_reads_what_was_added() -> None:
    source = GrowingSource(TABLES, batch_rows=100)
    discovery = source.discovery()
    first = discovery.step({})
    reader = source.open(first.splits)
    reader.poll(100)
    assert reader.finished
    reader.add(discovery.step(first.state).splits)
    assert not reader.finished
    assert reader.poll(100).rows.column("n").to_pylist() == [10, 11, 12, 13, 14]
    assert reader.position().column("offset").to_pylist() == ["5", "5"]
