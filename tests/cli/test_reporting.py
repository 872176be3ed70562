"""A run tells what happens: lines for people, one JSON object per line for programs."""

import json

import pyarrow as pa
import pytest

from laminar_core.cli.reporting import JsonReporter, TextReporter
from laminar_core.cli.views import ROWS_SHOWN
from laminar_core.driver.events import (
    ApplicationEnded,
    ApplicationLeft,
    CheckpointCompleted,
    CheckpointFailed,
    CleanUpFailed,
    CommandAnswered,
    CommitDelayed,
    DataFlowing,
    FilesDamaged,
    Finished,
    GenerationFailed,
    GenerationStarted,
    JobEvent,
    NotEncrypted,
    ProgressMade,
    RejectedCheckpoint,
    RestoreProgressed,
    SplitsNotFound,
    StoreBack,
    StoreLost,
    ThresholdTooLow,
    WorkersRunning,
)
from laminar_core.errors import DataError, ErrorCode
from laminar_core.protocol.types import CheckpointKind
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.records.damage import DamagedFile

STARTED = GenerationStarted(
    time_ms=1, generation=3, parallelism=2, restored_checkpoint_id=7, rows_total=None
)
COMPLETED = CheckpointCompleted(
    time_ms=1,
    checkpoint_id=8,
    generation=3,
    kind=CheckpointKind.PERIODIC,
    mode="aligned",
    duration_ms=12.4,
    alignment_ms=1,
    sync_ms=1,
    async_ms=1,
    size_bytes=2_500_000,
    written_bytes=120_000,
)
FAILED = CheckpointFailed(
    time_ms=1,
    checkpoint_id=9,
    generation=3,
    kind=CheckpointKind.PERIODIC,
    outcome="expired",
    reason="[Errno 28] no space",
)
LOST = GenerationFailed(
    time_ms=1, generation=3, code="worker-lost", reason="worker 1: killed", restart_in_ms=50
)
FINISHED = Finished(
    time_ms=1, outcome="finished", rows_in=1_000, rows_out=10, rows_late=0, checkpoints=2
)
PROGRESS = ProgressMade(
    time_ms=1, rows_in=5, rows_out=0, rows_late=0, rows_total=10, rows_per_s=1, watermark_us=None
)
RESTORED = RestoreProgressed(
    time_ms=1,
    generation=3,
    files=12,
    files_total=12,
    size_bytes=250_000_000,
    bytes_total=250_000_000,
    percent=100.0,
)
REJECTED = (RejectedCheckpoint(checkpoint_id=8, reason="a [torn] file"),)
ANSWERED = CommandAnswered(
    time_ms=1,
    number=4,
    command="savepoint",
    actor="ann",
    outcome="completed",
    reason="",
    checkpoint_id=9,
    savepoint="/backups/s",
)
BEGUN = STARTED.model_copy(update={"restored_checkpoint_id": None, "parallelism": 1})


