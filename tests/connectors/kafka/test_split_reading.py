"""A position is exactly behind the rows that were taken, wherever reading stops."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.connectors.formats.messages import (
    Defect,
    MessageRefusedError,
    Messages,
    letters_of,
)
from laminar_core.connectors.kafka.partitions import SPLITS_SCHEMA
from laminar_core.connectors.kafka.split_reading import Chunk, SplitReading, Taken
from laminar_core.state.splits import split_table

Log = list[tuple[int, int]]
"""Offset and number of rows of each message that is there."""


def fresh(end: int | None = None) -> dict:
    row = {
        "split_id": 0, "split": "t/0", "offset": "0", "topic": "t", "topic_id": "id",
        "partition": 0, "row": 0, "end_offset": end,
    }  # fmt: skip
    return split_table([row], SPLITS_SCHEMA).to_pylist()[0]


def chunk(messages: Log, bad: bool = False) -> Chunk:  # noqa: FBT001, FBT002
    """Messages without rows are letters if ``bad``, and tombstones otherwise."""
    origins = np.array([at for at, (_, n) in enumerate(messages) for _ in range(n)], np.int64)
    offsets = np.array([offset for offset, _ in messages], np.int64)
    rows = [f"{o}.{row}" for o, count in messages for row in range(count)]
    batch = pa.record_batch({"at": pa.array(rows, pa.string())})
    values = Messages(pa.array([b"bad"] * len(messages)), pa.array(offsets))
    refused = MessageRefusedError(Defect.MALFORMED, "bad")
    refusals = {at: refused for at, (_, count) in enumerate(messages) if not count and bad}
    letters = letters_of(values, refusals)
    return Chunk(batch, origins, offsets, letters, messages[-1][0] + 1, 1, messages[0][0])


def names(messages: Log) -> list[str]:
    """Rows as offset and number, letters as the offset, in their order."""
    return [
        name
        for o, count in messages
        for name in ([f"{o}.{row}" for row in range(count)] if count else [f"{o} is bad"])
    ]


def in_order(taken: Taken, offsets_before: list[int]) -> list[str]:
    """Rows and letters of one slice; letters know their place by their offset."""
    rows = taken.rows.column("at").to_pylist()
    letters = [] if taken.letters is None else taken.letters.to_pylist()
    assert all(0 <= letter["index"] < taken.messages for letter in letters)
    found = [(int(row.split(".")[0]), row) for row in rows]
    found += [(letter["position"], f"{letter['position']} is bad") for letter in letters]
    ordered = sorted(found, key=lambda pair: pair[0])
    assert not offsets_before or not ordered or offsets_before[-1] <= ordered[0][0]
    offsets_before += [offset for offset, _ in ordered]
    return [name for _, name in ordered]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    gaps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    counts = draw(st.lists(st.integers(0, 3), min_size=len(gaps), max_size=len(gaps)))
    return list(zip(np.cumsum(gaps).tolist(), counts, strict=True))


@given(log=logs(), cuts=st.lists(st.integers(1, 4), min_size=1), data=st.data())
def test_reading_on_from_any_position_gives_each_row_once(log, cuts, data) -> None:
    """Chunks end anywhere, slices as well, and after each slice everything may be lost."""
    taken: list[str] = []
    seen: list[int] = []
    row, turn = fresh(), 0
    for _ in range(100):
        split = SplitReading(row)
        rest = [message for message in log if message[0] >= split.offset]
        if not rest:
            break
        size = data.draw(st.integers(1, len(rest)))
        split.add(chunk(rest[:size], bad=True))
        while split.next_time_ms is not None:
            taken += in_order(split.take(cuts[turn % len(cuts)]), seen)
            turn += 1
            if data.draw(st.booleans()):
                break
        row = split.position()
    assert taken == names(log)
    assert row["rows_read"] == sum(count for _, count in log)
    assert row["offset"] == str(log[-1][0] + 1)


def test_the_rest_of_a_message_that_is_gone_is_not_taken_from_its_neighbour() -> None:
    first = SplitReading(fresh())
    first.add(chunk([(4, 3)]))
    first.take(1)
    again = SplitReading(first.position())
    assert (again.offset, again.next_row) == (4, 1)
    again.add(chunk([(6, 2)]))
    assert again.take(9).rows.column("at").to_pylist() == ["6.0", "6.1"]


def test_the_end_counts_once_the_rows_before_it_were_taken() -> None:
    split = SplitReading(fresh(end=9))
    split.add(chunk([(3, 2)]))
    split.reach_end(9)
    assert (split.position()["offset"], split.done) == ("0", False)
    split.take(1)
    assert (split.position()["offset"], split.position()["row"]) == ("3", 1)
    split.take(1)
    assert (split.position()["offset"], split.position()["done"]) == ("9", True)


def test_messages_without_rows_are_passed_over() -> None:
    split = SplitReading(fresh())
    split.add(chunk([(3, 0), (5, 0)]))
    assert split.next_time_ms is None
    assert split.position()["offset"] == "6"


@pytest.mark.parametrize("is_here", [False, True])
def test_it_waits_until_rows_or_the_end_are_here(is_here: bool) -> None:  # noqa: FBT001
    split = SplitReading(fresh())
    assert split.is_waiting
    if is_here:
        split.add(chunk([(3, 1)]))
    else:
        split.reach_end(0)
    assert not split.is_waiting
