"""The texts that say where a Kafka source begins, and a job that is told to begin there again."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from laminar_core.connectors.kafka import KafkaSource
from laminar_core.connectors.kafka.start_text import start_of
from laminar_core.driver.events import CheckpointCompleted
from laminar_core.driver.recovery.start_texts import ResetFrom
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import normal, payments, rows_of
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError
from tests.connectors.kafka.writing import NUMBERS, as_json, write

VISITS = payments(2, 60)
MESSAGES = 30
"""In each of the two partitions; the second half of them is a day younger."""
SUNDAY = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2026-03-01T13:00:00+01:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ('{"t/0": 120, "t/1": 0}', {"t/0": 120, "t/1": 0}),
        ('{"t/0": "120"}', {"t/0": 120}),
    ],
)
def test_a_source_begins_where_the_text_says(text: str, start: object) -> None:
    source = KafkaSource("b:1", "t", NUMBERS, metadata=["offset"], batch_messages=7)
    moved = source.starting_at(text)
    assert moved.start == start
    assert moved.describe() == source.describe()
    assert moved.batch_messages == 7


OFFSETS = ['{"t/0": null}', '{"t/0": 1e999}', '{"t/0": 1.9}', '{"t/0": true}']
TEXTS = ["yesterday", "2026-03-01T12:00:00", "{", "[1]", *OFFSETS]


@pytest.mark.parametrize("text", [*TEXTS, pytest.param('{"t": ' * 100_000, id="deep")])
def test_other_texts_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no place to begin in a topic: give earliest"):
        start_of(text)


@dataclass
class Job:
    """Numbers from a topic are counted; visits, from memory, are copied and know nothing of it."""

    kafka: str
    topic: str
    counts: Ledger = field(default_factory=Ledger)
    copy: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        for partition in (0, 1):
            for first, day in ((0, -1), (MESSAGES // 2, 0)):
                numbers = range(100 * partition + first, 100 * partition + first + MESSAGES // 2)
                time_ms = int(SUNDAY.timestamp() * 1000) + day * 24 * 3600 * 1000
                write(self.kafka, self.topic, as_json(numbers), partition, timestamp=time_ms)

    def plan(self, *aggregates: agg.Aggregate) -> Plan:
        p = Pipeline("simulated")
        source = KafkaSource(self.kafka, self.topic, NUMBERS, until="latest")
        numbers = p.source("numbers", source, rows_per_second=80)
        counts = numbers.key_by("n").aggregate("counts", *aggregates)
        counts.sink("out", LedgerSink(self.counts, "out"))
        visits = p.source("visits", MemorySource(VISITS), rows_per_second=80)
        visits.sink("copy", LedgerSink(self.copy, "copy"))
        return p.plan()

    def begin(self) -> Simulation:
        """Run until numbers have been shown and the driver is killed; then change the count."""
        simulation = Simulation(
            self.plan(agg.count()), checkpoint=CoordinatorConfig(interval_ms=40)
        )

        def kill_once_shown() -> None:
            if self.counts.rows():
                simulation.kill_driver()
                return
            seen = sum(isinstance(event, CheckpointCompleted) for event in simulation.events)
            simulation.when(CheckpointCompleted, kill_once_shown, seen + 1)

        simulation.when(CheckpointCompleted, kill_once_shown)
        with pytest.raises(ProcessKilledError):
            simulation.run()
        simulation.plan = self.plan(agg.count(name="seen"))
        return simulation

    def reset(self, position: str) -> dict[str, tuple]:
        return {"reset_state": ("counts",), "reset_from": (ResetFrom("numbers", position),)}

    def check(self, *numbers: range) -> None:
        """These numbers are counted once, by the new definition, and the visits are all there."""
        found = sorted((row["n"], row["seen"]) for row in self.counts.rows())
        assert found == [(n, 1) for some in numbers for n in some]
        assert normal(self.copy.rows()) == normal(rows_of(VISITS))


def test_a_part_of_a_job_reads_a_topic_again_from_offsets_and_from_a_time(
    kafka: str, new_topic: Callable[..., str]
) -> None:
    topics = [new_topic(partitions=2, retention_ms="-1") for _ in range(2)]
    by_offset = json.dumps({f"{topics[0]}/0": 10, f"{topics[0]}/1": 25})
    stated = (by_offset, (10, 25)), (SUNDAY.isoformat(), (MESSAGES // 2, MESSAGES // 2))
    for topic, (position, first) in zip(topics, stated, strict=True):
        job = Job(kafka, topic)
        assert job.begin().run(**job.reset(position)).outcome == "finished"
        job.check(range(first[0], MESSAGES), range(100 + first[1], 100 + MESSAGES))


def test_an_offset_that_retention_has_removed_is_refused_in_one_line_and_can_be_corrected(
    kafka: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2, retention_ms="-1")
    job = Job(kafka, topic)
    simulation = job.begin()
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    for answer in admin.delete_records([TopicPartition(topic, 0, 12)]).values():
        answer.result()
    with pytest.raises(ConfigurationError) as refused:
        simulation.run(**job.reset(json.dumps({f"{topic}/0": 10, f"{topic}/1": 0})))
    assert str(refused.value) == (
        f"start has offset 10 for {topic}/0, which has offsets 12 to 30: the messages before are"
        " gone, so give one of these offsets, or begin at earliest"
    )
    assert simulation.run(**job.reset("earliest")).outcome == "finished"
    job.check(range(12, MESSAGES), range(100, 100 + MESSAGES))