def change(event: JobEvent, **changes) -> JobEvent:
    return event.model_copy(update=changes)


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (
            ApplicationEnded(
                time_ms=1, generation=3, application_id="app-7", master="spark://m:7077"
            ),
            ["ended Spark application app-7 of generation 3, whose driver is dead"],
        ),
        (
            ApplicationLeft(
                time_ms=1,
                generation=3,
                application_id="app-7",
                master="spark://m:7077",
                reason="http://m:8080 does not answer",
            ),
            [
                (
                    "warning: Spark application app-7 of generation 3 may still hold cores of "
                    "spark://m:7077: http://m:8080 does not answer"
                )
            ],
        ),
        (
            NotEncrypted(time_ms=1, missing=("spark.authenticate", "spark.network.crypto.enabled")),
            [
                (
                    "warning: a reader of the cluster's network can connect as a worker, because "
                    "Spark sends their key unencrypted: set spark.authenticate and "
                    "spark.network.crypto.enabled to true (docs/security.md), or require it with "
                    "--require-encryption"
                )
            ],
        ),
        (
            CommitDelayed(time_ms=1, checkpoint_id=7, reason="down", uncommitted_checkpoints=1),
            ["the output of checkpoint 7 is not committed yet and is tried again: down"],
        ),
        (STARTED, ["generation 3 starts from checkpoint 7, 2 workers"]),
        (BEGUN, ["generation 3 starts from the beginning, 1 worker"]),
        (
            STARTED.model_copy(update={"parallelism": 3, "restored_workers": 2}),
            ["generation 3 continues checkpoint 7 of 2 workers with 3"],
        ),
        (
            STARTED.model_copy(update={"restored_workers": 1}),
            ["generation 3 continues checkpoint 7 of 1 worker with 2"],
        ),
        (
            change(STARTED, rejected=REJECTED),
            [
                "generation 3 starts from checkpoint 7, 2 workers",
                "checkpoint 8 is not used: a [torn] file",
            ],
        ),
        (COMPLETED, ["checkpoint 8 completed in 12 ms, 2.5 MB, 0.1 MB new, aligned"]),
        (
            change(COMPLETED, kind=CheckpointKind.FINAL),
            ["checkpoint 8 (final) completed in 12 ms, 2.5 MB, 0.1 MB new, aligned"],
        ),
        (
            change(COMPLETED, mode="switched", inflight_rows=38_047, inflight_bytes=900_000),
            [
                (
                    "checkpoint 8 completed in 12 ms, 2.5 MB, 0.1 MB new, switched, "
                    "38,047 rows in flight"
                )
            ],
        ),
        (
            CleanUpFailed(time_ms=1, checkpoint_id=9, reason="disk"),
            ["what checkpoint 9 left could not be deleted: disk"],
        ),
        (ANSWERED, ["savepoint for ann completed in /backups/s"]),
        (
            change(ANSWERED, outcome="failed", savepoint=None, reason="no [space]"),
            ["savepoint for ann failed: no [space]"],
        ),
        (
            StoreLost(time_ms=1, generation=3, code="store-gone", reason="/s is not there"),
            ["the store is lost: /s is not there"],
        ),
        (
            SplitsNotFound(time_ms=1, generation=3, operator_id="in", problem="a.log has changed"),
            ["source in: a.log has changed"],
        ),
        (
            StoreBack(time_ms=1, generation=3),
            ["the store is back, and the job continues"],
        ),
        (
            FilesDamaged(
                time_ms=1,
                generation=3,
                found_by="listing",
                files=[
                    DamagedFile(path=f"shared/totals/{n}.seg", problem="missing") for n in "abcde"
                ],
                checkpoint_ids=(6, 7),
                rewritten_operators=("totals",),
            ),
            [
                (
                    "stored files are damaged: shared/totals/a.seg (missing), "
                    "shared/totals/b.seg (missing), shared/totals/c.seg (missing) and 2 more"
                ),
                "  checkpoints that need them cannot be restored: 6, 7",
                "  totals writes its whole state with the next checkpoint",
            ],
        ),
        (
            ThresholdTooLow(time_ms=1, checkpoints=10, alignment_timeout_ms=500),
            [
                (
                    "10 checkpoints in a row waited 500 ms and overtook then: with --unaligned "
                    "they need not wait, with a longer --alignment-timeout fewer rows are in flight"
                )
            ],
        ),
        (FAILED, ["checkpoint 9 expired: [Errno 28] no space"]),
        (LOST, ["generation 3 failed: worker 1: killed; starting again in 50 ms"]),
        (change(LOST, restart_in_ms=None), ["generation 3 failed: worker 1: killed"]),
        (FINISHED, ["finished: 1,000 rows in, 10 rows out, 2 checkpoints"]),
        (
            change(FINISHED, outcome="stopped", rows_late=3, checkpoints=1),
            ["stopped: 1,000 rows in, 10 rows out, 1 checkpoint, 3 rows were late"],
        ),
        (
            change(FINISHED, bad_rows=BadRowTotals(letters=4, dropped=9)),
            ["finished: 1,000 rows in, 10 rows out, 2 checkpoints, 4 letters, 9 bad rows dropped"],
        ),
        (PROGRESS, []),
        (RESTORED, ["restored 12 files, 250.0 MB"]),
        (change(RESTORED, percent=40.0), []),
        (change(RESTORED, size_bytes=1_000_000, bytes_total=1_000_000), []),
        (DataFlowing(time_ms=1, generation=3), []),
        (WorkersRunning(time_ms=1, generation=3, pids=(1,), hosts=("a",)), []),
    ],
    ids=str,
)
def test_a_fact_is_a_line_on_standard_error(capsys, event: JobEvent, lines: list[str]) -> None:
    with TextReporter(show_bar=False) as reporter:
        reporter.on_event(event)
    said = capsys.readouterr()
    assert (said.err.splitlines(), said.out) == (lines, "")


