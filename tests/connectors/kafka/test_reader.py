"""Each committed message once, whatever lies between, against a real broker."""

from contextlib import closing

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.formats.arrow_ipc import ArrowIpcFormat
from laminar_core.connectors.formats.bad_rows import BadRowPolicy
from laminar_core.connectors.kafka import KafkaConnection, KafkaSource
from laminar_core.connectors.kafka.facts import Bounds
from laminar_core.connectors.kafka.partitions import SPLITS_SCHEMA
from laminar_core.connectors.kafka.reader import KafkaReader, reader_settings
from laminar_core.connectors.kafka.reports import REFUSED_MS
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.state.splits import split_table
from laminar_core.worker.bad_rows import BadRowGate
from tests.connectors.kafka.writing import (
    NUMBERS,
    as_json,
    read_all,
    read_rows,
    transaction,
    transactional,
    until,
    write,
)
from verification.servers.kafka_broker import KafkaBroker


def numbers(rows) -> list[int]:
    return sorted(row["n"] for row in rows)


def test_what_was_aborted_is_never_seen(kafka: str, new_topic) -> None:
    topic = new_topic(partitions=2)
    producer = transactional(kafka, topic)
    for n, commit in enumerate([True, False, True, False]):
        for partition in range(2):
            first = 10 * (2 * n + partition)
            values = as_json(range(first, first + 10))
            transaction(producer, topic, values, commit=commit, partition=partition)
    source = KafkaSource(kafka, topic, NUMBERS, until="latest")
    assert numbers(read_all(source, first_splits(source))) == [*range(20), *range(40, 60)]


def test_a_crash_after_any_poll_loses_nothing_and_repeats_nothing(kafka: str, new_topic) -> None:
    topic = new_topic(partitions=2)
    producer = transactional(kafka, topic)
    for n, commit in enumerate([True, False, True]):
        for partition in range(2):
            first = 6 * (2 * n + partition)
            values = as_json(range(first, first + 6))
            transaction(producer, topic, values, commit=commit, partition=partition)
    source = KafkaSource(kafka, topic, NUMBERS, until="latest", batch_messages=5)
    splits, rows = first_splits(source), []

    def one_more_life() -> bool:
        """Open, return one batch, and lose everything but the position."""
        nonlocal splits
        reader = source.open(splits)
        batch = until(lambda: reader.finished or reader.poll(4))
        if batch is not True:
            rows.extend(batch.rows.to_pylist())
        splits = reader.position()
        reader.close()
        return reader.finished

    until(one_more_life)
    assert numbers(rows) == [*range(12), *range(24, 36)]
    assert sum(splits.column("rows_read").to_pylist()) == len(rows)


def test_positions_are_dealt_anew_to_other_numbers_of_workers(kafka: str, new_topic) -> None:
    topic = new_topic(partitions=4)
    for partition in range(4):
        write(kafka, topic, as_json(range(10 * partition, 10 * partition + 10)), partition)
    source = KafkaSource(kafka, topic, NUMBERS, until="latest")
    splits, rows = first_splits(source), []
    for workers in (1, 3, 2):
        parts = [splits.take(list(range(w, splits.num_rows, workers))) for w in range(workers)]
        after = []
        for part in parts:
            reader = source.open(part)
            if not reader.finished:
                rows += read_rows(reader, 3, rows_max=3)
            after.append(reader.position())
            reader.close()
        splits = pa.concat_tables(after)
    rows += read_all(source, splits)
    assert numbers(rows) == list(range(40))


def test_a_message_of_many_rows_can_be_left_in_the_middle(kafka: str, new_topic) -> None:
    topic = new_topic()
    encoder = ArrowIpcFormat().encoder(NUMBERS)
    for first in (0, 10):
        batch = pa.record_batch({"n": range(first, first + 10)}, schema=NUMBERS)
        write(kafka, topic, encoder.encode(batch).to_pylist())
    source = KafkaSource(kafka, topic, NUMBERS, format="arrow", until="latest")
    splits, rows = first_splits(source), []
    for expected in (("0", 3), ("0", 6), ("0", 9), ("1", 2)):
        reader = source.open(splits)
        rows += read_rows(reader, 3, rows_max=3)
        splits = reader.position()
        reader.close()
        (row,) = splits.to_pylist()
        assert (row["offset"], row["row"]) == expected
    assert numbers([*rows, *read_all(source, splits)]) == list(range(20))


