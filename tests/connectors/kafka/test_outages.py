"""Before a job starts it is known how long it may be down."""

from collections.abc import Callable

import pytest

from laminar_core.connectors.kafka.outages import outage_ms_of
from laminar_core.connectors.kafka.sink import KafkaSink
from laminar_core.connectors.outlook import Promise
from laminar_core.errors import ConfigurationError
from tests.connectors.kafka.publishing import SCHEMA

MINUTE = 60_000


def test_an_interval_takes_its_part_of_a_transaction():
    assert outage_ms_of("t", 15 * MINUTE, Promise(MINUTE)) == 14 * MINUTE
    assert outage_ms_of("t", 15 * MINUTE, Promise(None)) == 15 * MINUTE
    enough = Promise(MINUTE, 4 * MINUTE, 10 * MINUTE)
    assert outage_ms_of("t", 15 * MINUTE, enough) == 14 * MINUTE


@pytest.mark.parametrize(
    ("promise", "problem"),
    [
        (Promise(15 * MINUTE), "checkpoints are 15 minutes apart"),
        (Promise(MINUTE, 4 * MINUTE, 11 * MINUTE), "take 16 minutes together: raise it"),
    ],
)
def test_a_transaction_that_cannot_live_long_enough_is_refused(promise: Promise, problem: str):
    with pytest.raises(ConfigurationError, match=problem):
        outage_ms_of("t", 15 * MINUTE, promise)


def test_a_start_says_how_long_the_job_may_be_down(kafka: str, new_topic: Callable[..., str]):
    topic = new_topic()
    sink = KafkaSink(kafka, topic, delivery="transaction")
    (line,) = sink.check(SCHEMA, Promise(10_000))
    assert line.startswith(f"topic {topic}: the job may be down for 14 minutes 50 seconds")
    (line,) = sink.check(SCHEMA, Promise(None))
    assert "nothing triggers checkpoints" in line


def test_more_than_the_brokers_allow_is_refused(kafka: str, new_topic: Callable[..., str]):
    sink = KafkaSink(kafka, new_topic(), delivery="transaction", transaction_timeout="2 hours")
    with pytest.raises(ConfigurationError, match=r"the brokers allow 15 minutes: raise their tra"):
        sink.check(SCHEMA, Promise(10_000))
