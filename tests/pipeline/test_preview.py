"""A preview: the first rows of a stream from real input, bounded, and nothing is written."""

import threading
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors import CollectSink, DatagenSource, ParquetSink, Sequence
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, JobFailedError
from laminar_core.operators import agg, windows
from laminar_core.pipeline import LettersTo, Pipeline, preview
from laminar_core.testing import MemorySource

HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(6)]
PAYMENTS = pa.table({"at": HOURS, "merchant": list("abacab"), "cents": [1, 2, 3, 4, 5, 6]})


def payments(**options):
    p = Pipeline("payments")
    return p, p.source("payments", MemorySource([PAYMENTS], batch_rows=4), **options)


def test_the_first_rows_come_in_order_and_no_more_than_asked_for():
    _, rows = payments()
    assert rows.preview(5).to_pylist() == PAYMENTS.slice(0, 5).to_pylist()
    assert rows.preview().equals(PAYMENTS)


def test_an_endless_source_is_left_when_there_are_enough_rows():
    source = DatagenSource({"n": Sequence()}, rows=None)
    rows = Pipeline("endless").source("in", source, rows_per_second=0.01)
    assert rows.preview(3).column("n").to_pylist() == [0, 1, 2]


def test_operators_work_as_in_a_job_and_windows_close_when_the_input_is_over():
    _, rows = payments()
    hourly = rows.watermark("at").key_by("merchant").window(windows.tumbling("1 day"))
    totals = hourly.aggregate("per-merchant", agg.sum("cents"))
    found = {row["merchant"]: row["sum_cents"] for row in totals.preview().to_pylist()}
    assert found == {"a": 9, "b": 8, "c": 4}
    bounded = totals.preview(input_rows_max=3).to_pylist()
    assert {row["merchant"]: row["sum_cents"] for row in bounded} == {"a": 4, "b": 2}


def test_a_source_that_never_ends_counts_as_ended_when_the_time_is_over():
    source = MemorySource([PAYMENTS], batch_rows=6, bounded=False)
    rows = Pipeline("waiting").source("in", source)
    assert rows.preview(100, wait_max="50 milliseconds").num_rows == PAYMENTS.num_rows


def test_the_time_of_a_source_begins_with_its_first_read_however_late_that_is():
    p = Pipeline("late")
    first, second = (
        p.source(n, MemorySource([PAYMENTS], batch_rows=6, bounded=False)) for n in "ab"
    )
    rows = first.union(second)
    assert rows.preview(100, wait_max="1 ms").num_rows == 2 * PAYMENTS.num_rows


def test_several_inputs_loops_and_updates_are_previewed():
    p, rows = payments()
    names = pa.table({"id": list("abc"), "name": ["Ann", "Bo", "Cy"]})
    merchants = p.source("merchants", MemorySource([names]))
    joined = rows.join(merchants, on={"merchant": "id"}, unbounded=True)
    assert joined.preview().column("_weight").to_pylist() == [1] * PAYMENTS.num_rows
    count = rows.key_by("merchant").aggregate("running", agg.count())
    assert count.preview(2).num_rows == 2

    def body(stream):
        tried = stream.map(lambda batch: batch)
        return tried.filter(pc.field("cents") < 0), tried

    assert p.iterate(rows, body).preview().num_rows == PAYMENTS.num_rows


def test_sinks_of_the_pipeline_are_not_opened_and_letters_are_left_out(tmp_path):
    p = Pipeline("bad")
    source = MemorySource([PAYMENTS], bad_every=3)
    letters = LettersTo("bad", ParquetSink(str(tmp_path / "bad")))
    rows = p.source("in", source, on_bad_row=letters, bad_share_max="100%")
    rows.sink("out", ParquetSink(str(tmp_path / "out")))
    assert rows.preview().column("cents").to_pylist() == [1, 2, 4, 5]
    assert list(tmp_path.iterdir()) == []


def test_a_side_output_is_previewed_without_the_rest():
    p = Pipeline("sides")
    rows = p.source("in", MemorySource([PAYMENTS], bad_every=3), on_bad_row="letters")
    assert rows.side("letters").preview(1).num_rows == 1


def test_a_preview_leaves_the_pipeline_as_it_was():
    p, rows = payments()
    rows.sink("out", CollectSink())
    before = p.plan().descriptions()
    rows.preview()
    assert p.plan().descriptions() == before


def test_what_fails_in_a_function_is_told_in_one_line():
    def fail(_):
        raise ZeroDivisionError("seven")

    _, rows = payments()
    failing = rows.map(fail, schema=rows.schema, name="rates")
    said = "^the preview of rates failed: worker 0: operator rates: ZeroDivisionError: seven"
    with pytest.raises(JobFailedError, match=said):
        failing.preview()


def test_a_bad_row_stops_a_preview_as_it_stops_the_job():
    rows = Pipeline("bad").source("in", MemorySource([PAYMENTS], bad_every=2))
    with pytest.raises(DataError, match="the preview of in failed"):
        rows.preview()


def test_a_function_that_does_not_return_ends_the_preview_with_a_line(monkeypatch):
    monkeypatch.setattr(preview, "END_MAX_S", 0.05)
    returns = threading.Event()

    def wait(batch):
        returns.wait(60)
        return batch

    _, rows = payments()
    slow = rows.map(wait, schema=rows.schema, name="slow")
    try:
        with pytest.raises(JobFailedError, match=r"slow emitted no row in .* wait_max") as caught:
            slow.preview(wait_max="3 seconds")  # Long enough for a first row to be read.
    finally:
        returns.set()
    assert caught.value.code is ErrorCode.NO_PROGRESS


@pytest.mark.parametrize("bounds", [(0, {}), ("3", {}), (1, {"input_rows_max": 0})])
def test_a_preview_of_nothing_is_refused(bounds):
    _, rows = payments()
    n, options = bounds
    with pytest.raises(
        ConfigurationError, match=r"must be (at least 1, not 0|a whole number, not '3')"
    ):
        rows.preview(n, **options)


def test_rows_are_printed_by_show(capsys):
    _, rows = payments()
    rows.select("merchant", "cents").show(2)
    assert capsys.readouterr().out == "merchant  cents\na         1\nb         2\n"
