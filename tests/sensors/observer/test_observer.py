"""Every event in a store is reported once, although ticks may die; and each tick is bounded."""

import threading

import dagster as dg
import pytest

from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.resources.names import STREAM_TAG
from laminar_core.sensors.background import BackgroundReads
from laminar_core.sensors.facts.attempts import PENDING_MAX
from laminar_core.sensors.facts.job_facts import ATTEMPTS_MAX
from laminar_core.sensors.observer.new_records import SCAN_MAX, SILENCE_MS, ObserverCursor
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import LEFT_TO_RUN_MS
from laminar_core.store.claims import Claimant
from laminar_core.store.owner import this_process
from laminar_core.store.pins import pin_checkpoint
from laminar_core.testing.faulty_store import FaultyStore
from tests.sensors.observed import KEY, NOTHING_NEW, Daemon, DiedError, write_down
from tests.sensors.streams import OBJECTS, STREAM, Job, stand_ins, stored_job
from tests.store.stores import JOB, commit, complete, damage, never


def fail(job: Job, outcome: str = "declined") -> int:
    checkpoint_id = job.trigger()
    job.end(checkpoint_id, outcome)
    return checkpoint_id


# --- attempts -------------------------------------------------------------------------------------


def test_a_tick_tells_and_the_next_one_has_nothing_to_say(job: Job, daemon: Daemon) -> None:
    job.complete()
    job.complete()
    assert daemon.tick() == "reported checkpoints 1 to 2"
    assert daemon.tick() == NOTHING_NEW
    assert daemon.completed() == daemon.partitions() == [1, 2]


def test_how_other_attempts_ended_is_reported_once(job: Job, daemon: Daemon) -> None:
    job.complete()
    fail(job, "declined")
    fail(job, "expired")
    job.complete()
    fail(job, "aborted")
    said = daemon.tick()
    assert "3 other attempts, the last: 5 aborted" in said
    daemon.ticks()
    assert daemon.failed() == [(2, "declined"), (3, "expired"), (5, "aborted")]
    assert daemon.completed() == [1, 4]
    assert daemon.partitions() == [1, 2, 3, 4, 5]


def test_an_attempt_that_is_under_way_is_waited_for(job: Job, daemon: Daemon) -> None:
    pending = job.trigger()
    job.complete()
    daemon.ticks()
    assert daemon.failed() == []
    job.end(pending, "expired")
    daemon.ticks()
    assert daemon.failed() == [(1, "expired")]
    assert daemon.completed() == [2]


@pytest.mark.parametrize("later", ["a newer generation", "many newer attempts"])
def test_an_attempt_whose_end_nobody_wrote_down_is_abandoned(job, daemon, later: str) -> None:
    job.trigger()
    daemon.ticks()
    assert daemon.failed() == []
    if later == "a newer generation":
        job.claim()
    else:
        for _ in range(PENDING_MAX):
            job.complete()
    daemon.ticks()
    assert daemon.failed() == [(1, "abandoned")]


def test_an_orphan_is_reported_as_what_it_is(job: Job, daemon: Daemon) -> None:
    job.complete()
    job.complete()
    job.claim(base=1)
    daemon.ticks()
    assert daemon.completed() == [1]
    assert daemon.failed() == [(2, "orphan")]


def test_a_manifest_that_cannot_be_read_is_reported_once_and_again_when_it_is_mended(
    job: Job, daemon: Daemon
) -> None:
    job.complete()
    key = job.store.paths.manifest(CheckpointId(job.complete()))
    whole = job.store.objects.get(key)
    job.complete()
    damage(job.store, key, "torn")
    daemon.ticks()
    daemon.ticks()
    assert daemon.failed() == [(2, "damaged")]
    assert "manifest.json" in daemon.observed("checkpoint")[0].metadata["reason"].value
    assert daemon.completed() == [1, 3]
    job.store.objects.put(key, whole)
    daemon.cursor = None
    daemon.ticks()
    assert daemon.completed() == [1, 3, 2]


# --- ticks that are repeated, or die --------------------------------------------------------------


