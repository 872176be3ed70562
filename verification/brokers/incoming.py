"""Cases of sources: a reader meets a fault, and a checkpoint is all that its successor has."""

# Futures of confluent-kafka have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.json
from confluent_kafka import TopicPartition

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.formats.messages import (
    MESSAGE_BYTES_MAX,
    Decoded,
    Decoder,
    Messages,
    letters_schema,
)
from laminar_core.connectors.kafka import KafkaSource
from laminar_core.connectors.kafka import reader as readers
from laminar_core.errors import ErrorCode, LaminarError, StorageUnavailable
from laminar_core.host.clock import SystemClock
from laminar_core.operators.base import JsonObject
from verification.brokers.cases import Case
from verification.brokers.judge import Verdict, judge
from verification.brokers.place import SECONDS_MAX, Place, as_json

COLUMNS = pa.schema([("id", pa.int64())])
PARTITIONS = 2
STEPS = ("opened", "half-read", "checkpointed")
"""The steps of a reader, in order; each name says what has just been done."""
_ROWS_MAX = 20
_PAUSE_MS = 2
_READ, _GONE, _WRITTEN = 30, 60, 100
"""Offsets of a loss: read before it, gone before this one, written."""
POISON = (b'{"id":1', b"}", b'{"id":2} {"id":3}', b"null", b"[1]", b"\xff")
"""Messages that are no rows, however they are put together."""


def read_through(place: Place, case: Case) -> Verdict:
    """Run a case of a source, and judge the rows that count."""
    topic = place.new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        place.write(topic, as_json(_numbers(partition, case.rows)), partition)
    source = KafkaSource(place.connection, topic, COLUMNS, until="latest", batch_messages=100)
    reading = Reading(place, source, case)
    before, problem = place.fired, None
    try:
        reading.run()
    except LaminarError as error:
        problem = f"{error.code}: {error}"
    place.settle()
    expected = (n for part in range(PARTITIONS) for n in _numbers(part, case.rows))
    return judge(expected, reading.kept, place.fired - before, problem)


