"""Numbers of sinks are read from heartbeats of any version."""

from laminar_core.records.sink_numbers import SinkNumbers, sinks_of

ONE = SinkNumbers(publish_rows_per_s=12.5, transaction_expires_in_ms=-3)


def test_heartbeats_of_older_and_newer_drivers_can_be_read() -> None:
    assert sinks_of({}) == {}
    assert sinks_of({"sinks": {"out": {**ONE.model_dump(), "more": 5}}}) == {"out": ONE}
    assert sinks_of({"sinks": {"out": {}}}) == {"out": SinkNumbers()}


def test_numbers_that_cannot_be_read_are_left_out() -> None:
    damaged = {"out": ONE.model_dump(), "odd": {"publish_rows_per_s": "many"}, "none": None}
    assert sinks_of({"sinks": damaged}) == {"out": ONE}
    assert sinks_of({"sinks": [1]}) == {}