def test_a_cursor_that_is_set_back_repeats_nothing(job: Job, daemon: Daemon) -> None:
    job.complete()
    fail(job)
    write_down(job, "start-fresh", after={"generation": 1, "checkpoint_id": None})
    daemon.ticks()
    for cursor in (None, "no cursor at all", '{"attempt": 7}'):
        daemon.cursor = cursor
        daemon.ticks()
    assert daemon.completed() == [1]
    assert len(daemon.failed()) == len(daemon.observed("deployment")) == 1
    assert daemon.evaluated("chain_length") == [(1, True)]


@pytest.mark.parametrize("writes", range(10))
def test_whatever_a_tick_got_done_before_it_died_is_not_reported_again(
    job: Job, daemon: Daemon, writes: int
) -> None:
    """Goal: each write of the daemon is a place to die at; the next tick tells the rest."""
    job.complete()
    fail(job)
    job.complete()
    commit(job.store, 3, 1)
    write_down(job, "start-fresh", after={"generation": 1, "checkpoint_id": None})
    daemon.dies_after = writes
    with pytest.raises(DiedError):
        daemon.ticks()
    daemon.ticks()
    assert daemon.completed() == [1, 3]
    assert daemon.partitions() == [1, 2, 3]
    assert daemon.failed() == [(2, "declined")]
    assert len(daemon.observed("deployment")) == len(daemon.observed("output")) == 1
    assert {id_ for id_, _ in daemon.evaluated("chain_length")} == {3}


def test_two_ticks_at_once_may_repeat_but_never_fail(job: Job, daemon: Daemon) -> None:
    job.complete()
    both = [daemon.evaluate(), daemon.evaluate()]
    for result in both:
        for event in result.asset_events:
            daemon.instance.report_runless_asset_event(event)
    assert set(daemon.completed()) == {1}


def test_a_store_that_was_begun_anew_is_reported_again(job: Job, daemon: Daemon, tmp_path) -> None:
    """Goal: numbers alone do not tell two histories apart."""
    for _ in range(2):
        job.complete()
        fail(job)
    daemon.ticks()
    anew = stored_job(tmp_path / "anew")
    anew.clock.wait_ms(3_600_000)
    anew.claim()
    anew.complete()
    fail(anew)
    daemon.uri = anew.store.objects.uri
    daemon.ticks()
    assert daemon.completed() == [1, 3, 1]
    assert daemon.failed() == [(2, "declined"), (4, "declined"), (2, "declined")]


def test_an_older_cursor_is_of_another_store() -> None:
    text = ObserverCursor(store="one", attempt=7).model_dump_json()
    assert ObserverCursor.of_store(text, "one").attempt == 7
    assert ObserverCursor.of_store(text, "two") == ObserverCursor(store="two")


# --- bounds ---------------------------------------------------------------------------------------


def test_many_are_reported_in_parts(job: Job, daemon: Daemon, monkeypatch) -> None:
    monkeypatch.setattr("laminar_core.sensors.observer.new_records.REPORTS_MAX", 4)
    for _ in range(7):
        job.complete()
    said = daemon.ticks()
    assert said[0].startswith("reported checkpoints 1 to 4, more to come")
    assert said[1].startswith("reported checkpoints 5 to 7")
    assert daemon.completed() == list(range(1, 8))


class Counting:
    """A store that counts what is read of it."""

    def __init__(self, job: Job) -> None:
        self.uri = job.store.objects.uri
        self._objects = job.store.objects
        self.gets = 0

    def __getattr__(self, name: str):
        if name in {"get", "size"}:
            self.gets += 1
        return getattr(self._objects, name)


