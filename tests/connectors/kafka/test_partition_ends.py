"""Partitions that are behind, blocked or caught up, and their event time, with a real broker."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.connectors.base import SplitStatus
from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.formats.messages import letters_schema
from laminar_core.connectors.kafka import KafkaSource
from laminar_core.connectors.kafka.facts import Bounds
from laminar_core.connectors.kafka.partition_ends import (
    ANSWER_AGE_MAX_MS,
    ASK_INTERVAL_MS,
    PartitionEnds,
    status_of,
)
from laminar_core.connectors.kafka.partitions import SPLITS_SCHEMA
from laminar_core.connectors.kafka.reader import KafkaReader
from laminar_core.connectors.kafka.split_reading import Chunk, SplitReading
from laminar_core.host.clock import ManualClock
from laminar_core.state.splits import split_table
from laminar_core.worker.split_watch import LOOK_INTERVAL_MS, SplitWatch
from tests.connectors.kafka.writing import (
    NUMBERS,
    as_json,
    transaction,
    transactional,
    until,
    write,
)

PLACE = ("payments", 0)
NO_LETTERS = pa.RecordBatch.from_pylist([], letters_schema(pa.int64()))
NOW_MS = 1_800_000_000_000
BOUNDS = {PLACE: Bounds(0, 5, 8)}


def split(offset: int, end_offset: int | None = None) -> SplitReading:
    row = {
        "split_id": 7,
        "split": "payments/0",
        "offset": str(offset),
        "topic": "payments",
        "partition": 0,
        "row": 0,
        "end_offset": end_offset,
    }
    return SplitReading(split_table([row], SPLITS_SCHEMA).to_pylist()[0])


@pytest.mark.parametrize(
    ("offset", "caught_up", "blocked", "lag"),
    [(3, False, False, 5), (5, False, True, 3), (6, False, False, 2), (8, True, False, 0)],
)
def test_a_split_is_behind_or_blocked_or_caught_up(offset, caught_up, blocked, lag) -> None:
    status = status_of(split(offset), BOUNDS[PLACE], NOW_MS)
    assert (status.caught_up, bool(status.blocked), status.lag_rows) == (caught_up, blocked, lag)


def test_it_has_caught_up_if_it_read_on_since_the_answer() -> None:
    status = status_of(split(9), BOUNDS[PLACE], NOW_MS)
    assert status == SplitStatus(7, caught_up=True, lag_rows=0, lag_seconds=0)


def test_an_end_that_was_agreed_on_is_the_end() -> None:
    assert status_of(split(3, end_offset=5), BOUNDS[PLACE], NOW_MS) == SplitStatus(7, lag_rows=2)


def test_without_an_answer_a_split_counts_as_behind() -> None:
    assert status_of(split(8), None, NOW_MS) == SplitStatus(7)


def with_messages(*times_ms: int) -> SplitReading:
    """A split at offset 0 with one message of each of these times."""
    reading = split(0)
    for offset, time_ms in enumerate(times_ms):
        rows = pa.record_batch({"n": pa.array([offset])})
        at = np.array([offset])
        origins = np.zeros(1, np.int64)
        reading.add(Chunk(rows, origins, at, NO_LETTERS, offset + 1, None, time_ms))
    return reading


def lag_seconds(reading: SplitReading) -> float | None:
    reading.look()
    return status_of(reading, BOUNDS[PLACE], NOW_MS).lag_seconds


def test_the_lag_in_time_is_the_age_of_the_next_message() -> None:
    reading = with_messages(NOW_MS - 9_000, NOW_MS - 4_000)
    assert lag_seconds(reading) == 9
    reading.take(10)
    assert lag_seconds(reading) == 4


def test_while_messages_are_on_their_way_the_last_one_counts() -> None:
    reading = with_messages(NOW_MS - 9_000)
    reading.take(10)
    assert lag_seconds(reading) == 9
    assert lag_seconds(reading) is None, "it stands still, so the last one may be long ago"


def test_a_message_without_a_time_or_of_tomorrow_makes_no_odd_lag() -> None:
    assert lag_seconds(with_messages(-(2**63))) is None
    assert lag_seconds(with_messages(NOW_MS + 86_400_000)) == 0


class Broker:
    """Counts questions, and can be away."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False

    def ask(self, places) -> dict[tuple[str, int], Bounds]:
        self.asked += 1
        if self.is_away:
            raise OSError("away")
        return {place: BOUNDS[place] for place in places}


def test_a_broker_is_asked_at_a_bounded_rate_and_an_old_answer_is_none() -> None:
    broker, clock, waiting = Broker(), ManualClock(), []
    ends = PartitionEnds(broker.ask, clock, waiting.append)
    assert ends.known([PLACE]) == {}
    clock.wait_ms(ASK_INTERVAL_MS)
    assert (ends.known([PLACE]), len(waiting)) == ({}, 1), "one question at a time"
    waiting.pop()()
    assert (ends.known([PLACE]), broker.asked) == (BOUNDS, 1)
    waiting.pop()()
    broker.is_away = True
    ends.known([PLACE])
    clock.wait_ms(ASK_INTERVAL_MS)
    ends.known([PLACE])
    waiting.pop()()
    clock.wait_ms(ANSWER_AGE_MAX_MS - ASK_INTERVAL_MS)
    assert ends.known([PLACE]) == BOUNDS
    clock.wait_ms(1)
    assert ends.known([PLACE]) == {}


