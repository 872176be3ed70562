"""Each event changes the metrics that it is about, and no counter ever goes back."""

import pytest

from laminar_core.driver.events import DataFlowing, Finished, StoreBack, StoreLost
from laminar_core.metrics import catalogue
from laminar_core.metrics.board import Board, Distribution
from laminar_core.metrics.catalogue import Metric
from laminar_core.metrics.changes import Counted, Observed, Shown
from laminar_core.metrics.mapping import EventMapping
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.records.source_numbers import SourceNumbers
from tests.metrics.events import completed, expired, failed, operator, progress, running, started


@pytest.fixture
def take():
    """A function that takes events and returns the values of a metric."""
    mapping, board = EventMapping(), Board()

    def take(*events, of: Metric):
        for event in events:
            board.apply(mapping.changes(event))
        return board.read()[of]

    return take


def test_a_generation_that_starts_runs_only_once_its_workers_do(take) -> None:
    assert take(started(generation=3), of=catalogue.RUNNING) == {(): 0}
    assert take(of=catalogue.GENERATION) == {(): 3}
    assert take(of=catalogue.WORKERS) == {(): 2}
    assert take(running(), of=catalogue.RUNNING) == {(): 1}
    assert take(failed(), of=catalogue.RUNNING) == {(): 0}


def test_a_failure_is_counted_by_its_code_and_a_restart_only_if_there_is_one(take) -> None:
    assert take(failed(), failed(restart_in_ms=None), of=catalogue.FAILURES) == {
        ("worker-lost",): 2
    }
    assert take(of=catalogue.RESTARTS) == {(): 1}


def test_a_recovery_lasts_from_the_first_failure_until_all_workers_run(take) -> None:
    """A start that fails on the way belongs to the same recovery."""
    events = [started(), running(2_000), failed(4_000), started(1), failed(5_000), started(1)]
    assert take(*events, of=catalogue.RECOVERY) == {}
    recovery = take(running(7_500), of=catalogue.RECOVERY)[()]
    assert isinstance(recovery, Distribution)
    assert (recovery.count, recovery.total) == (1, 3.5)
    assert take(started(1), running(9_000), of=catalogue.RECOVERY)[()] == recovery


def test_rows_of_a_fresh_job_count_from_the_first(take) -> None:
    assert take(started(), progress(8), of=catalogue.ROWS_READ) == {(): 8}
    assert take(progress(20), of=catalogue.ROWS_READ) == {(): 20}
    over = Finished(
        time_ms=9, outcome="finished", rows_in=25, rows_out=1, rows_late=0, checkpoints=1
    )
    assert take(over, of=catalogue.ROWS_READ) == {(): 25}
    assert take(of=catalogue.ROWS_WRITTEN) == {(): 1}
    assert take(of=catalogue.RUNNING) == {(): 0}


def test_rows_of_an_earlier_driver_are_not_counted(take) -> None:
    assert take(started(5), progress(1_000), of=catalogue.ROWS_READ) == {(): 0}
    assert take(progress(1_010), of=catalogue.ROWS_READ) == {(): 10}


def test_rows_that_are_read_again_count_again_and_no_counter_goes_back(take) -> None:
    assert take(started(), progress(100), of=catalogue.ROWS_READ) == {(): 100}
    restored = (failed(), started(4), progress(60))
    assert take(*restored, of=catalogue.ROWS_READ) == {(): 100}
    assert take(progress(100), of=catalogue.ROWS_READ) == {(): 140}


def test_rows_that_were_read_before_a_failure_count_when_they_are_heard_of(take) -> None:
    events = (started(), progress(100), failed(), started(4), progress(130))
    assert take(*events, of=catalogue.ROWS_READ) == {(): 130}


def test_bad_rows_count_by_what_became_of_them(take) -> None:
    bad = BadRowTotals(letters=1, dropped=2, skipped=3)
    found = take(started(), progress(bad_rows=bad), of=catalogue.BAD_ROWS)
    assert found == {("letters",): 1, ("dropped",): 2, ("skipped",): 3}


def test_an_operator_has_shares_queue_and_totals_of_its_generation(take) -> None:
    first = progress(operators={"sums": operator(), "out": operator(queued_batches=None)})
    assert take(started(), first, of=catalogue.OPERATOR_ROWS_IN)["sums",] == 10
    assert take(of=catalogue.OPERATOR_ROWS_OUT)["sums",] == 5
    assert take(of=catalogue.OPERATOR_BUSY)["sums",] == 2
    assert take(of=catalogue.OPERATOR_BACKPRESSURED)["sums",] == 0.5
    assert take(of=catalogue.OPERATOR_BUSY_SHARE) == {("sums",): 0.5, ("out",): 0.5}
    assert take(of=catalogue.OPERATOR_BACKPRESSURED_SHARE)["sums",] == 0.125
    assert take(of=catalogue.OPERATOR_QUEUED) == {("sums",): 3}
    assert take(failed(), started(4), of=catalogue.OPERATOR_QUEUED) == {}
    assert take(of=catalogue.OPERATOR_BUSY_SHARE) == {}
    again = progress(operators={"sums": operator(rows_in=4)})
    assert take(again, of=catalogue.OPERATOR_ROWS_IN)["sums",] == 14