@pytest.mark.parametrize(
    ("poison", "defect"),
    [
        (b"null", "not-a-row"),
        (b"\xff\xfe", "not-utf8"),
        (b'{"n": 1} {"n": 2}', "malformed"),
        (b'{"n": "x"}', "wrong-type"),
        (None, "no-value"),
    ],
)
def test_a_message_that_is_no_row_is_a_letter_with_its_place(
    kafka, new_topic, poison, defect
) -> None:
    topic = new_topic()
    write(kafka, topic, [*as_json([1]), poison, *as_json([2])])
    source = KafkaSource(kafka, topic, NUMBERS)
    reader = source.open(first_splits(source))
    batch = until(lambda: reader.poll(1))
    position = reader.position()
    reader.close()
    assert (batch.rows.to_pylist(), batch.messages) == ([{"n": 1}], 2)
    (letter,) = batch.letters.to_pylist()
    assert (letter["index"], letter["position"], letter["value"]) == (1, 1, poison)
    assert letter["defect"] == defect
    assert position.column("offset").to_pylist() == ["2"]


def test_a_job_stops_at_such_a_message_and_names_it(kafka: str, new_topic) -> None:
    topic = new_topic()
    write(kafka, topic, [b"null"])
    source = KafkaSource(kafka, topic, NUMBERS)
    reader = source.open(first_splits(source))
    gate = BadRowGate("numbers", BadRowPolicy(), reader.position)
    with pytest.raises(DataError, match=f"numbers, split {topic}/0, offset 0: ") as caught:
        gate.judged(until(lambda: reader.poll(1)))
    reader.close()
    assert caught.value.code is ErrorCode.BAD_ROW


def test_tombstones_are_passed_over_where_they_are_expected(kafka: str, new_topic) -> None:
    topic = new_topic()
    write(kafka, topic, [None, *as_json([1]), None, None, *as_json([2]), None])
    source = KafkaSource(
        kafka, topic, NUMBERS, until="latest", tombstones="skip", metadata=["offset"]
    )
    rows = read_all(source, first_splits(source), rows_max=1)
    assert rows == [{"n": 1, "kafka_offset": 1}, {"n": 2, "kafka_offset": 4}]