def test_ten_thousand_attempts_cost_a_bounded_tick_each(tmp_path, daemon, monkeypatch) -> None:
    """Goal: a Dagster that comes late, or lost its cursor, finds a long past and survives it."""
    job = stored_job(tmp_path / "long")
    job.claim()
    ids = [CheckpointId(number) for number in range(1, 10_001)]
    monkeypatch.setattr(type(job.store.attempts), "ids", lambda _: ids)
    counting = Counting(job)
    daemon.uri = "memory://counting"
    monkeypatch.setitem(OBJECTS, daemon.uri, counting)
    ticks = 0
    while ObserverCursor.model_validate_json(daemon.cursor or "{}").attempt < 10_000:
        before = counting.gets
        daemon.tick()
        ticks += 1
        assert counting.gets - before <= 4 * SCAN_MAX + 2 * ATTEMPTS_MAX + 80
    assert ticks == 10_000 / SCAN_MAX


def test_numbers_may_jump_where_a_generation_starts_from_an_import(job: Job, daemon: Daemon):
    """Goal: what is not listed is not missed. Ids go on above those of the savepoint."""
    job.complete()
    daemon.ticks()
    claimant = Claimant(
        this_process(), Actor("ada", reason="to import"), "0.1.0", job.clock.now_ms()
    )
    job.generation = job.store.claims.claim(claimant, wait_ms=never, take_over=True)
    daemon.ticks()  # It is claimed, and the copy is not there yet.
    complete(job.store, 40, job.generation)
    daemon.ticks()
    job.store.generations.record_base(job.generation, CheckpointId(40))
    for checkpoint_id in (41, 42):
        complete(job.store, checkpoint_id, job.generation)
    daemon.ticks()
    assert daemon.completed() == [1, 40, 41, 42]


def copy_of(objects: ObjectStore) -> dict[str, bytes]:
    return {key: objects.get(key) or b"" for key in objects.list(f"{JOB}/")}


def put_back(objects: ObjectStore, backup: dict[str, bytes]) -> None:
    for key in objects.list(f"{JOB}/"):
        objects.delete(key)
    for key, data in backup.items():
        objects.put(key, data)


@pytest.mark.parametrize("passed", [False, True], ids=["behind the numbers", "beyond them"])
def test_a_backup_in_the_place_of_the_store_uses_numbers_again(
    job: Job, daemon: Daemon, *, passed: bool
) -> None:
    """Goal: what happens under a number that the lost store had used is reported all the same."""
    objects = job.store.objects
    job.complete()
    daemon.ticks()
    backup = copy_of(objects)
    for _ in range(3):
        job.complete()
    daemon.ticks()
    assert daemon.completed() == [1, 2, 3, 4]
    put_back(objects, backup)
    job.claim(base=1)
    again = [2, 3, 4, 5] if passed else [2]
    for number in again:
        complete(job.store, number, job.generation)
    daemon.ticks()
    assert daemon.completed() == [1, 2, 3, 4, *again]


def test_records_of_acts_that_are_used_again_are_reported(job: Job, daemon: Daemon) -> None:
    """The backup has every checkpoint, and lacks an act that was reported."""
    objects = job.store.objects
    job.complete()
    backup = copy_of(objects)
    for name in ("a", "b", "c"):
        pin_checkpoint(job.store, CheckpointId(1), name, Actor("ada"), job.clock.now_ms())
    daemon.ticks()
    put_back(objects, backup)
    job.claim(base=1)
    reason = "after the loss"
    pin_checkpoint(job.store, CheckpointId(1), "d", Actor("bob", reason=reason), 1)
    assert reason in daemon.tick()


