"""A call of the client that never returns is given up; any other one is what it is."""

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from laminar_core.connectors.kafka.bounded import bounded


def test_a_call_that_returns_changes_nothing() -> None:
    done = []
    bounded(lambda: done.append(1), 60)
    assert done == [1]


def test_its_error_is_raised_as_it_is() -> None:
    error = KafkaException(KafkaError(KafkaError._FENCED))

    def fail() -> None:
        raise error

    with pytest.raises(KafkaException) as raised:
        bounded(fail, 60)
    assert raised.value is error


def test_a_call_is_given_up_as_soon_as_it_is_refused() -> None:
    for_ever = threading.Event()
    looks: list[KafkaException | None] = [None, KafkaException(KafkaError(KafkaError._FENCED))]
    with pytest.raises(KafkaException) as raised:
        bounded(for_ever.wait, 10_000, refusal=lambda: looks.pop(0))
    assert raised.value.args[0].code() == KafkaError._FENCED
    for_ever.set()


def test_a_call_that_never_returns_is_given_up() -> None:
    for_ever = threading.Event()
    with pytest.raises(KafkaException) as raised:
        bounded(for_ever.wait, 0, grace=0.01)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    for_ever.set()