def test_a_line_is_not_broken_however_long_it_is(capsys) -> None:
    with TextReporter(show_bar=None) as reporter:
        reporter.on_event(change(LOST, reason="word " * 100))
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_bar_shows_rows_and_rate(capsys) -> None:
    with TextReporter(show_bar=True) as reporter:
        reporter.on_event(change(PROGRESS, rows_in=123_456, rows_per_s=7_890.4))
    said = capsys.readouterr().err
    assert "123,456 rows" in said
    assert "7,890 rows/s" in said


def test_a_restore_is_shown_in_the_bar(capsys) -> None:
    with TextReporter(show_bar=True) as reporter:
        reporter.on_event(change(RESTORED, size_bytes=100_000_000, percent=40.0))
    assert "restoring 40 % of 250.0 MB" in capsys.readouterr().err


def test_collected_rows_go_to_standard_output_the_first_ones(capsys) -> None:
    reporter = TextReporter(show_bar=False)
    reporter.rows("totals", pa.table({"key": ["a", "[b]"], "n": [1, None]}))
    assert capsys.readouterr().out.splitlines() == [
        "totals: 2 rows",
        "  key=a, n=1",
        "  key=[b], n=None",
    ]
    reporter.rows("many", pa.table({"n": list(range(ROWS_SHOWN + 5))}))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == ROWS_SHOWN + 2
    assert lines[-1] == "  … and 5 more; --json prints all"


def test_json_is_one_object_per_event_and_row(capsys) -> None:
    table = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "n": [1]})
    with JsonReporter() as reporter:
        for event in (STARTED, FINISHED):
            reporter.on_event(event)
        reporter.rows("totals", pa.concat_tables([table] * 30))
        reporter.failed(DataError(ErrorCode.NULL_KEY, 'row "3" has no key'))
    said = capsys.readouterr()
    first, second, *rows, last = [json.loads(line) for line in said.out.splitlines()]
    assert (first["event"], second["event"]) == ("generation-started", "finished")
    assert len(rows) == 30
    assert rows[0] == {
        "event": "row",
        "sink": "totals",
        "row": {"at": "1970-01-01T00:00:00Z", "n": 1},
    }
    assert last == {"event": "failed", "code": "null-key", "message": 'row "3" has no key'}
    assert said.err == ""


def test_values_that_json_lacks_are_text(capsys) -> None:
    table = pa.table(
        {
            "float": [float("nan"), float("-inf"), 0.5],
            "bytes": [b"\x00\xff", b"", None],
            "decimal": pa.array([1, 2, None], pa.decimal128(10, 2)),
            "list": [[1], [], None],
        }
    )
    JsonReporter().rows("out", table)
    rows = [
        json.loads(line, parse_constant=pytest.fail) for line in capsys.readouterr().out.split()
    ]
    assert [list(row["row"].values()) for row in rows] == [
        ["NaN", "AP8=", "1.00", [1]],
        ["-Infinity", "", "2.00", []],
        [0.5, None, None, None],
    ]


def test_a_failure_is_printed_as_the_command_ends(capsys) -> None:
    with TextReporter(show_bar=False) as reporter:
        reporter.failed(DataError(ErrorCode.NULL_KEY, "row 3 has no key"))
    assert capsys.readouterr().err == ""
