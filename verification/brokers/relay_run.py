"""One relay from its first row to its last: topics, input by rounds, drivers, and the judgement."""

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewPartitions  # pyright: ignore[reportPrivateImportUsage] - documented

from verification.brokers.judge import Verdict, judge
from verification.brokers.place import Place
from verification.brokers.relay import RelaySettings
from verification.brokers.relay_driver import JsonEvent, RelayDriver
from verification.brokers.strikes import Strikes

KEYS = 5
"""Keys of each partition of the input: the rows of a key keep their order."""
_SPAN = 1_000_000
"""Numbers of each partition of the input."""
_NUMBERS = itertools.count()


class RelayRun:
    """The topics and the folder of one job.

    Args:
        place: the broker.
        folder: for the store, the logs and the strikes.
        delivery: a name in ``DELIVERIES`` or ``FLAWED``.
        rows: of each partition of the input, and round.
        sink: the topic to write to; None: one is created.
        settings: more fields of ``RelaySettings``.
    """

    def __init__(
        self,
        place: Place,
        folder: Path,
        delivery: str,
        rows: int = 20,
        sink: str | None = None,
        **settings: Any,  # noqa: ANN401 - fields
    ) -> None:
        self._place = place
        name = f"relay-{next(_NUMBERS)}"
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self.strikes = Strikes(self._folder / "strikes")
        self.source, self.sink = place.new_topic(2), sink or place.new_topic(2)
        self._partitions, self._rows = 2, rows
        self._written: dict[int, int] = defaultdict(int)
        client = dict(place.connection.settings) | settings.pop("client", {})
        self._settings = RelaySettings(
            job=f"{name}-{self.source}", store=str(self._folder / "store"),
            bootstrap=place.connection.bootstrap, source=self.source, sink=self.sink,
            delivery=delivery, client=client, **settings,
        )  # fmt: skip

    @property
    def total(self) -> int:
        """The rows that were written so far."""
        return sum(self._written.values())

    def feed(self) -> None:
        """Write one round into each partition of the input."""
        for partition in range(self._partitions):
            first = self._written[partition]
            numbers = range(first, first + self._rows)
            self._place.write(self.source, [_message(partition, n) for n in numbers], partition)
            self._written[partition] += self._rows

    def add_partition(self) -> None:
        """Give the input one more partition."""
        self._partitions += 1
        new = NewPartitions(self.source, self._partitions)
        self._place.admin.create_partitions([new])[self.source].result(30)  # pyright: ignore[reportUnknownMemberType] - futures have no types

    def start(self, **changed: Any) -> RelayDriver:  # noqa: ANN401 - fields
        """Start a driver that continues the job."""
        settings = self._settings.model_copy(update=changed)
        return RelayDriver(settings, self._folder / "drivers.log", self.strikes.environment)

    def has_read_all(self, event: JsonEvent) -> bool:
        """Whether an event says that every row that was written is read."""
        return event["event"] == "progress" and event["rows_in"] == self.total

    def finish(self, driver: RelayDriver) -> None:
        """Let a driver read everything and stop."""
        driver.wait_for("reading all rows", self.has_read_all)
        driver.stop()

    def verdict(self, fired: int = 0, problem: str | None = None) -> Verdict:
        """Judge what readers of committed messages see: every row once, in order for each key."""
        expected = (_id(part, n) for part, rows in self._written.items() for n in range(rows))
        return judge(expected, _by_key(self._place.read(self.sink)), fired, problem)


def _id(partition: int, number: int) -> int:
    return partition * _SPAN + number


def _message(partition: int, number: int) -> bytes:
    key = partition * KEYS + number % KEYS
    return json.dumps({"id": _id(partition, number), "key": key}).encode()


def _by_key(found: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Return the rows of each key in the order in which they are in the topic."""
    keys: dict[int, list[int]] = defaultdict(list)
    for rows in found.values():
        for row in rows:
            keys[row // _SPAN * KEYS + row % KEYS].append(row)
    return keys
