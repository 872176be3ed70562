"""The events of a job are public: programs read them, so names and fields stay."""

import json

import pytest
from pydantic import ValidationError

from laminar_core.driver.events import (
    CheckpointCompleted,
    CheckpointFailed,
    CleanUpFailed,
    DataFlowing,
    Finished,
    GenerationFailed,
    GenerationStarted,
    MissingChannel,
    MissingSubtask,
    ProgressMade,
    RejectedCheckpoint,
    ThresholdTooLow,
    WorkersRunning,
    ignore,
)
from laminar_core.errors import BrokenLink
from laminar_core.protocol.types import CheckpointKind
from laminar_core.protocol.waiting import WaitsFor

EVENTS = [
    (
        GenerationStarted(
            time_ms=1,
            generation=2,
            parallelism=2,
            restored_checkpoint_id=None,
            rejected=(RejectedCheckpoint(checkpoint_id=7, reason="torn"),),
            rows_total=None,
        ),
        (
            '{"time_ms":1,"event":"generation-started","generation":2,"parallelism":2,'
            '"restored_checkpoint_id":null,"rejected":[{"checkpoint_id":7,"reason":"torn"}],'
            '"rows_total":null,"reset":[],"restored_workers":null}'
        ),
    ),
    (
        WorkersRunning(time_ms=1, generation=2, pids=(3, 4), hosts=("a", "b")),
        '{"time_ms":1,"event":"workers-running","generation":2,"pids":[3,4],"hosts":["a","b"]}',
    ),
    (DataFlowing(time_ms=1, generation=2), '{"time_ms":1,"event":"data-flowing","generation":2}'),
    (
        ProgressMade(
            time_ms=1,
            rows_in=5,
            rows_out=1,
            rows_late=0,
            rows_total=9,
            rows_per_s=2.5,
            watermark_us=-1,
        ),
        (
            '{"time_ms":1,"event":"progress","rows_in":5,"rows_out":1,"rows_late":0,"rows_total":9,'
            '"rows_per_s":2.5,"watermark_us":-1,'
            '"unaligned":{"unaligned_count":0,"threshold_switches":0,"total_inflight_bytes":0,'
            '"is_in_unaligned_mode":false},'
            '"uncommitted_checkpoints":0,"commit_ms":null,"commit_retries":0,"fenced":0}'
        ),
    ),
    (
        CheckpointCompleted(
            time_ms=1,
            checkpoint_id=7,
            generation=2,
            kind=CheckpointKind.FINAL,
            mode="aligned",
            duration_ms=12.5,
            alignment_ms=1.0,
            sync_ms=0.5,
            async_ms=3.0,
            size_bytes=4,
        ),
        (
            '{"time_ms":1,"event":"checkpoint-completed","checkpoint_id":7,"generation":2,'
            '"kind":"final","mode":"aligned","duration_ms":12.5,"alignment_ms":1.0,"sync_ms":0.5,'
            '"async_ms":3.0,"size_bytes":4,"written_bytes":0,"inflight_bytes":0,"inflight_rows":0}'
        ),
    ),
    (
        CheckpointFailed(
            time_ms=1,
            checkpoint_id=7,
            generation=2,
            kind=CheckpointKind.PERIODIC,
            outcome="expired",
            reason="slow",
            missing=(
                MissingSubtask(
                    vertex_id="sums",
                    subtask_index=1,
                    operators=("sums", "out"),
                    host="b",
                    waits_for=WaitsFor.BARRIERS,
                    channels=(MissingChannel(upstream="in", sender=0),),
                    channel_count=2,
                ),
            ),
            missing_count=1,
        ),
        (
            '{"time_ms":1,"event":"checkpoint-failed","checkpoint_id":7,"generation":2,'
            '"kind":"periodic","outcome":"expired","reason":"slow","missing":[{"vertex_id":"sums",'
            '"subtask_index":1,"operators":["sums","out"],"host":"b","waits_for":"barriers",'
            '"channels":[{"upstream":"in","sender":0}],"channel_count":2}],"missing_count":1}'
        ),
    ),
    (
        CleanUpFailed(time_ms=1, checkpoint_id=7, reason="no answer"),
        '{"time_ms":1,"event":"clean-up-failed","checkpoint_id":7,"reason":"no answer"}',
    ),
    (
        ThresholdTooLow(time_ms=1, checkpoints=10, alignment_timeout_ms=500),
        '{"time_ms":1,"event":"threshold-too-low","checkpoints":10,"alignment_timeout_ms":500}',
    ),
    (
        GenerationFailed(
            time_ms=1, generation=2, code="worker-lost", reason="killed", restart_in_ms=None
        ),
        (
            '{"time_ms":1,"event":"generation-failed","generation":2,"code":"worker-lost",'
            '"reason":"killed","restart_in_ms":null}'
        ),
    ),
    (
        Finished(time_ms=1, outcome="stopped", rows_in=5, rows_out=1, rows_late=0, checkpoints=3),
        (
            '{"time_ms":1,"event":"finished","outcome":"stopped","rows_in":5,"rows_out":1,'
            '"rows_late":0,"checkpoints":3}'
        ),
    ),
]


@pytest.mark.parametrize(("event", "line"), EVENTS, ids=[event.event for event, _ in EVENTS])
def test_an_event_is_one_line_of_json_that_stays_as_it_is(event, line: str) -> None:
    assert event.model_dump_json() == line
    assert type(event).model_validate_json(line) == event


@pytest.mark.parametrize(("event", "line"), EVENTS, ids=[event.event for event, _ in EVENTS])
def test_an_event_is_a_fact_and_does_not_change(event, line: str) -> None:
    with pytest.raises(ValidationError):
        event.time_ms = 2
    with pytest.raises(ValidationError):
        type(event).model_validate(json.loads(line) | {"surprise": 1})


def test_nobody_has_to_listen() -> None:
    for event, _ in EVENTS:
        ignore(event)


def test_connections_that_stayed_away_are_fields_of_a_failure() -> None:
    event = GenerationFailed(
        time_ms=1,
        generation=2,
        code="link-broken",
        reason="silent",
        restart_in_ms=50,
        links=(BrokenLink(1, "b", 0, "a"),),
    )
    assert event.model_dump_json().partition('"links":')[2] == (
        '[{"sender":1,"sender_host":"b","receiver":0,"receiver_host":"a"}]}'
    )
    assert GenerationFailed.model_validate_json(event.model_dump_json()) == event