def test_columns_about_the_message(kafka: str, new_topic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    headers = [("a", b"1"), ("a", None), ("b", b"\xff")]
    write(kafka, topic, as_json([1]), key=b"k", headers=headers)
    write(kafka, topic, as_json([2]))
    names = ["key", "headers", "timestamp", "timestamp_type", "topic", "partition", "offset"]
    source = KafkaSource(kafka, topic, NUMBERS, until="latest", metadata=names)
    first, second = read_all(source, first_splits(source))
    assert first.pop("kafka_timestamp") <= second.pop("kafka_timestamp")
    assert first == {
        "n": 1,
        "kafka_key": b"k",
        "kafka_headers": [{"name": name, "value": value} for name, value in headers],
        "kafka_timestamp_type": "log-append-time",
        "kafka_topic": topic,
        "kafka_partition": 0,
        "kafka_offset": 0,
    }
    assert (second["kafka_key"], second["kafka_headers"]) == (None, [])


def test_nothing_comes_from_behind_an_open_transaction_and_all_of_it_afterwards(
    kafka: str, new_topic
) -> None:
    topic = new_topic()
    open_one = transactional(kafka, topic)
    write(kafka, topic, as_json([1]))
    open_one.begin_transaction()
    open_one.produce(topic, as_json([2])[0])
    open_one.flush(30)
    write(kafka, topic, as_json([3]))
    source = KafkaSource(kafka, topic, NUMBERS)
    reader = source.open(first_splits(source))
    assert read_rows(reader, 1) == [{"n": 1}]
    (split,) = reader._splits.values()
    until(lambda: reader.poll(9) is None and split.caught_up)
    assert reader.position().column("offset").to_pylist() == ["1"]
    open_one.commit_transaction(30)
    assert read_rows(reader, 2) == [{"n": 2}, {"n": 3}]
    reader.close()


def test_retention_that_overtakes_a_reader_is_noticed(kafka: str, new_topic) -> None:
    topic = new_topic()
    write(kafka, topic, as_json(range(10)))
    source = KafkaSource(kafka, topic, NUMBERS)
    splits = first_splits(source)
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    for answer in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        answer.result()
    reader = source.open(splits)
    with pytest.raises(IncompatibleStateError, match="no messages at offset 0 any more"):
        until(lambda: reader.poll(9))
    reader.close()


def test_partitions_are_read_side_by_side_in_the_order_of_their_times(kafka, new_topic) -> None:
    """While they catch up, rows of one do not run ahead of those of another."""
    topic = new_topic(partitions=2, retention_ms="-1")
    for n in range(20):
        write(kafka, topic, as_json([n]), n % 2, timestamp=1_000_000 + n)
    source = KafkaSource(kafka, topic, NUMBERS, until="latest", batch_messages=3)
    rows = [row["n"] for row in read_all(source, first_splits(source), rows_max=1)]
    assert sorted(rows) == list(range(20))
    assert max(abs(n - place) for place, n in enumerate(rows)) <= 6


@pytest.mark.large
def test_a_broker_that_dies_and_comes_back_costs_nothing(own_broker: KafkaBroker) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
    write(own_broker.bootstrap, "t", as_json(range(5)))
    source = KafkaSource(own_broker.bootstrap, "t", NUMBERS)
    reader = source.open(first_splits(source))
    rows = read_rows(reader, 3, rows_max=3)
    own_broker.kill()
    clock = SystemClock()
    rows += read_rows(reader, 2)
    began_ms = clock.monotonic_ms()
    assert reader.poll(9) is None
    assert clock.monotonic_ms() - began_ms < 1000, "it does not wait"
    own_broker.start()
    write(own_broker.bootstrap, "t", as_json(range(5, 10)))
    rows += read_rows(reader, 5)
    reader.close()
    assert [row["n"] for row in rows] == list(range(10))


@pytest.mark.parametrize("partitions", [1, 64, 100_000])
def test_memory_for_messages_that_were_fetched_ahead_is_divided(partitions: int) -> None:
    source = KafkaSource("b:1", "t", NUMBERS, prefetch_bytes=64 * 1024**2)
    settings = reader_settings(source, partitions)
    kib = settings["queued.max.messages.kbytes"]
    assert kib == max(64 * 1024 // partitions, 64)
    assert settings["fetch.message.max.bytes"] <= 1024 * kib


def test_more_memory_than_the_client_can_have_is_as_much_as_it_can() -> None:
    source = KafkaSource("b:1", "t", NUMBERS, prefetch_bytes=8 * 1024**3)
    settings = reader_settings(source, 1)
    Consumer(settings).close()
    assert settings["queued.max.messages.kbytes"] == 2 * 1024**2 - 1


def test_a_full_queue_is_filled_again_soon_unless_the_user_says_otherwise() -> None:
    pause = "fetch.queue.backoff.ms"
    assert reader_settings(KafkaSource("b:1", "t", NUMBERS), 1)[pause] == 20
    own = KafkaConnection("b:1", settings={pause: "500"})
    assert reader_settings(KafkaSource(own, "t", NUMBERS), 1)[pause] == "500"


def test_a_partition_that_is_held_has_no_rows_until_it_is_let_go_and_none_is_lost(
    kafka: str, new_topic
) -> None:
    topic, count = new_topic(partitions=2), 1_000
    for partition in range(2):
        values = as_json(range(partition * count, (partition + 1) * count))
        write(kafka, topic, values, partition)
    source = KafkaSource(kafka, topic, NUMBERS, until="latest", batch_messages=50)
    reader = source.open(first_splits(source))
    seen = numbers(read_rows(reader, 200, rows_max=30))
    held = frozenset({first_splits(source).column("split_id")[0].as_py()})
    first_before = sum(n < count for n in seen)

    def poll() -> None:
        if (batch := reader.poll(30)) is not None:
            seen.extend(batch.rows.column("n").to_pylist())

    def other_is_read() -> bool:
        poll()
        return sum(n >= count for n in seen) == count

    reader.hold(held)
    until(other_is_read)
    assert sum(n < count for n in seen) == first_before
    assert not reader.finished

    def all_is_read() -> bool:
        poll()
        return reader.finished

    reader.hold(frozenset())
    until(all_is_read)
    reader.close()
    assert sorted(seen) == list(range(2 * count))


def test_the_bytes_that_the_client_has_fetched_ahead_are_known(kafka: str, new_topic) -> None:
    topic = new_topic()
    write(kafka, topic, as_json(range(100)))
    source = KafkaSource(kafka, topic, NUMBERS)
    reader = source.open(first_splits(source))
    rows: list[int] = []

    def everything_was_read_and_counted() -> bool:
        """The client says it with the next statistics; they come while it is asked."""
        batch = reader.poll(100)
        rows.extend([] if batch is None else batch.rows.column("n").to_pylist())
        return len(rows) == 100 and reader.status()[0].queued_bytes == 0

    until(everything_was_read_and_counted)
    reader.close()


class Bytes(str):
    """The name of a header, which other clients than Python's may write in any encoding."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff"


def test_a_message_with_a_header_that_is_no_text_is_a_letter(kafka: str, new_topic) -> None:
    topic, other_client = new_topic(), pytest.importorskip("kafka")
    with closing(other_client.KafkaProducer(bootstrap_servers=kafka)) as producer:
        for name in ("a", Bytes("a"), "b"):
            producer.send(topic, b'{"n": 1}', headers=[(name, b"x")])
        producer.flush()
    source = KafkaSource(kafka, topic, NUMBERS, until="latest", metadata=["headers"])
    with closing(source.open(first_splits(source))) as reader:
        batch = until(lambda: reader.poll(3))
    names = [row["kafka_headers"][0]["name"] for row in batch.rows.to_pylist()]
    assert (names, batch.messages) == (["a", "b"], 3)
    (letter,) = batch.letters.to_pylist()
    assert (letter["position"], letter["defect"]) == (1, "not-utf8")


class ClientThatIsRefusedOnce(Consumer):
    """A client that a broker refuses for a moment, and that then has nothing to read."""

    def __init__(self, settings: dict) -> None:
        super().__init__(settings)
        self._note = settings["error_cb"]

    def consume(self, *_: object) -> list:
        if self._note is not None:
            self._note(KafkaError(KafkaError._AUTHENTICATION))
            self._note = None
        return []


def test_a_broker_that_refuses_for_a_moment_does_not_end_the_job(monkeypatch) -> None:
    """It may have just started, and not know its users yet; the job would not start again."""
    monkeypatch.setattr("laminar_core.connectors.kafka.reader.Consumer", ClientThatIsRefusedOnce)
    ends = {("t", 0): Bounds(0, 0, 0)}
    monkeypatch.setattr(KafkaReader, "_ask_for_ends", lambda *_: ends)
    clock = ManualClock()
    row = {"split_id": 0, "split": "t/0", "offset": "0", "topic": "t", "partition": 0}
    splits = split_table([row | {"row": 0}], SPLITS_SCHEMA)
    source = KafkaSource("127.0.0.1:1", "t", NUMBERS)
    with closing(KafkaReader(source, splits, clock)) as reader:
        assert reader.poll(1) is None
        clock.wait_ms(1)
        until(lambda: reader.status()[0].caught_up)
        clock.wait_ms(REFUSED_MS)
        assert reader.poll(1) is None
    with closing(KafkaReader(source, splits, clock)) as reader:
        assert reader.poll(1) is None
        clock.wait_ms(REFUSED_MS)
        with pytest.raises(ConfigurationError, match="correct the user or the password"):
            reader.poll(1)