def test_a_tick_without_news_costs_the_same_however_long_the_job_has_lived(
    job: Job, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no listing grows with the checkpoints; there may be millions."""
    for _ in range(4):
        commit(job.store, job.complete(), 1)
    write_down(job, "claim")
    daemon.ticks()
    asked = FaultyStore(job.store.objects)
    monkeypatch.setitem(OBJECTS, daemon.uri, asked)
    assert daemon.tick() == NOTHING_NEW
    generations, drills = job.store.paths.generations, job.store.paths.drills
    assert [key for verb, key in asked.calls if verb in {"children", "list"}] == [
        generations,
        drills,
    ]
    assert len(asked.calls) == 7


# --- a run that supervises the stream -------------------------------------------------------------


def test_while_a_run_reports_the_checkpoints_everything_else_is_reported(
    job: Job, daemon: Daemon
) -> None:
    job.complete()
    fail(job)
    running = daemon.instance.create_run_for_job(
        stand_ins().resolve_job_def("laminar_mode"),
        tags={STREAM_TAG: STREAM},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert running.run_id in daemon.tick()
    assert daemon.completed() == []
    assert daemon.failed() == [(2, "declined")]
    daemon.instance.report_run_failed(running)
    daemon.ticks()  # It died before it could report.
    assert daemon.completed() == [1]
    assert daemon.partitions() == [1, 2]
    assert daemon.failed() == [(2, "declined")]


def test_a_run_whose_process_is_gone_does_not_silence_it_for_ever(job: Job, daemon: Daemon) -> None:
    """Goal: Dagster shows a run as started for ever if its process was killed with the server."""
    job.complete()
    daemon.instance.create_run_for_job(
        stand_ins().resolve_job_def("laminar_mode"),
        tags={STREAM_TAG: STREAM},
        status=dg.DagsterRunStatus.STARTED,
    )
    job.clock.wait_ms(LEFT_TO_RUN_MS - 1)
    daemon.tick()
    assert daemon.completed() == daemon.partitions() == []
    job.clock.wait_ms(1)
    daemon.tick()
    assert daemon.completed() == daemon.partitions() == [1]


def test_a_run_of_another_stream_does_not_silence_it(job: Job, daemon: Daemon) -> None:
    job.complete()
    daemon.instance.create_run_for_job(
        stand_ins().resolve_job_def("laminar_mode"),
        tags={STREAM_TAG: "slippage"},
        status=dg.DagsterRunStatus.STARTED,
    )
    daemon.tick()
    assert daemon.completed() == [1]


# --- numbers that are forgotten ------------------------------------------------------------------


def test_numbers_that_somebody_has_deleted_hide_the_later_ones_for_a_while_only(
    job: Job, daemon: Daemon
) -> None:
    job.complete()
    daemon.ticks()
    for _ in range(6):
        fail(job)
    later = job.complete()
    for checkpoint_id in range(2, later):
        job.store.objects.delete(job.store.paths.trigger(CheckpointId(checkpoint_id)))
        job.store.objects.delete(job.store.paths.outcome(CheckpointId(checkpoint_id)))
    daemon.ticks()
    assert daemon.completed() == [1]
    job.clock.wait_ms(SILENCE_MS)
    daemon.tick()
    assert daemon.completed() == [1, later]


# --- stores that do not answer --------------------------------------------------------------------


def test_a_base_that_cannot_be_read_hides_checkpoints_and_nothing_else(job, daemon) -> None:
    job.claim(base=None)
    job.complete()
    for key in (job.store.paths.base(2), job.store.paths.base_copy(2)):
        damage(job.store, key, "torn")
    write_down(job, "restore", after={"generation": 2, "checkpoint_id": 1})
    assert "which checkpoints count is unknown" in daemon.tick()
    assert len(daemon.observed("deployment")) == 1
    assert daemon.completed() == []


def test_a_store_that_hangs_skips_ticks_and_a_later_one_takes_what_was_read(
    job: Job, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.complete()
    goes_on = threading.Event()

    class Hanging(Counting):
        def __getattr__(self, name: str):
            goes_on.wait()
            return super().__getattr__(name)

    monkeypatch.setitem(OBJECTS, daemon.uri, Hanging(job))
    background = BackgroundReads(wait_ms=1)
    daemon.sensor = build_checkpoint_reporter({STREAM: AlertPolicy()}, job.clock, background)
    assert "has not answered" in daemon.tick()
    assert daemon.cursor is None
    goes_on.set()
    while "has not answered" in (said := daemon.tick()):
        pass
    assert said == "reported checkpoints 1 to 1"


def test_history_wiped_in_dagster_is_not_reported_again(job: Job, daemon: Daemon) -> None:
    """Who wipes an asset does not want to have it back; the cursor stands for that."""
    job.complete()
    daemon.ticks()
    daemon.instance.wipe_assets([KEY])
    daemon.ticks()
    assert daemon.completed() == []
