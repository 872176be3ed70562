"""``laminar status`` and ``laminar jobs`` say in a few lines how jobs are."""

import json
import threading

import pytest

from laminar_core.host.clock import SystemClock
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.records.commands import SetMode
from laminar_core.records.manifest import Heartbeat
from laminar_core.records.sink_numbers import SinkNumbers, sinks_of
from laminar_core.records.source_numbers import SourceNumbers, sources_of
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import write_drill
from laminar_core.store.owner import this_process
from laminar_core.store.pins import Pins
from tests.cli.test_drill import record as drill_record
from tests.records.manifests import subtask
from tests.retention.retention_jobs import StoredJob, pin_of
from tests.store.stores import claim, claimant, elsewhere, gone, never, write
from tests.store.test_job_status import ask


@pytest.fixture
def job(tmp_path) -> StoredJob:
    return StoredJob(LocalObjectStore(tmp_path / "store"))


@pytest.fixture
def lines(cli, job):
    def told() -> list[str]:
        answer = cli("status", "--store", job.store.objects.uri)
        assert (answer.code, answer.err) == (0, "")
        return answer.out.splitlines()

    return told


def test_a_job_that_runs(lines, job) -> None:
    job.start()
    me = this_process()
    runs = f"job payments, generation 1 runs as process {me.pid} of {me.user} on "
    first, second, *rest = lines()
    assert first.startswith(runs)
    assert first.endswith(", no sign of life yet")
    assert second == "started 2023-11-14 22:13:20 UTC by test from the beginning: to test"
    assert rest == ["no completed checkpoint", "checkpoints align as the driver was started"]

    job.complete()
    Pins(job.store).pin(pin_of(1))
    progress = {"rows_in": 1_234, "rows_out": 5, "rows_per_s": 1_250.4, "requests": {"get": 1}}
    progress |= {"bad_rows": {"letters": 7, "dropped": 0, "skipped": 1}}
    job.store.generations.beat(Generation(1), Heartbeat(sequence=1, at_ms=1, progress=progress))
    write_drill(job.store, drill_record(number=4, checkpoint_id=1))
    ask(job.store, SetMode(mode="unaligned"))
    first, _, rows, checkpoint, mode, pin, drill = lines()
    assert "last sign of life" in first
    assert rows == "1,234 rows in, 5 rows out, 7 letters, 1 bad rows skipped, 1,250 rows per s"
    assert checkpoint.startswith("checkpoint 1 completed ")
    assert "ago: periodic, aligned, " in checkpoint
    assert mode == "checkpoints are unaligned: command 1 by ann, slow"
    assert pin.startswith("checkpoint 1 is pinned (")
    assert drill.startswith("drill 4 of checkpoint 1 passed, ")
    progress |= {"uncommitted_checkpoints": 3, "commit_ms": 12.5, "commit_retries": 8}
    job.store.generations.beat(Generation(1), Heartbeat(sequence=2, at_ms=2, progress=progress))
    assert "output of 3 checkpoints waits for its commit, 8 attempts failed" in lines()
    ask(job.store, SetMode(mode=50))
    assert "checkpoints overtake after 50 ms: command 2 by ann, slow" in lines()


def test_a_source_that_knows_its_lag_has_a_line(lines, cli, job) -> None:
    job.start()
    kafka = SourceNumbers(
        splits=4,
        splits_idle=1,
        splits_blocked=1,
        lag_rows=1_234,
        lag_seconds=2.2,
        headroom_checkpoint_id=3,
        headroom_rows=10,
        headroom_seconds=7_200,
    )
    lost = SourceNumbers(splits=1, headroom_checkpoint_id=3, headroom_rows=-7)
    new = SourceNumbers(splits=1)
    found = {"in": kafka, "files": SourceNumbers(), "lost": lost, "new": new}
    progress = {"sources": {name: numbers.model_dump() for name, numbers in found.items()}}
    job.store.generations.beat(Generation(1), Heartbeat(sequence=1, at_ms=1, progress=progress))
    told = json.loads(cli("status", "--json", "--store", job.store.objects.uri).out)
    assert sources_of(told["driver"]["progress"]) == found
    assert [line for line in lines() if line.startswith("source ")] == [
        "source in: 1,234 rows (2 s) behind, 4 splits, 1 idle, 1 blocked",
        "source in: checkpoint 3, the oldest, can be restored for 2 h",
        "source lost: an unknown number of rows behind, 1 splits",
        "source lost: checkpoint 3, the oldest, needs 7 rows that the source has deleted",
        "source new: an unknown number of rows behind, 1 splits",
    ]


def test_a_sink_that_knows_a_number_has_a_line(lines, cli, job) -> None:
    job.start()
    found = {
        "out": SinkNumbers(publish_rows_per_s=12_345.6, transaction_expires_in_ms=10**15),
        "late": SinkNumbers(transaction_expires_in_ms=5_000),
        "files": SinkNumbers(),
        "rows": SinkNumbers(publish_rows_per_s=0.4),
    }
    progress = {"sinks": {name: numbers.model_dump() for name, numbers in found.items()}}
    job.store.generations.beat(Generation(1), Heartbeat(sequence=1, at_ms=1, progress=progress))
    told = json.loads(cli("status", "--json", "--store", job.store.objects.uri).out)
    assert sinks_of(told["driver"]["progress"]) == found
    out, late, slow = (line for line in lines() if line.startswith("sink "))
    assert out.startswith("sink out: publishes 12,346 rows per s, output that waits expires in ")
    assert late.startswith("sink late: output that waits may have expired "), "the beat is old"
    assert slow == "sink rows: publishes 0 rows per s"
    job.store.generations.end(Generation(1), "failed", "a worker died")
    assert [line for line in lines() if line.startswith("sink ")] == [
        "sink out: publishes 12,346 rows per s",
        "sink rows: publishes 0 rows per s",
    ]


