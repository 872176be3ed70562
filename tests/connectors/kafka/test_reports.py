"""The cause that a client reports is part of the error, until a request succeeds."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from laminar_core.connectors.kafka.connection import KafkaConnection
from laminar_core.connectors.kafka.reports import (
    REFUSED_LOOKS,
    REFUSED_MS,
    ClientReports,
    ReaderRefusal,
)
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.clock import ManualClock

AT = KafkaConnection("broker:9092", secrets={"sasl.password": "LAMINAR_TEST_PASSWORD"})
SILENT = KafkaError(KafkaError._TIMED_OUT, "nobody answered")


def raised(reports: ClientReports, error: KafkaError = SILENT) -> Exception:
    with pytest.raises(Exception) as caught, reports.explained("asking"):  # noqa: PT011
        raise KafkaException(error)
    assert "\n" not in str(caught.value)
    return caught.value


def test_without_a_report_the_error_stays_as_it_is():
    error = raised(ClientReports(AT))
    assert isinstance(error, StorageUnavailable)
    assert str(error) == "Kafka at broker:9092, asking: _TIMED_OUT: nobody answered"


def test_the_last_cause_is_added_and_what_only_repeats_the_silence_is_not(monkeypatch):
    monkeypatch.setenv("LAMINAR_TEST_PASSWORD", "hunter2")
    reports = ClientReports(AT)
    reports.note(KafkaError(KafkaError._TRANSPORT, "refused"))
    reports.note(KafkaError(KafkaError._SSL, "not\ntrusted, hunter2"))
    reports.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all down"))
    error = raised(reports)
    assert isinstance(error, StorageUnavailable)
    assert error.code is ErrorCode.BROKER_UNAVAILABLE
    assert str(error).endswith("nobody answered; _SSL: not trusted, …")


def test_who_is_refused_is_told_so_and_not_that_nobody_answers():
    reports = ClientReports(AT, "laminar.payments.out")
    reports.note(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    reports.note(KafkaError(KafkaError._TRANSPORT, "closed"))
    error = raised(reports)
    assert isinstance(error, ConfigurationError)
    assert error.code is ErrorCode.BROKER_ACCESS_DENIED
    assert str(error).endswith("allow this user to read the consumer group laminar.payments.out")


def test_a_refusal_counts_once_it_has_stood_for_a_while():
    reports = ClientReports(AT)
    denied = KafkaError(KafkaError._AUTHENTICATION)
    assert reports.refusal(lambda: reports.note(SILENT)) is None
    seen = [reports.refusal(lambda: reports.note(denied)) for _ in range(REFUSED_LOOKS)]
    assert seen[:-1] == [None] * (REFUSED_LOOKS - 1)
    assert seen[-1] is not None
    reports.clear()
    assert reports.refusal(lambda: None) is None


def test_a_request_that_is_refused_is_not_waited_for():
    reports, answer = ClientReports(AT), Future[int]()
    denied = KafkaError(KafkaError._AUTHENTICATION)
    with pytest.raises(KafkaException) as refused:
        reports.result_of(answer, lambda: reports.note(denied))
    assert refused.value.args[0] is denied
    answer.set_result(7)
    assert reports.result_of(answer, lambda: None) == 7


def test_a_request_that_succeeds_makes_reports_old():
    reports = ClientReports(AT)
    reports.note(KafkaError(KafkaError._AUTHENTICATION))
    with reports.explained("asking"):
        pass
    assert isinstance(raised(reports), StorageUnavailable)
    assert raised(reports, KafkaError(KafkaError._FENCED)).code is ErrorCode.FENCED


class TestReaderRefusal:
    PASSWORD = KafkaError(KafkaError._AUTHENTICATION)
    GROUP = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

    def setup_method(self):
        self.clock = ManualClock()
        self.refusal = ReaderRefusal(self.clock)

    def after(self, ms: float) -> KafkaError | None:
        self.clock.wait_ms(ms)
        return self.refusal.standing()

    def test_it_counts_once_it_has_stood_for_a_while(self):
        self.refusal.note(SILENT)
        assert self.after(REFUSED_MS) is None
        self.refusal.note(self.PASSWORD)
        assert self.after(REFUSED_MS - 1) is None
        self.refusal.note(self.PASSWORD)
        assert self.after(1) is self.PASSWORD

    def test_a_user_who_is_accepted_afterwards_is_refused_no_more(self):
        """A broker that has just started may not know its users yet."""
        self.refusal.note(self.PASSWORD)
        asked_ms = self.clock.monotonic_ms()
        self.refusal.accepted(asked_ms)
        assert self.after(REFUSED_MS) is self.PASSWORD, "asked before"
        self.refusal.accepted(asked_ms + 1)
        assert self.after(REFUSED_MS) is None

    def test_another_refusal_has_a_time_of_its_own(self):
        self.refusal.note(self.GROUP)
        assert self.after(REFUSED_MS) is self.GROUP
        self.refusal.note(self.PASSWORD)
        assert self.after(REFUSED_MS - 1) is None
        assert self.after(1) is self.PASSWORD

    def test_a_right_that_is_missing_stays_missing(self):
        self.refusal.note(self.GROUP)
        self.refusal.accepted(self.clock.monotonic_ms() + 1)
        assert self.after(REFUSED_MS) is self.GROUP