def test_rows_that_expire_again_after_a_restore_count_again(take) -> None:
    def expired(count: int):
        return progress(operators={"sums": operator(rows_expired=count)})

    assert take(started(), expired(5), expired(9), of=catalogue.OPERATOR_ROWS_EXPIRED) == {
        ("sums",): 9
    }
    restored = (failed(), started(4), expired(7), expired(12))
    assert take(*restored, of=catalogue.OPERATOR_ROWS_EXPIRED) == {("sums",): 14}


def test_what_a_source_does_not_know_has_no_series(take) -> None:
    numbers = SourceNumbers(splits=4, lag_rows=7, discovery_ms=250)
    sources = {"in": numbers, "files": SourceNumbers()}
    assert take(progress(sources=sources), of=catalogue.SOURCE_LAG_ROWS) == {("in",): 7}
    assert take(of=catalogue.SOURCE_DISCOVERY) == {("in",): 0.25}
    assert take(of=catalogue.SOURCE_LAG) == {}
    assert take(progress(), of=catalogue.SOURCE_LAG_ROWS) == {}


def test_commits_and_sinks(take) -> None:
    sinks = {"out": SinkNumbers(publish_rows_per_s=12.5, transaction_expires_in_ms=-500)}
    event = progress(
        sinks=sinks, uncommitted_checkpoints=2, commit_ms=1_500, commit_retries=3, fenced=1
    )
    assert take(started(), event, of=catalogue.SINK_RATE) == {("out",): 12.5}
    assert take(of=catalogue.SINK_EXPIRY) == {("out",): -0.5}
    assert take(of=catalogue.UNCOMMITTED) == {(): 2}
    assert take(of=catalogue.COMMIT_DURATION) == {(): 1.5}
    assert take(event, of=catalogue.COMMIT_RETRIES) == {(): 3}
    assert take(of=catalogue.FENCED) == {(): 1}


def test_event_time_is_in_seconds_and_has_no_value_at_the_end_of_the_input(take) -> None:
    assert take(progress(watermark_us=1_500_000), of=catalogue.WATERMARK) == {(): 1.5}
    assert take(progress(watermark_us=WATERMARK_END_US), of=catalogue.WATERMARK) == {}


def test_checkpoints_under_way_and_snapshots_that_overtook(take) -> None:
    cuts = UnalignedCheckpointMetrics(unaligned_count=4, threshold_switches=1)
    event = progress(pending_checkpoints=2, unaligned=cuts)
    assert take(started(), event, of=catalogue.CHECKPOINTS_PENDING) == {(): 2}
    assert take(of=catalogue.UNALIGNED_CUTS) == {(): 4}
    assert take(of=catalogue.UNALIGNED_SWITCHES) == {(): 1}
    assert take(failed(), of=catalogue.CHECKPOINTS_PENDING) == {}


def test_a_completed_checkpoint_has_a_duration_parts_and_sizes() -> None:
    changes = EventMapping().changes(completed())
    assert changes[0] == Counted(catalogue.CHECKPOINTS, 1, ("completed", "periodic", "switched"))
    assert Observed(catalogue.CHECKPOINT_DURATION, 1.5) in changes
    parts = {c.labels: c.value for c in changes if c.metric is catalogue.CHECKPOINT_PHASE}
    assert parts == {
        ("start_delay",): 0.01, ("alignment",): 0.2, ("sync",): 0.03, ("async",): 0.4
    }  # fmt: skip
    assert Shown(catalogue.CHECKPOINT_SIZE, {(): 1_000}) in changes
    assert Counted(catalogue.CHECKPOINT_WRITTEN, 300) in changes
    assert Counted(catalogue.CHECKPOINT_INFLIGHT_WRITTEN, 50) in changes
    assert Shown(catalogue.CHECKPOINT_COMPLETED_AT, {(): 5.0}) in changes
    assert Shown(catalogue.OPERATOR_SIZE, {("sums",): 900}) in changes
    assert Counted(catalogue.OPERATOR_WRITTEN, 250, ("sums",)) in changes


def test_channels_are_those_of_the_last_checkpoint(take) -> None:
    waits = {("sums", "in", "1"): 0.15, ("sums", "in", "0"): 0.02}
    assert take(completed(), of=catalogue.CHANNEL_ALIGNMENT) == waits
    assert take(completed(channels=()), of=catalogue.CHANNEL_ALIGNMENT) == {}


def test_a_checkpoint_that_failed_counts_by_its_outcome(take) -> None:
    assert take(completed(), expired(), of=catalogue.CHECKPOINTS) == {
        ("completed", "periodic", "switched"): 1,
        ("expired", "periodic", "none"): 1,
    }


def test_a_store_is_lost_until_it_is_back(take) -> None:
    lost = StoreLost(time_ms=1, generation=1, code="store-gone", reason="it is gone")
    assert take(lost, of=catalogue.STORE_LOST) == {(): 1}
    assert take(StoreBack(time_ms=2, generation=1), of=catalogue.STORE_LOST) == {(): 0}


def test_other_events_change_nothing() -> None:
    assert EventMapping().changes(DataFlowing(time_ms=1, generation=1)) == []


def test_every_change_has_the_labels_of_its_metric() -> None:
    mapping = EventMapping()
    events = [started(), running(), progress(operators={"sums": operator()}), completed()]
    for event in [*events, expired(), failed(), started(1), running()]:
        for change in mapping.changes(event):
            rows = change.values if isinstance(change, Shown) else [change.labels]
            assert all(len(labels) == len(change.metric.labels) for labels in rows), change
            expected = {"counter": Counted, "gauge": Shown, "histogram": Observed}
            assert isinstance(change, expected[change.metric.kind])
