"""``laminar top`` shows a running job from its store, and says in one line if none runs."""

import io

import pytest
from rich.console import Console

from laminar_core.cli import top as module
from laminar_core.cli.top import watch, why_not
from laminar_core.driver.events import MissingChannel, MissingSubtask
from laminar_core.driver.under_way import CheckpointUnderWay
from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointKind, Generation
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.records.manifest import Heartbeat, Owner
from laminar_core.records.operator_numbers import OperatorNumbers
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.store.job_status import JobStatus, read_status
from laminar_core.store.owner import this_process
from tests.cli.command_line import CommandLine
from tests.retention.retention_jobs import StoredJob
from tests.store.stores import claim_as, elsewhere, gone

NOW_MS = 1_800_000_000_000
OPERATORS = {
    "in": OperatorNumbers(
        rows_out_per_s=1_200, rows_in_per_s=0, busy_share=0.12, backpressured_share=0.85
    ),
    "[sums]": OperatorNumbers(
        rows_in_per_s=1_200, busy_share=0.97, backpressured_share=0.0, queued_batches=4
    ),
    "out": OperatorNumbers(),
}
PENDING = CheckpointUnderWay(
    checkpoint_id=2,
    kind=CheckpointKind.PERIODIC,
    age_ms=12_300,
    workers=2,
    acknowledged=1,
    missing=(
        MissingSubtask(
            vertex_id="[sums]",
            subtask_index=1,
            operators=("[sums]", "out"),
            host="b",
            waits_for=WaitsFor.BARRIERS,
            channels=(MissingChannel(upstream="in", sender=0),),
            channel_count=3,
        ),
        MissingSubtask(
            vertex_id="in", subtask_index=1, operators=("in",), host="", waits_for=WaitsFor.UPLOAD
        ),
    ),
    missing_count=4,
)


@pytest.fixture
def job(tmp_path) -> StoredJob:
    job = StoredJob(LocalObjectStore(tmp_path / "store"))
    job.start()
    return job


def beat(job: StoredJob, **more: object) -> None:
    progress: dict[str, object] = {
        "rows_in": 1_234,
        "rows_out": 5,
        "rows_late": 0,
        "rows_per_s": 1_200.4,
        "watermark_us": 1_000 * (SystemClock().now_ms() - 5_500),
        "operators": {name: numbers.model_dump() for name, numbers in OPERATORS.items()},
        "sources": {"in": SourceNumbers(lag_rows=70, lag_seconds=2).model_dump()},
        "pending": [PENDING.model_dump(mode="json")],
        **more,
    }
    beat = Heartbeat(sequence=1, at_ms=SystemClock().now_ms(), progress=progress)
    job.store.generations.beat(Generation(1), beat)


@pytest.fixture
def lines(cli: CommandLine, job: StoredJob):
    """A function that returns the lines of one frame."""

    def lines(*words: str) -> list[str]:
        answer = cli("top", "--store", job.store.objects.uri, *words)
        assert (answer.code, answer.err) == (0, "")
        return answer.out.splitlines()

    return lines


@pytest.mark.parametrize("words", [(), ("--once",)])
def test_without_a_terminal_there_is_one_frame(lines, job: StoredJob, words) -> None:
    job.complete()
    beat(job)
    head, rows, _, headings, source, sums, out, _, lag, newest, pending, *missing = lines(*words)
    assert head.startswith("job payments, generation 1, last sign of life ")
    assert rows.startswith(
        "1,234 rows in, 5 rows out, 0 rows late, 1,200 rows per s, event time 5 s"
    )
    assert headings.split() == [
        *("operator", "rows/s", "in", "rows/s", "out", "busy", "backpressured", "queued")
    ]
    assert source.split() == ["in", "0", "1,200", "12%", "85%"]
    assert sums.split() == ["[sums]", "1,200", "97%", "0%", "4", "holds", "others", "back"]
    assert out.split() == ["out"]
    assert lag == "source in: 70 rows (2 s) behind"
    assert newest.startswith("newest checkpoint 1, ")
    assert pending == "checkpoint 2 (periodic), under way for 12 s, 1 of 2 workers are done"
    assert missing == [
        "  [sums] 1 on b waits for the barrier from in 0 and 2 more",
        "  in 1 writes its state",
        "  and 2 more subtasks",
    ]