def test_output_that_is_not_committed_says_when_it_expires(lines, job) -> None:
    claim(job.store)
    expires_at_ms = SystemClock().now_ms() + 601_000
    offered = ({"name": "a", "expires_at_ms": expires_at_ms},)
    written = write(job.store, 1, 1)
    entries = (*written.subtasks[:3], subtask("sink", 1, committables=offered))
    job.store.manifests.publish(written.model_copy(update={"subtasks": entries}))
    assert "its output waits for its commit, and expires in 10 min" in lines()


def test_a_job_whose_driver_is_not_seen_or_gone_or_has_ended(lines, job) -> None:
    claims = [
        (gone(this_process()), "is gone and recorded no end"),
        (elsewhere(), "cannot be seen"),
    ]
    for owner, said in claims:
        job.store.claims.claim(claimant(owner), wait_ms=never, take_over=True)
        first, second, *_ = lines()
        assert said in first
        assert "and has not recorded its base yet" in second
    job.store.generations.end(Generation(2), "failed", "a worker died")
    assert lines()[0] == "job payments, generation 2 failed: a worker died"
    assert not any("align" in line for line in lines())


@pytest.mark.parametrize(
    ("outcome", "reason", "said"),
    [
        ("stopped", "by ann: a new version", "stopped, by ann: a new version"),
        ("stopped", "", "stopped"),
        ("finished", "", "finished: its input ended"),
        (
            "failed",
            "by the time of its start it was full",
            "failed: by the time of its start it was full",
        ),
    ],
)
def test_how_a_job_ended_and_who_ended_it(lines, job, outcome, reason, said) -> None:
    job.start()
    job.store.generations.end(Generation(1), outcome, reason)
    assert lines()[0] == f"job payments, generation 1 {said}"


def test_json_is_everything(cli, job) -> None:
    job.start()
    job.complete()
    Pins(job.store).pin(pin_of(1))
    told = json.loads(cli("status", "--json", "--store", job.store.objects.uri).out)
    assert told.keys() == {
        *("job", "read_at_ms", "driver", "checkpoint", "mode", "pins", "drill", "problems")
    }
    assert (told["driver"]["state"], told["driver"]["owner"]["pid"]) == (
        "running",
        this_process().pid,
    )
    assert (told["checkpoint"]["checkpoint_id"], told["checkpoint"]["kind"]) == (1, "periodic")
    assert (told["mode"], told["drill"], told["problems"]) == (None, None, [])
    assert [pin["checkpoint_id"] for pin in told["pins"]] == [1]


def test_all_jobs_of_a_store(cli, job) -> None:
    job.start()
    job.complete()
    other = CheckpointStore(job.store.objects, "clicks")
    other.claims.claim(claimant(), wait_ms=never)
    other.generations.end(Generation(1), "finished", "")
    job.store.objects.put("new/checkpoints/x", b"")
    job.store.objects.put("holidays/x", b"")
    store = ("--store", job.store.objects.uri)
    _, clicks, new, payments = (line.split() for line in cli("jobs", *store).out.splitlines())
    assert clicks == ["clicks", "1", "finished"]
    assert new == ["new", "never", "ran"]
    assert payments[:4] == ["payments", "1", "running", "1"]
    told = json.loads(cli("jobs", "--json", *store).out)
    assert [one["job"] for one in told] == ["clicks", "new", "payments"]
    assert told[1]["driver"] is None


def probe(cli, job, *words: str):
    return cli("status", "--store", job.store.objects.uri, "--job", "payments", "--probe", *words)


def test_the_exit_code_of_a_probe_is_its_answer(cli, job) -> None:
    assert (probe(cli, job, "ready").code, probe(cli, job, "live").code) == (1, 0)
    generation = claim(job.store)
    assert probe(cli, job, "ready").out == "job payments, generation 1 is starting\n"
    now_ms = SystemClock().now_ms()
    beat = Heartbeat(sequence=1, at_ms=now_ms - 120_000, progress={"rows_in": 0})
    job.store.generations.beat(generation, beat)
    assert json.loads(probe(cli, job, "ready", "--json").out)["problem"] == "silent"
    assert probe(cli, job, "ready", "--silence", "1 hour").code == 0
    assert probe(cli, job, "live").code == 0
    assert probe(cli, job, "live", "--silence", "1 minute").code == 1


def test_an_age_of_the_heartbeat_without_a_probe_is_refused(cli, job) -> None:
    answer = cli("status", "--store", job.store.objects.uri, "--silence", "1 minute")
    assert (answer.code, answer.out) == (2, "")
    assert "--silence needs --probe" in answer.err


def test_nobody_is_killed_because_the_store_does_not_answer(cli, job, monkeypatch) -> None:
    never_set = threading.Event()
    monkeypatch.setattr("laminar_core.cli.status.STORE_ANSWER_MAX_S", 0.01)
    monkeypatch.setattr("laminar_core.cli.status.read_status", lambda *_: never_set.wait())
    live = probe(cli, job, "live")
    assert (live.code, "did not answer within 0.01 s" in live.out) == (0, True)
    ready = probe(cli, job, "ready")
    assert (ready.code, "did not answer within 0.01 s" in ready.err) == (4, True)
    never_set.set()
