"""Output is materialised in Dagster as it becomes visible, each part of it once."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from laminar_core.protocol.types import CheckpointId
from laminar_core.records.record import JsonObject
from laminar_core.records.sink_outputs import COLUMNS, ENDED, ROWS_WRITTEN, WATERMARK_US
from laminar_core.resources.names import STREAM_TAG, asset_key
from laminar_core.resources.output_partitions import OutputPartitions
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.sensors.observer.new_records import identity
from laminar_core.sensors.observer.sensor import build_checkpoint_reporter
from laminar_core.sensors.observer.visible_output import reported_by, visible_report, watch_output
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.run_records import LEFT_TO_RUN_MS
from tests.sensors.observed import NOTHING_NEW, Daemon, DiedError
from tests.sensors.streams import STREAM, Job, stand_ins, stored_job
from tests.store.stores import commit

OUTPUT = asset_key(STREAM, "output")
HOURS = OutputPartitions(every="hour", start="2026-03-28")


def written(rows: int, at: str | None = None, **more: object) -> JsonObject:
    found: JsonObject = {ROWS_WRITTEN: rows, COLUMNS: [["merchant", "string"], ["n", "int64"]]}
    if at is not None:
        time = datetime.fromisoformat(f"2026-03-28T{at}").replace(tzinfo=UTC)
        found[WATERMARK_US] = int(time.timestamp() * 1e6)
    return {**found, **more}


def show(job: Job, rows: int, at: str | None = None, **more: object) -> int:
    """Complete and commit a checkpoint."""
    checkpoint_id = job.complete(written=written(rows, at, **more))
    commit(job.store, checkpoint_id, job.generation)
    return checkpoint_id


def shown(daemon: Daemon) -> list[dg.AssetMaterialization]:
    records = daemon.instance.fetch_materializations(OUTPUT, limit=100, ascending=True).records
    return [record.asset_materialization for record in records]


def checkpoints(daemon: Daemon) -> list[int]:
    return [event.metadata["committed_checkpoint"].value for event in shown(daemon)]


def hours(daemon: Daemon) -> list[str]:
    return [str(event.partition).removeprefix("2026-03-28-") for event in shown(daemon)]


@pytest.fixture
def hourly(job: Job) -> Iterator[Daemon]:
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = build_checkpoint_reporter(
            {STREAM: AlertPolicy()}, job.clock, outputs={STREAM: HOURS}
        )
        yield Daemon(instance, sensor, job.store.objects.uri)


# --- without partitions ---------------------------------------------------------------------------


def test_the_output_of_all_checkpoints_of_a_tick_is_one_materialisation(job: Job, daemon: Daemon):
    for rows in (0, 3, 7):
        show(job, rows)
    assert "visible: output of checkpoint 1 to 3" in daemon.tick()
    (event,) = shown(daemon)
    facts = {name: event.metadata[name].value for name in ("committed_checkpoint", "rows_out")}
    assert facts == {"committed_checkpoint": 3, "rows_out": 7}
    assert daemon.ticks() == [NOTHING_NEW]
    show(job, 9)
    daemon.ticks()
    assert checkpoints(daemon) == [3, 4]
    assert daemon.observed("output") == [], "an observation would say the same"


def test_a_checkpoint_without_new_rows_materialises_nothing(job: Job, daemon: Daemon) -> None:
    for rows in (0, 3, 3):
        show(job, rows)
        daemon.ticks()
    assert checkpoints(daemon) == [2]


def test_a_materialisation_has_dagsters_own_metadata(job: Job, daemon: Daemon) -> None:
    job.descriptions["sink"] = {"connector": "parquet", "path": "/data/out"}
    show(job, 7, "02:30")
    daemon.tick()
    metadata = shown(daemon)[0].metadata
    assert metadata["dagster/row_count"].value == 7
    assert metadata["dagster/uri"].value == "file:///data/out"
    columns = metadata["dagster/column_schema"].value.columns
    assert [(column.name, column.type) for column in columns] == [
        ("merchant", "string"),
        ("n", "int64"),
    ]
    at = datetime(2026, 3, 28, 2, 30, tzinfo=UTC).timestamp()
    assert metadata["output_watermark"].value == at


def test_output_that_waits_for_its_commit_is_not_visible(job: Job, daemon: Daemon) -> None:
    show(job, 3)
    waiting = job.complete(written=written(5))
    job.complete(written=written(6))
    daemon.ticks()
    assert checkpoints(daemon) == [1]
    commit(job.store, waiting, 1)
    daemon.ticks()
    commit(job.store, waiting + 1, 1)
    daemon.ticks()
    assert checkpoints(daemon) == [1, 2, 3]


@pytest.mark.parametrize("writes", range(5))
def test_a_tick_that_dies_or_has_lost_its_cursor_repeats_nothing(job, daemon, writes: int) -> None:
    show(job, 3)
    daemon.dies_after = writes
    with pytest.raises(DiedError):
        daemon.ticks()
    daemon.ticks()
    daemon.cursor = None
    daemon.ticks()
    assert checkpoints(daemon) == [1]


def test_a_cursor_that_is_lost_after_more_checkpoints_tells_only_of_those(job, daemon) -> None:
    show(job, 3)
    daemon.ticks()
    show(job, 5)
    daemon.cursor = None
    daemon.ticks()
    assert checkpoints(daemon) == [1, 2]


def test_output_that_was_withdrawn_is_reported_anew_even_with_as_many_rows(job, daemon) -> None:
    for rows in (3, 5):
        show(job, rows)
    daemon.ticks()
    job.claim(base=1)
    daemon.ticks()
    assert checkpoints(daemon) == [2]
    show(job, 5)
    daemon.ticks()
    assert checkpoints(daemon) == [2, 3]


def test_a_restart_that_withdraws_nothing_reports_nothing(job: Job, daemon: Daemon) -> None:
    show(job, 3)
    daemon.ticks()
    job.claim(base=1)
    show(job, 3)
    daemon.ticks()
    assert checkpoints(daemon) == [1]


def test_a_store_that_was_begun_anew_is_materialised_again(job, daemon, tmp_path) -> None:
    show(job, 3)
    show(job, 5)
    daemon.ticks()
    anew = stored_job(tmp_path / "anew")
    anew.clock.wait_ms(3_600_000)
    anew.claim()
    show(anew, 3)
    daemon.uri = anew.store.objects.uri
    daemon.ticks()
    assert checkpoints(daemon) == [2, 1]


def test_what_a_person_reports_by_hand_confuses_nobody(job: Job, daemon: Daemon) -> None:
    show(job, 3)
    daemon.ticks()
    daemon.instance.report_runless_asset_event(dg.AssetMaterialization(OUTPUT))
    watch = watch_output(daemon.instance, STREAM, None)
    assert watch.reported is not None
    assert watch.reported.checkpoint_id == 1
    assert reported_by(dg.AssetMaterialization(OUTPUT)) is None
    daemon.cursor = None
    daemon.ticks()
    assert len(shown(daemon)) == 2


# --- a run that supervises the stream -------------------------------------------------------------


def supervise(daemon: Daemon) -> dg.DagsterRun:
    return daemon.instance.create_run_for_job(
        stand_ins().resolve_job_def("laminar_mode"),
        tags={STREAM_TAG: STREAM},
        status=dg.DagsterRunStatus.STARTED,
    )


def test_the_newest_output_is_left_to_the_run_that_may_end_with_it(job, daemon) -> None:
    """Goal: what a supervising run says at its end is not said twice; what came before is said."""
    supervise(daemon)
    show(job, 3)
    daemon.tick()
    assert checkpoints(daemon) == []
    show(job, 5)
    show(job, 8)
    daemon.tick()
    assert checkpoints(daemon) == [2]
    job.clock.wait_ms(LEFT_TO_RUN_MS)
    daemon.tick()
    assert checkpoints(daemon) == [2, 3], "its process may be gone"


def test_what_a_run_has_reported_at_its_end_is_not_reported_again(job, daemon) -> None:
    """Goal: the report of the run has the same data version, and is known as the newest one."""
    show(job, 3)
    known, stored = identity(job.store), read_stored(job.store, CheckpointId(1))
    assert known is not None
    assert isinstance(stored, StoredCheckpoint)
    metadata, tags = visible_report(job.store, known.sha256, stored)
    daemon.instance.report_runless_asset_event(
        dg.AssetMaterialization(OUTPUT, metadata=metadata, tags=tags)
    )
    daemon.ticks()
    show(job, 5)
    daemon.ticks()
    assert checkpoints(daemon) == [1, 2]


# --- partitions of event time ---------------------------------------------------------------------


def test_an_hour_is_materialised_when_committed_output_has_passed_its_end(job, hourly) -> None:
    show(job, 3, "00:59")
    hourly.ticks()
    assert hours(hourly) == []
    show(job, 5, "02:10")
    assert "output is complete up to partition 2026-03-28-01:00" in hourly.tick()
    job.complete(written=written(9, "04:00"))
    hourly.ticks()
    assert hours(hourly) == ["00:00", "01:00"], "the newest checkpoint is not committed"
    assert hourly.observed("output"), "rows in an hour that is not over are only observed"


def test_an_hour_without_rows_is_complete_too(job: Job, hourly: Daemon) -> None:
    show(job, 3, "00:30")
    show(job, 3, "03:00")
    hourly.ticks()
    assert hours(hourly) == ["00:00", "01:00", "02:00"]


@pytest.mark.parametrize("writes", range(6))
def test_hours_of_a_tick_that_dies_are_reported_once(job, hourly, writes: int) -> None:
    show(job, 3, "03:00")
    hourly.dies_after = writes
    with pytest.raises(DiedError):
        hourly.ticks()
    show(job, 5, "04:00")
    hourly.cursor = None
    hourly.ticks()
    assert hours(hourly) == ["00:00", "01:00", "02:00", "03:00"]


def test_hours_that_were_withdrawn_are_reported_again_when_they_are_passed_again(
    job: Job, hourly: Daemon
) -> None:
    show(job, 3, "01:30")
    show(job, 5, "04:00")
    hourly.ticks()
    job.claim(base=1)
    show(job, 4, "01:50")
    hourly.ticks()
    assert hours(hourly) == ["00:00", "01:00", "02:00", "03:00"]
    show(job, 5, "03:00")
    hourly.ticks()
    show(job, 6, "04:10")
    hourly.ticks()
    assert hours(hourly)[4:] == ["01:00", "02:00", "03:00"]
    versions = [event.tags["dagster/data_version"] for event in shown(hourly)]
    assert len(set(versions)) == len(versions)


def test_a_long_gap_is_reported_in_parts(job: Job, hourly: Daemon) -> None:
    time = datetime(2026, 3, 31, 12, tzinfo=UTC)
    show(job, 3, "00:10", **{WATERMARK_US: int(time.timestamp() * 1e6)})
    said = hourly.ticks()
    assert sum("output is complete" in line for line in said) == 2
    assert len(hours(hourly)) == 3 * 24 + 12


def test_at_the_end_of_the_input_the_last_hour_is_complete(job: Job, hourly: Daemon) -> None:
    show(job, 3, "01:30", **{ENDED: True})
    hourly.ticks()
    assert hours(hourly) == ["00:00", "01:00"]


def test_a_supervising_run_knows_nothing_of_hours(job: Job, hourly: Daemon) -> None:
    supervise(hourly)
    show(job, 3, "01:00")
    hourly.tick()
    assert hours(hourly) == ["00:00"]