def test_an_older_driver_reports_no_operators(lines, job: StoredJob) -> None:
    beat(job, operators=None, pending=None, sources=None, rows_per_s=None, watermark_us=None)
    _, rows, *rest = lines()
    assert rows == "1,234 rows in, 5 rows out, 0 rows late"
    assert rest == [
        "its driver has not reported operators yet",
        "no completed checkpoint",
        "no checkpoint under way",
    ]


def test_a_checkpoint_that_completed_since_the_heartbeat_is_not_under_way(lines, job) -> None:
    job.complete()
    job.complete()
    beat(job)
    assert lines()[-1] == "no checkpoint under way"


def test_nobody_holds_others_back_where_no_queue_is_full(lines, job: StoredJob) -> None:
    calm = {"sums": OperatorNumbers(busy_share=0.9, backpressured_share=0.1).model_dump()}
    beat(job, operators=calm)
    assert not any("holds others back" in line for line in lines())


def test_a_job_that_does_not_run_is_one_line(cli: CommandLine, job: StoredJob) -> None:
    job.store.generations.end(Generation(1), "stopped", "by alice")
    answer = cli("top", "--store", job.store.objects.uri)
    assert answer.err == "error: job payments is not running: generation 1 stopped: by alice\n"
    assert answer.code == 2
    never_ran = "job payments never ran: start it with `laminar run`"
    assert why_not(JobStatus("payments", NOW_MS)) == never_ran


def of_owner(owner: Owner) -> StoredJob:
    other = StoredJob()
    other.store.objects.create()
    claim_as(other.store, owner)
    return other


def test_a_driver_that_is_gone_is_not_shown() -> None:
    found = why_not(read_status(of_owner(gone(this_process())).store, NOW_MS))
    assert found == "job payments is not running: the driver of generation 1 is gone"


def test_a_driver_elsewhere_is_shown_unless_it_is_silent() -> None:
    other = of_owner(elsewhere())
    assert why_not(read_status(other.store, NOW_MS)) is None
    beat = Heartbeat(sequence=1, at_ms=NOW_MS, progress={})
    other.store.generations.beat(Generation(1), beat)
    assert why_not(read_status(other.store, NOW_MS + 60_000)) is None
    silent = why_not(read_status(other.store, NOW_MS + 7_200_000))
    assert silent is not None
    assert silent.endswith("the driver of generation 1 gave its last sign of life 2 h ago")


class Recorder:
    """Takes frames as a screen does."""

    def __init__(self) -> None:
        self.frames: list[str] = []

    def update(self, renderable, *, refresh: bool = False) -> None:
        assert refresh
        text = io.StringIO()
        Console(file=text, width=200).print(renderable)
        self.frames.append(text.getvalue())


def test_frames_follow_each_other_until_the_job_ends(job: StoredJob) -> None:
    beat(job)
    running = read_status(job.store, SystemClock().now_ms())
    job.store.generations.end(Generation(1), "finished", "")
    ended = read_status(job.store, SystemClock().now_ms())
    answers: list[JobStatus | Exception] = [
        running,
        StorageUnavailable(ErrorCode.STORE_IO, "no answer"),
        running,
        ended,
    ]

    def read() -> JobStatus:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    screen, clock = Recorder(), ManualClock(0)
    why = watch(read, running, screen, clock, 1_000)
    assert why == "job payments is not running: generation 1 finished"
    assert clock.monotonic_ms() == 4_000
    said = ["the store does not answer" in frame for frame in screen.frames]
    assert said == [False, False, True, False]


def test_on_a_terminal_the_screen_ends_with_the_reason(
    cli: CommandLine, job: StoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function says that there is a terminal, because pytest captures the output in a file."""
    beat(job)
    statuses = [read_status(job.store, SystemClock().now_ms())]
    job.store.generations.end(Generation(1), "finished", "")
    statuses.append(read_status(job.store, SystemClock().now_ms()))
    monkeypatch.setattr(module, "read_status", lambda *_: statuses.pop(0))
    monkeypatch.setattr(module, "on_terminal", lambda: True)
    answer = cli("top", "--store", job.store.objects.uri, "--interval", "1ms")
    assert answer.out.splitlines()[-1] == "job payments is not running: generation 1 finished"
    assert answer.code == 0