class Reading:
    """Reads a bounded source, through crashes, as a job does."""

    def __init__(self, place: Place, source: KafkaSource, case: Case) -> None:
        self.kept: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        """The rows before the last checkpoint."""
        self._place = place
        self._source = source
        self._case = case
        self._clock = SystemClock()
        self._splits = first_splits(source)
        self._has_struck = False

    def run(self) -> None:
        """Read everything.

        Raises:
            LaminarError: other than an outage, which a job outlives.
        """
        deadline_ms = self._clock.monotonic_ms() + 1000 * SECONDS_MAX
        while not self._live():
            if self._clock.monotonic_ms() > deadline_ms:
                raise StorageUnavailable(ErrorCode.BROKER_UNAVAILABLE, "the rows did not come")
            self._clock.wait_ms(_PAUSE_MS)

    def _live(self) -> bool:
        """Read from the last checkpoint; return whether everything was read."""
        since: list[tuple[int, int]] = []
        try:
            assert not self._source.gaps(self._splits), "nothing is gone"
            reader = self._source.open(self._splits)
            self._reach("opened")
            deadline_ms = self._clock.monotonic_ms() + 1000 * SECONDS_MAX
            while not reader.finished and self._clock.monotonic_ms() < deadline_ms:
                batch = reader.poll(_ROWS_MAX)
                if batch is None:
                    self._clock.wait_ms(_PAUSE_MS)
                    continue
                since += [(n // self._case.rows, n) for n in batch.rows.column(0).to_pylist()]
                self._reach("half-read", at=sum(map(len, self.kept.values())) + len(since))
                if len(since) >= 4 * _ROWS_MAX or reader.finished:
                    self._splits = reader.position()
                    for partition, number in since:
                        self.kept[partition].append(number)
                    since.clear()
                    self._reach("checkpointed", at=sum(map(len, self.kept.values())))
        except (_DiedError, StorageUnavailable):
            return False
        is_done = reader.finished
        reader.close()
        return is_done

    def _reach(self, step: str, at: int | None = None) -> None:
        half = PARTITIONS * self._case.rows // 2
        if self._has_struck or step != self._case.step or (at is not None and at < half):
            return
        self._has_struck = True
        if (fault := self._case.fault) is not None:
            self._place.strike(fault)
        elif self._case.event == "broker-killed":
            self._place.kill_broker()
        if self._case.life == "dies":
            raise _DiedError


class _DiedError(Exception):
    """Ends a reader where it is."""


# --- messages that are gone, and messages that are no rows --------------------------------------


@dataclass(frozen=True, slots=True)
class Loss:
    """The cause and the number of the messages that a start has to name as lost."""

    why: str
    rows: int | None


def start_after_loss(place: Place, *, recreated: bool, trusting: bool = False) -> Verdict:
    """Lose messages while a job is down, and start it again: it has to refuse, with the range.

    ``trusting`` is the canary: gaps are not looked for, and the client goes on where it can.
    """
    topic, rows = place.new_topic(1), _WRITTEN
    place.write(topic, as_json(range(rows)), 0)
    source = KafkaSource(place.connection, topic, COLUMNS, until="latest", batch_messages=10)
    splits = first_splits(source)
    found = list(_read(source, splits, until=lambda count: count >= _READ))
    numbers, splits = found[-1]
    if recreated:
        place.admin.delete_topics([topic])[topic].result(60)
        place.create(topic, 1)
        place.write(topic, as_json(range(rows, 2 * rows)), 0)
    else:
        asked = place.admin.delete_records([TopicPartition(topic, 0, _GONE)])
        for answer in asked.values():
            answer.result(60)
    if not trusting:
        gaps = [Loss(gap.why, gap.rows_lost) for gap in source.gaps(splits)]
        right = Loss("recreated", None) if recreated else Loss("retention", _GONE - len(numbers))
        said = [gap.why for gap in gaps]
        is_right = said == [right.why] and (recreated or gaps == [right])
        return Verdict(rows=rows, fired=1, problem=None if is_right else f"refused as {gaps}")
    with _jumping():
        *_, (rest, _) = _read(source, splits, until=lambda _: False)
    return judge(range(rows), {0: [*numbers, *rest]}, fired=1)


def read_poison(place: Place, *, bare: bool = False) -> Verdict:
    """Read messages that are no rows between good ones; ``bare`` is the canary."""
    topic, rows = place.new_topic(1), 30
    values = as_json(range(1_000, 1_000 + rows))
    poison = POISON[:3] if bare else POISON  # The rest ends a process that reads them bare.
    mixed = [*values[:10], *poison, *values[10:]]
    place.write(topic, mixed, 0)
    format_ = BareJson() if bare else "json"
    source = KafkaSource(place.connection, topic, COLUMNS, until="latest", format=format_)
    *_, (numbers, _) = _read(source, first_splits(source), until=lambda _: False)
    return judge(range(1_000, 1_000 + rows), {0: numbers}, fired=1)


def _read(
    source: KafkaSource, splits: pa.Table, until: Callable[[int], bool]
) -> Iterator[tuple[list[int], pa.Table]]:
    """Yield the numbers so far, and the position behind them, until that many or all are read."""
    clock, numbers = SystemClock(), list[int]()
    deadline_ms = clock.monotonic_ms() + 1000 * SECONDS_MAX
    reader = source.open(splits)
    while not reader.finished and not until(len(numbers)):
        assert clock.monotonic_ms() < deadline_ms, "the rows did not come"
        batch = reader.poll(10)
        if batch is None:
            clock.wait_ms(_PAUSE_MS)
            continue
        numbers += batch.rows.column(0).to_pylist()
    yield numbers, reader.position()
    reader.close()


@contextmanager
def _jumping() -> Iterator[None]:
    """Let readers go on at the end if their offset is gone, as a client does that is told so."""
    real = readers.reader_settings

    def settings(*given: Any) -> dict[str, Any]:  # noqa: ANN401 - handed on
        return real(*given) | {"auto.offset.reset": "latest"}

    with patch.object(readers, "reader_settings", settings):
        yield


@dataclass(frozen=True, slots=True)
class BareJson:
    """Reads messages as lines, without a wrapper around each: the canary."""

    message_bytes_max: int = MESSAGE_BYTES_MAX

    def describe(self) -> JsonObject:
        """Return the name."""
        return {"format": "bare-json"}

    def decoder(self, schema: pa.Schema) -> Decoder:
        """Return the decoder."""
        return _BareDecoder(schema)


@dataclass(frozen=True, slots=True)
class _BareDecoder:
    schema: pa.Schema

    def decode(self, messages: Messages) -> Decoded:
        lines = pa.py_buffer(b"\n".join(messages.values.to_pylist()))
        options = pyarrow.json.ParseOptions(explicit_schema=self.schema)
        table = pyarrow.json.read_json(pa.BufferReader(lines), parse_options=options)
        (rows,) = table.combine_chunks().to_batches()
        last = len(messages.values) - 1
        origins = pa.array([min(n, last) for n in range(rows.num_rows)], pa.int64())
        schema = letters_schema(messages.positions.type)
        return Decoded(rows, origins, pa.RecordBatch.from_pylist([], schema=schema))


def _numbers(partition: int, rows: int) -> range:
    return range(partition * rows, (partition + 1) * rows)