def test_nothing_is_asked_for_no_partitions() -> None:
    waiting: list[object] = []
    PartitionEnds(Broker().ask, ManualClock(), waiting.append).known([])
    assert waiting == []


# --- with a real broker ---------------------------------------------------------------------------


class Abreast:
    """A reader under watch, as a worker has it; event time is the number in each row."""

    def __init__(self, source: KafkaSource) -> None:
        self.reader = source.open(first_splits(source))
        self.clock = ManualClock()
        self.watch = SplitWatch(self.reader, self.clock, None)
        self.rows: list[int] = []
        self.late: list[int] = []

    @property
    def least_us(self) -> int | None:
        return self.watch.watermarks.least_us

    def turn(self) -> None:
        self.clock.wait_ms(LOOK_INTERVAL_MS)
        self.watch.look()
        batch = self.reader.poll(7)
        if batch is None or not batch.rows.num_rows:
            return
        numbers: list[int] = batch.rows.column("n").to_pylist()
        assert batch.split_id is not None
        self.rows += numbers
        self.late += [n for n in numbers if self.least_us is not None and n < self.least_us]
        self.watch.had_rows(batch.split_id)
        self.watch.watermarks.rows(batch.split_id, max(numbers))

    def until(self, condition) -> None:
        until(lambda: self.turn() or condition())


@pytest.fixture
def abreast():
    opened: list[Abreast] = []

    def start(source: KafkaSource) -> Abreast:
        opened.append(Abreast(source))
        return opened[-1]

    yield start
    for each in opened:
        each.reader.close()


def test_a_partition_far_behind_has_no_late_rows(kafka: str, new_topic, abreast) -> None:
    topic = new_topic(partitions=2)
    write(kafka, topic, as_json(range(5_000, 5_400)), 0)
    write(kafka, topic, as_json(range(0, 5_400, 10)), 1)
    source = KafkaSource(kafka, topic, NUMBERS, batch_messages=50)
    assert source.reading == "parallel"
    job = abreast(source)
    job.until(lambda: len(job.rows) == 400 + 540)
    assert (job.late, job.least_us) == ([], 5_390)


def states(reader: KafkaReader) -> list[tuple[bool, bool]]:
    return [(status.caught_up, bool(status.blocked)) for status in reader.status()]


def test_an_empty_partition_stops_event_time_only_until_it_is_known_to_be_empty(
    kafka: str, new_topic, abreast
) -> None:
    topic = new_topic(partitions=2)
    write(kafka, topic, as_json(range(10)), 0)
    job = abreast(KafkaSource(kafka, topic, NUMBERS))
    job.until(lambda: len(job.rows) == 10)
    job.until(lambda: job.least_us == 9)
    assert states(job.reader)[1] == (True, False)
    write(kafka, topic, as_json([20]), 1)
    write(kafka, topic, as_json([30]), 0)
    job.until(lambda: len(job.rows) == 12)
    assert job.least_us == 20, "it counts as soon as it has a row"


def test_a_blocked_partition_holds_event_time_until_the_transaction_ends(
    kafka: str, new_topic, abreast
) -> None:
    topic = new_topic(partitions=2)
    producer = transactional(kafka, topic)
    producer.begin_transaction()
    producer.produce(topic, as_json([3])[0], partition=1)
    producer.flush(60)
    write(kafka, topic, as_json(range(10)), 0)
    job = abreast(KafkaSource(kafka, topic, NUMBERS))
    job.until(lambda: len(job.rows) == 10)
    job.until(lambda: states(job.reader)[1] == (False, True))
    (blocked,) = [status for status in job.reader.status() if status.blocked]
    assert blocked.blocked == f"{topic}/1 has a transaction open from offset 0 on"
    assert (blocked.lag_rows, job.least_us) == (1, None)
    producer.commit_transaction(60)
    job.until(lambda: len(job.rows) == 11)
    assert (job.late, job.least_us) == ([], 3)


def test_a_transaction_that_is_aborted_lets_the_partition_be_empty(
    kafka: str, new_topic, abreast
) -> None:
    topic = new_topic(partitions=2)
    write(kafka, topic, as_json(range(10)), 0)
    transaction(transactional(kafka, topic), topic, as_json([3]), commit=False, partition=1)
    job = abreast(KafkaSource(kafka, topic, NUMBERS))
    job.until(lambda: job.least_us == 9)
    assert (job.rows, job.late) == (list(range(10)), [])


def test_without_a_broker_every_partition_counts_as_behind() -> None:
    row = {"split_id": 0, "split": "t/0", "offset": "0", "topic": "t", "partition": 0, "row": 0}
    splits: pa.Table = split_table([row], SPLITS_SCHEMA)
    reader = KafkaSource("127.0.0.1:9", "t", NUMBERS).open(splits)
    assert reader.status() == [SplitStatus(0)]
    assert reader.poll(1) is None
    reader.close()
