"""Messages of the client are taken without collections of garbage, and divided by partition."""

import gc
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from laminar_core.connectors.formats.messages import (
    Decoded,
    Defect,
    MessageRefusedError,
    Messages,
    letters_of,
)
from laminar_core.connectors.kafka.records import (
    by_partition,
    metadata_column,
    offsets_of,
    runs_of,
    time_of,
    uncollected,
    with_readable_headers,
)


class Collections:
    """Counts collections of garbage while it is open, as often as Python has them by itself."""

    def __enter__(self) -> Self:
        self.count = 0
        self._threshold = gc.get_threshold()  # A command that ran in this process has set it.
        gc.set_threshold(700, 10, 10)
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)
        gc.set_threshold(*self._threshold)

    def _note(self, phase: str, _info: object) -> None:
        self.count += phase == "start"


def make_and_drop() -> None:
    made = [[n] for n in range(10_000)]
    del made
    [[n] for n in range(100)]


def test_messages_are_made_read_and_dropped_without_a_collection() -> None:
    gc.collect()
    with Collections() as collections:
        with uncollected():
            make_and_drop()
        assert collections.count == 0
        make_and_drop()
        assert collections.count > 0


def test_collections_go_on_afterwards_also_after_a_failure() -> None:
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def test_a_program_that_has_switched_collections_off_keeps_it_so() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@dataclass(frozen=True)
class Event:
    """A message of the client, or an error behind messages."""

    at: int
    in_partition: int = 0
    of_topic: str = "payments"
    failed: str | None = None

    def offset(self) -> int:
        return self.at

    def partition(self) -> int:
        return self.in_partition

    def topic(self) -> str:
        return self.of_topic

    def error(self) -> str | None:
        return self.failed


def events(*of: Event) -> Any:
    return list(of)


def test_errors_divide_messages_into_runs() -> None:
    first, second, third = Event(1), Event(2), Event(3)
    end = Event(2, failed="end")
    assert list(runs_of(events(first, end, second, third))) == [
        ([first], end),
        ([second, third], None),
    ]
    assert list(runs_of(events(end, end))) == [([], end), ([], end)]
    assert list(runs_of(events())) == []


def test_messages_of_a_partition_stay_in_order() -> None:
    mixed = events(Event(7, 1), Event(3, 0), Event(8, 1), Event(4, 0))
    assert list(by_partition(mixed, {"payments"})) == [
        (("payments", 1), [mixed[0], mixed[2]]),
        (("payments", 0), [mixed[1], mixed[3]]),
    ]


def test_equal_partitions_of_several_topics_are_kept_apart() -> None:
    mixed = events(Event(7), Event(3, of_topic="refunds"), Event(8))
    assert list(by_partition(mixed, {"payments", "refunds"})) == [
        (("payments", 0), [mixed[0], mixed[2]]),
        (("refunds", 0), [mixed[1]]),
    ]


@pytest.mark.parametrize("offsets", [[], [5], [5, 6, 7], [5, 7, 8], [0, 9]])
def test_offsets_are_those_of_the_messages_also_with_gaps(offsets: list[int]) -> None:
    found = offsets_of(events(*map(Event, offsets)))
    assert found.dtype == np.int64
    assert found.tolist() == offsets


@dataclass(frozen=True)
class Headed:
    """A message with headers; the client raises what it raises for a name that is not UTF-8."""

    given: list[tuple[str, bytes]] | None
    readable: bool = True

    def headers(self) -> list[tuple[str, bytes]] | None:
        if not self.readable:
            raise SystemError("returned a result with an exception set")
        return self.given


def test_a_message_whose_headers_cannot_be_read_is_a_letter() -> None:
    """The third message has two rows, the second one is a letter anyway, the last one has none."""
    unreadable = Headed(None, readable=False)
    records: Any = [Headed([("a", b"1")]), unreadable, unreadable, Headed(None), unreadable]
    values = Messages(pa.array([b"one", b"?", b"two", b"three", b""]), pa.array(range(10, 15)))
    origins = np.array([0, 2, 2, 3])
    headers = metadata_column("headers", records, origins)
    rows = pa.record_batch({"n": pa.array([1, 2, 3, 4]), "kafka_headers": headers})
    letters = letters_of(values, {1: MessageRefusedError(Defect.MALFORMED, "no row")})
    found = with_readable_headers(Decoded(rows, pa.array(origins), letters), values)
    assert found.rows.to_pylist() == [
        {"n": 1, "kafka_headers": [{"name": "a", "value": b"1"}]},
        {"n": 4, "kafka_headers": []},
    ]
    assert found.origins.to_pylist() == [0, 3]
    told = found.letters.select(["index", "position", "value", "defect"]).to_pylist()
    assert told == [
        {"index": 1, "position": 11, "value": b"?", "defect": "malformed"},
        {"index": 2, "position": 12, "value": b"two", "defect": "not-utf8"},
    ]


@dataclass(frozen=True)
class Timed:
    kind: int
    time_ms: int

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.time_ms


def test_a_message_without_a_time_has_none() -> None:
    """A producer may leave it out: then Kafka keeps -1, which is no time before 1970."""
    kinds = [(TIMESTAMP_CREATE_TIME, -1), (TIMESTAMP_NOT_AVAILABLE, 0), (TIMESTAMP_CREATE_TIME, -2)]
    records: Any = [Timed(*kind) for kind in kinds]
    times = metadata_column("timestamp", records, np.arange(3))
    assert times.cast(pa.int64()).to_pylist() == [None, None, -2]
    assert [time_of(record) for record in records] == [-(2**63), -(2**63), -2]
