"""The newest reports of the workers are added up."""

from dataclasses import asdict

from laminar_core.driver.progress import RowTotals, WorkersProgress
from laminar_core.link.messages import Progress, SourceProgress
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.records.source_numbers import SourceNumbers


def report(worker: int, rows_in: int = 0, **changes) -> Progress:
    fields = {
        "generation": 1,
        "worker": worker,
        "rows_in": rows_in,
        "rows_out": 2 * rows_in,
        "rows_late": 1,
        "flowing": True,
        "drained": False,
        "watermark_us": None,
        "unaligned": UnalignedCheckpointMetrics(),
    }
    return Progress(**fields | changes)


def test_totals_are_of_the_newest_reports():
    progress = WorkersProgress(2, 0)
    for said in (report(0, 1), report(1, 10), report(0, 5)):
        progress.keep(said)
    assert progress.totals() == RowTotals(15, 30, 2)


def test_it_is_complete_when_everybody_has_reported_and_drained_when_all_are():
    progress = WorkersProgress(2, 0)
    progress.keep(report(0, drained=True))
    assert (progress.complete, progress.drained) == (False, False)
    progress.keep(report(1))
    assert (progress.complete, progress.drained) == (True, False)
    progress.keep(report(1, drained=True))
    assert progress.drained


def test_a_heartbeat_says_nothing_before_everybody_has_reported():
    progress = WorkersProgress(2, 0)
    progress.keep(report(0, 5))
    assert progress.as_json(0) == {}
    progress.keep(report(1, 2, watermark_us=9))
    said = {"rows_in": 7, "rows_out": 14, "rows_late": 2, "watermark_us": None}
    assert progress.as_json(1_000) == said


def test_the_numbers_of_a_source_are_added_up_over_workers():
    progress = WorkersProgress(2, 0)
    for worker, lag in enumerate((3, 4)):
        numbers = SourceNumbers(splits=1, lag_rows=lag)
        sources = {"in": SourceProgress(rows_unread=0, numbers=numbers)}
        progress.keep(report(worker, sources=sources))
    assert progress.sources() == {"in": SourceNumbers(splits=2, lag_rows=7)}


def test_bad_rows_of_all_workers_are_added_up_and_a_heartbeat_has_them_if_there_are_any():
    progress = WorkersProgress(2, 0)
    progress.keep(report(0, 5, bad_rows=BadRowTotals(letters=1, dropped=2)))
    progress.keep(report(1, 5, bad_rows=BadRowTotals(letters=10, skipped=3)))
    every = BadRowTotals(letters=11, dropped=2, skipped=3)
    assert progress.totals().bad_rows == every
    assert progress.event(1_000, 1, None).bad_rows == every
    assert progress.as_json(1_000)["bad_rows"] == {"letters": 11, "dropped": 2, "skipped": 3}


def test_a_heartbeat_says_the_rate_since_the_last_one():
    """Not since the start: a job that goes on has read rows before."""
    progress = WorkersProgress(1, 0)
    progress.keep(report(0, 100_000, watermark_us=7))
    assert "rows_per_s" not in progress.as_json(1_000)
    progress.keep(report(0, 100_050, watermark_us=8))
    told = progress.as_json(1_500)
    assert (told["rows_per_s"], told["watermark_us"]) == (100, 8)
    assert progress.as_json(2_000)["rows_per_s"] == 0


def test_a_heartbeat_counts_requests_of_the_workers_and_of_the_driver_since_it_began():
    objects = CountedObjectStore(MemoryObjectStore())
    objects.put("a", b"12")  # Of an earlier generation in the same driver.
    progress = WorkersProgress(2, 0, objects)
    objects.get("a")
    progress.keep(report(0, requests=RequestCounts(puts=3, bytes_up=30)))
    progress.keep(report(1, requests=RequestCounts(puts=4, lists=1)))
    expected = RequestCounts(puts=7, gets=1, lists=1, bytes_up=30, bytes_down=2)
    assert progress.as_json(0)["requests"] == asdict(expected)


def test_a_heartbeat_does_not_guess_requests_that_somebody_does_not_count():
    counting = WorkersProgress(1, 0, CountedObjectStore(MemoryObjectStore()))
    counting.keep(report(0))
    assert "requests" not in counting.as_json(0)
    blind = WorkersProgress(1, 0, MemoryObjectStore())
    blind.keep(report(0, requests=RequestCounts(puts=1)))
    assert "requests" not in blind.as_json(0)


def test_the_rate_is_since_the_last_event():
    progress = WorkersProgress(1, 0)
    progress.keep(report(0, 1_000_000))  # Of earlier generations.
    progress.keep(report(0, 1_000_100))
    assert progress.event(1_000, 5, None).rows_per_s == 100
    progress.keep(report(0, 1_000_150))
    assert progress.event(1_500, 6, None).rows_per_s == 100


def test_the_watermark_is_the_slowest_and_unknown_until_everybody_has_one():
    progress = WorkersProgress(2, 0)
    progress.keep(report(0, watermark_us=7))
    progress.keep(report(1))
    assert progress.event(1, 1, None).watermark_us is None
    progress.keep(report(1, watermark_us=9))
    assert progress.event(2, 2, None).watermark_us == 7
