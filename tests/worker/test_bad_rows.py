"""A worker lets rows pass, and stops, counts or hands on what is none."""

import pyarrow as pa
import pytest

from laminar_core.connectors.base import SourceBatch
from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.formats.bad_rows import BadRowPolicy, SkippedMessage
from laminar_core.connectors.formats.letters import LETTERS_SCHEMA
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.testing.memory_source import MemorySource
from laminar_core.worker.bad_rows import BadRowGate

SOURCE = MemorySource([pa.table({"n": list(range(12))})], batch_rows=4, bad_every=4)
"""The rows 3, 7 and 11 are letters."""


def read(policy: BadRowPolicy, *skip: str, before: int = 0) -> tuple[list[SourceBatch], BadRowGate]:
    """Return all batches of the source, and the gate that they passed."""
    reader = SOURCE.open(first_splits(SOURCE))
    gate = BadRowGate(
        "in",
        policy,
        reader.position,
        skip=[SkippedMessage.parse(text) for text in skip],
        before=BadRowTotals(letters=before),
    )
    batches = []
    while not reader.finished:
        batch = reader.poll(100)
        assert batch is not None
        batches.append(gate.judged(batch))
    return batches, gate


def test_letters_are_handed_on_with_their_source_and_split() -> None:
    batches, gate = read(BadRowPolicy("letters", "100%"), before=10)
    letters = [row for b in batches if b.letters is not None for row in b.letters.to_pylist()]
    assert [(row["source"], row["split"], row["offset"]) for row in letters] == [
        ("in", "0", "3"),
        ("in", "0", "7"),
        ("in", "0", "11"),
    ]
    assert batches[0].letters is not None
    assert batches[0].letters.schema == LETTERS_SCHEMA
    assert gate.totals == BadRowTotals(letters=13)


def test_by_default_the_first_bad_row_stops_the_job_and_says_where_it_is() -> None:
    with pytest.raises(DataError, match="in, split 0, offset 3: bad on purpose") as caught:
        read(BadRowPolicy())
    assert caught.value.code is ErrorCode.BAD_ROW
    assert "--skip-bad in:0:3" in str(caught.value)


def test_a_dropped_message_is_counted_and_nothing_else_is_left_of_it() -> None:
    batches, gate = read(BadRowPolicy("drop", "100%"))
    assert [batch.letters for batch in batches] == [None] * 3
    assert [n for b in batches for n in b.rows.column("n").to_pylist()] == [
        n for n in range(12) if n % 4 != 3
    ]
    assert gate.totals == BadRowTotals(dropped=3)


def test_only_the_named_message_is_left_out() -> None:
    _, gate = read(BadRowPolicy(), "in:0:3", "in:0:7", "in:0:11", "other:0:1")
    assert gate.totals == BadRowTotals(skipped=3)
    with pytest.raises(DataError, match="offset 7"):
        read(BadRowPolicy(), "in:0:3", "in:1:7", "other:0:7")


def test_good_rows_count_for_the_share() -> None:
    """Two of eight are within 30 %, two of four would not be."""
    read(BadRowPolicy("drop", "30%", window=8))
    with pytest.raises(DataError) as caught:
        read(BadRowPolicy("drop", "20%", window=8))
    assert caught.value.code is ErrorCode.TOO_MANY_BAD_ROWS


@pytest.mark.parametrize("split_id", [None, 7])
def test_letters_of_no_split_are_refused(split_id: int | None) -> None:
    reader = SOURCE.open(first_splits(SOURCE))
    batch = reader.poll(4)
    assert batch is not None
    gate = BadRowGate("in", BadRowPolicy("drop"), reader.position)
    with pytest.raises(ConfigurationError, match="set split_id of the batch"):
        gate.judged(SourceBatch(batch.rows, split_id, batch.letters))
