"""Dagster shows numbers to plot and tables to read for a checkpoint, and not many of either."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._serdes import serialize_value

from laminar_core.codec.digest import sha256_hex
from laminar_core.protocol.types import (
    WATERMARK_END_US,
    CheckpointId,
    CheckpointKind,
    Generation,
)
from laminar_core.records.actor import ActorKind
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.records.channel_entries import AlignmentEntry
from laminar_core.records.commands import (
    ControlBegun,
    ControlCommand,
    ControlResult,
    TakeCheckpoint,
    TakeSavepoint,
)
from laminar_core.records.manifest import CheckpointManifest, Heartbeat, fingerprint_of
from laminar_core.records.sink_numbers import SinkNumbers
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint, read_stored
from laminar_core.sensors.observer.checkpoint_metadata import materialization, source_observation
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlLog
from tests.records.manifests import DESCRIPTIONS, alignment, manifest, subtask, unaligned
from tests.store.stores import claim, complete, damage, open_job, trigger

SECOND_US = 1_000_000
COMPLETED_S = 1_700_000_000.04


@pytest.fixture
def store() -> CheckpointStore:
    store = open_job()
    claim(store)
    return store


def shown(store: CheckpointStore, changes: CheckpointManifest) -> dg.AssetMaterialization:
    """Return the materialisation of a checkpoint that is published with these values."""
    return materialization(store, publish(store, changes))


def publish(store: CheckpointStore, changes: CheckpointManifest) -> StoredCheckpoint:
    assert store.attempts.record_trigger(trigger(changes.checkpoint_id, changes.generation))
    store.manifests.publish(changes)
    found = read_stored(store, CheckpointId(changes.checkpoint_id))
    assert isinstance(found, StoredCheckpoint)
    return found


def plain(**changes: Any) -> CheckpointManifest:
    """Without state, so that nothing has to be written for it."""
    subtasks = tuple(subtask(op, index) for op in ("window", "sink") for index in (0, 1))
    return manifest(**{"generation": 1, "subtasks": subtasks} | changes)


@pytest.mark.parametrize(
    ("later_ms", "shown_numbers"),
    [
        (59_000, [{"lag_rows/in": 7, "lag_seconds/in": 1.5}, {"headroom_rows/in": -2}]),
        (-59_000, [{"lag_rows/in": 7, "lag_seconds/in": 1.5}, {"headroom_rows/in": -2}]),
        (61_000, [{}, {}]),
    ],
)
def test_lag_and_headroom_are_shown_as_the_driver_knew_them_then(
    store: CheckpointStore, later_ms: int, shown_numbers: list[dict[str, float]]
) -> None:
    completed = plain()
    numbers = SourceNumbers(lag_rows=7, lag_seconds=1.5, headroom_rows=-2)
    progress = {"sources": {"in": numbers.model_dump()}}
    at_ms = completed.completed_at_ms + later_ms
    beat = Heartbeat(sequence=1, at_ms=at_ms, progress=progress)
    store.generations.beat(Generation(1), beat)
    event = shown(store, completed)
    assert [named(plotted(event), "/in"), named(more(event), "/in")] == shown_numbers


def test_numbers_of_sinks_are_shown_as_the_driver_knew_them_then(store: CheckpointStore) -> None:
    completed = plain()
    numbers = SinkNumbers(publish_rows_per_s=12.5, transaction_expires_in_ms=840_000)
    progress = {"sinks": {"out": numbers.model_dump(), "rows": SinkNumbers().model_dump()}}
    beat = Heartbeat(sequence=1, at_ms=completed.completed_at_ms, progress=progress)
    store.generations.beat(Generation(1), beat)
    event = shown(store, completed)
    assert named(more(event), "/out") == {
        "publish_rows_per_s/out": 12.5,
        "transaction_expires_in_ms/out": 840_000,
    }
    assert named(more(event), "/rows") == {}


def value(event: dg.AssetMaterialization | dg.AssetObservation, name: str) -> Any:
    return event.metadata[name].value


def plotted(event: dg.AssetMaterialization) -> dict[str, float]:
    """Return the metadata that Dagster plots, in its order."""
    numbers = (dg.IntMetadataValue, dg.FloatMetadataValue)
    return {n: v.value for n, v in event.metadata.items() if isinstance(v, numbers)}


def more(event: dg.AssetMaterialization) -> dict[str, float]:
    return value(event, "more_numbers")


def named(numbers: dict[str, float], ending: str) -> dict[str, float]:
    return {name: number for name, number in numbers.items() if name.endswith(ending)}


def test_the_event_names_the_manifest_and_the_pipeline(store) -> None:
    written = complete(store, 7, 1)
    event = materialization(store, read_stored(store, CheckpointId(7)))
    stored = store.objects.get(store.paths.manifest(CheckpointId(7)))
    assert event.tags["dagster/data_version"] == sha256_hex(stored)
    assert event.tags["dagster/code_version"] == fingerprint_of(dict(written.fingerprint))[:12]
    assert event.partition == "0000000007"
    assert value(event, "manifest").endswith("payments/checkpoints/0000000007/manifest.json")


def test_few_numbers_are_plotted_and_the_others_are_one_entry(store) -> None:
    complete(store, 7, 1)
    event = materialization(store, read_stored(store, CheckpointId(7)))
    numbers = plotted(event)
    assert numbers.pop("size_bytes") > 0
    assert list(numbers.items()) == [
        ("duration_ms", 40.5),
        ("alignment_ms", 3.25),
        ("state_rows", 4),
        ("inflight_rows", 0),
    ]
    others = more(event)
    assert others.pop("written_bytes") > 0
    assert others == {
        "start_delay_ms": 1.5,
        "sync_ms": 0.5,
        "async_ms": 12.25,
        "inflight_share": 0.0,
        "inflight_events": 0,
        "inflight_bytes": 0,
        "chain_length": 1,
    }


def test_operators_are_a_table(store) -> None:
    complete(store, 7, 1)
    event = materialization(store, read_stored(store, CheckpointId(7)))
    head, _, *rows = value(event, "operators").split("\n")
    assert head.startswith("|operator|subtasks|rows|bytes|")
    assert [row.split("|")[1:4] for row in rows] == [["window", "2", "4"], ["sink", "2", "0"]]


def test_rows_in_flight_are_counted_with_their_operator_and_drawn(store) -> None:
    event = shown(store, unaligned(generation=1))
    assert value(event, "inflight_rows") == 400
    assert more(event)["inflight_events"] == 6
    assert "|400|" in value(event, "operators")
    assert value(event, "alignment").startswith("![alignment per channel](data:image/svg+xml;")
    assert "400 rows in flight" in event.description


def test_a_share_of_nothing_is_nothing(store) -> None:
    assert more(shown(store, plain()))["inflight_share"] == 0.0


@pytest.mark.parametrize(
    ("behind_s", "lag_s"),
    [
        pytest.param(2.5, 2.5, id="behind"),
        pytest.param(-1.5, -1.5, id="a source whose clock is ahead"),
        pytest.param(3 * 365 * 86_400.0, None, id="the events of another year are no lag"),
    ],
)
def test_the_lag_is_shown_of_event_time_that_follows_the_clock(store, behind_s, lag_s) -> None:
    reached_us = round((COMPLETED_S - behind_s) * SECOND_US)
    event = shown(store, plain(alignment=(alignment(watermark_us=reached_us),)))
    assert value(event, "watermark") == reached_us / SECOND_US
    found = event.metadata.get("watermark_lag_s")
    assert (None if found is None else found.value) == lag_s


def test_the_end_of_event_time_is_no_point_in_time(store) -> None:
    event = shown(store, plain(alignment=(alignment(watermark_us=WATERMARK_END_US),)))
    assert not {"watermark", "watermark_lag_s"} & set(event.metadata)


def test_it_says_what_it_was_imported_from(store) -> None:
    event = shown(store, plain(imported_from="s3://other/savepoints/one"))
    assert value(event, "imported_from") == "s3://other/savepoints/one"


# --- who asked for it -----------------------------------------------------------------------------


def ask(
    store: CheckpointStore,
    actor: str,
    *,
    checkpoint_id: int | None = None,
    is_savepoint: bool = False,
    generation: int = 1,
) -> None:
    """A command that was begun; with ``checkpoint_id`` it is answered, too."""
    log = ControlLog(store.objects, store.paths)
    command = ControlCommand(
        command_id=f"command of {actor}",
        job=store.job,
        generation=generation,
        action=TakeSavepoint(target="/safe/place") if is_savepoint else TakeCheckpoint(),
        actor=actor,
        actor_kind=ActorKind.PERSON,
        reason="before the change",
        run_id="abc-def",
        requested_at_ms=1,
        expires_at_ms=2,
    )
    number = log.append(command)
    log.begin(number, ControlBegun(generation=generation, begun_at_ms=1))
    if checkpoint_id is not None:
        answer = ControlResult(
            outcome="completed",
            generation=generation,
            answered_at_ms=2,
            checkpoint_id=checkpoint_id,
        )
        log.answer(number, answer)


def test_who_asked_for_a_checkpoint_is_said(store) -> None:
    ask(store, "ann", checkpoint_id=6)
    ask(store, "bob", checkpoint_id=7)
    ask(store, "eve", checkpoint_id=8)
    event = shown(store, plain(kind=CheckpointKind.MANUAL))
    assert value(event, "requested_by") == "bob"
    assert value(event, "reason") == "before the change"
    assert event.metadata["requested_in"] == dg.MetadataValue.dagster_run("abc-def")


def test_a_savepoint_that_is_still_copied_has_been_asked_for_already(store) -> None:
    ask(store, "ann", checkpoint_id=6, is_savepoint=True)
    ask(store, "bob", is_savepoint=True)
    ask(store, "eve")  # Wants a checkpoint, not a savepoint.
    event = shown(store, plain(kind=CheckpointKind.SAVEPOINT))
    assert value(event, "requested_by") == "bob"


def test_an_interval_asks_for_itself(store) -> None:
    ask(store, "ann", checkpoint_id=7)
    assert "requested_by" not in shown(store, plain()).metadata


def test_a_command_for_another_generation_has_not_asked_for_it(store) -> None:
    ask(store, "ann", generation=2)
    assert "requested_by" not in shown(store, plain(kind=CheckpointKind.MANUAL)).metadata


# --- sources --------------------------------------------------------------------------------------


def with_source(store: CheckpointStore, **splits: list[int | None]) -> CheckpointManifest:
    """A manifest in which ``window`` is a source with these splits."""
    count = len(splits["next_row"])
    columns = {name: pa.array(column, pa.int64()) for name, column in splits.items()}
    table = pa.table({"split_id": list(range(count)), **columns})
    state = store.parts.write_state(CheckpointId(7), "window", 0, table)
    descriptions = {**DESCRIPTIONS, "window": {"connector": "parquet"}}
    first, *others = plain().subtasks
    return plain(
        operators_description=descriptions,
        fingerprint={op: fingerprint_of(text) for op, text in descriptions.items()},
        subtasks=(first.model_copy(update={"segments": (state,)}), *others),
    )


def test_positions_of_a_source_that_ends_have_a_rest(store) -> None:
    stored = publish(store, with_source(store, next_row=[30, 12], row_count=[40, 12]))
    observed = source_observation(store, stored)
    positions = {"rows_read/window": 42, "rows_left/window": 10}
    assert named(more(materialization(store, stored)), "/window") == positions
    assert {name: value(observed, name) for name in positions} == positions


def test_positions_of_a_source_that_never_ends_have_none(store) -> None:
    event = shown(store, with_source(store, next_row=[30, 12], row_count=[40, None]))
    assert named(more(event), "/window") == {"rows_read/window": 42}


def test_a_position_that_cannot_be_read_costs_only_itself(store) -> None:
    written = with_source(store, next_row=[30], row_count=[40])
    stored = publish(store, written)
    damage(store, store.paths.absolute(written.subtasks[0].segments[0].path), "rotten")
    event = materialization(store, stored)
    assert named(more(event), "/window") == {}
    assert source_observation(store, stored) is None


# --- size -----------------------------------------------------------------------------------------


def test_an_event_stays_small_whatever_the_job_looks_like(store) -> None:
    """Goal: events are kept for ever. A wide job costs a line per operator, and a bounded chart."""
    two, many = (
        shown(store, plain(checkpoint_id=7 + subtasks, alignment=aligned_in(subtasks)))
        for subtasks in (2, 64)
    )
    assert len(serialize_value(two)) < 5_000
    assert len(serialize_value(many)) - len(serialize_value(two)) < 2_000


def aligned_in(subtasks: int) -> tuple[AlignmentEntry, ...]:
    return tuple(
        alignment(subtask_index=index, alignment_ms=100.0 * index) for index in range(subtasks)
    )


def test_bad_rows_are_shown_for_sources_that_have_any(store: CheckpointStore) -> None:
    properties = BadRowTotals(letters=2, dropped=3).as_properties()
    subtasks = tuple(
        subtask(op, index).model_copy(update={"properties": properties if op == "window" else {}})
        for op in ("window", "sink")
        for index in (0, 1)
    )
    event = shown(store, plain(subtasks=subtasks))
    assert named(more(event), "/window") == {"letters/window": 4, "bad_rows_dropped/window": 6}
    assert named(more(event), "/sink") == {}
