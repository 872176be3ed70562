"""Records as they were first written: they are read, and written, the same for ever.

Those of whole jobs (claims, bases, triggers, commits, history) are in ``golden/store_v1`` and
``store_v2``, those of retention and of the audit log have tests of their own.
"""

from pathlib import Path

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.actor import ActorKind
from laminar_core.records.commands import (
    ControlBegun,
    ControlCommand,
    ControlResult,
    SetMode,
    StopJob,
)
from laminar_core.records.drill import DrilledOperator, DrillRecord
from laminar_core.records.manifest import (
    GenerationBase,
    GenerationClaim,
    GenerationEnd,
    Owner,
    parse_record,
)
from laminar_core.records.partial_reset import PartialReset
from laminar_core.records.savepoint import SavepointDeletion
from laminar_core.records.savepoint_use import SavepointUse
from laminar_core.records.spark_application import SparkApplication

GOLDEN = Path(__file__).parents[1] / "golden"
DIGEST = "0123456789abcdef" * 4
ASKED = {
    "format_version": 1,
    "command_id": "host/boot/12/34/5",
    "job": "payments",
    "generation": 3,
    "actor": "ada",
    "reason": "new cluster",
    "requested_at_ms": 1_700_000_000_000,
    "expires_at_ms": 1_700_000_600_000,
}
RECORDS = {
    "control_stop": ControlCommand(
        action=StopJob(target="s3://bucket/savepoints/last"), run_id="run-7", **ASKED
    ),
    "control_mode": ControlCommand(action=SetMode(mode=5_000), **ASKED),
    "control_begun": ControlBegun(generation=3, begun_at_ms=1_700_000_000_500),
    "control_result": ControlResult(
        outcome="completed",
        reason="",
        generation=3,
        answered_at_ms=1_700_000_001_000,
        checkpoint_id=12,
        savepoint="s3://bucket/savepoints/last",
        details={"alignment_timeout_ms": 5_000},
    ),
    "drill": DrillRecord(
        job="payments",
        number=2,
        outcome="failed",
        problems=("totals restored 9 rows",),
        error_code="drill-failed",
        exit_code=1,
        checkpoint_id=12,
        workers_before=2,
        workers=3,
        operators=(
            DrilledOperator(
                operator_id="totals",
                rows_expected=10,
                rows_restored=9,
                digest_expected="00000000000000aa",
                digest_restored="00000000000000bb",
            ),
        ),
        size_bytes=12_345,
        inflight_rows=7,
        rows_read=100,
        completed_checkpoint_id=13,
        started_at_ms=1_700_000_000_000,
        duration_ms=1_234.5,
        actor="ada",
        reason="the weekly drill",
    ),
    "base_of_savepoint": GenerationBase(
        generation=4,
        base_checkpoint_id=21,
        savepoint=SavepointUse(uri="/backups/last", sha256=DIGEST, claimed=True, timeline_floor=0),
    ),
    "base_of_reset": GenerationBase(
        generation=4,
        base_checkpoint_id=21,
        reset=PartialReset(operators=("out", "sales", "totals")),
    ),
    "generation_end": GenerationEnd(format_version=1, generation=3, outcome="stopped", reason=""),
    "savepoint_deletion": SavepointDeletion(job="payments", generation=4, savepoint_sha256=DIGEST),
}

BY_SENSOR = {
    "format_version": 2,
    "actor": "sensor payments_alignment",
    "actor_kind": ActorKind.SENSOR,
}
NEWER = {
    "control_mode": ControlCommand(action=SetMode(mode="unaligned"), **ASKED | BY_SENSOR),
    "claim": GenerationClaim(
        job="payments",
        generation=3,
        owner=Owner(
            host_id="driver-1/4026531836",
            boot_id="24344702-ad4f-477f-90dc-d6b968af79e0",
            pid=4711,
            pid_start_time=2_385_300,
            claim_number=1,
            user="streams",
        ),
        actor="nightly",
        actor_kind=ActorKind.SCHEDULE,
        reason="a new version",
        code_version="laminar 0.1.0",
        claimed_at_ms=1_700_000_000_000,
        format_version=2,
    ),
    "generation_end": GenerationEnd(generation=3, outcome="failed", reason="", gave_up=True),
}
"""Golden records of format 2: the kind of actor, and whether a driver gave up."""

NEWEST = NEWER["claim"].model_copy(
    update={
        "format_version": 3,
        "spark": SparkApplication(
            application_id="app-20260301120000-0004", master="spark://m1:7077,m2:7077"
        ),
    }
)


def test_a_golden_claim_of_format_3_names_the_spark_application() -> None:
    stored = (GOLDEN / "claim_v3.json").read_bytes()
    assert parse_record(GenerationClaim, stored) == NEWEST
    assert NEWEST.to_bytes() == stored


def test_a_claim_of_format_2_names_none() -> None:
    forged = (GOLDEN / "claim_v3.json").read_bytes().replace(b": 3,", b": 2,", 1)
    with pytest.raises(CorruptCheckpointError, match="spark came with format 3"):
        parse_record(GenerationClaim, forged)


def test_an_end_of_format_1_does_not_know_whether_the_driver_gave_up() -> None:
    forged = (GOLDEN / "generation_end_v2.json").read_bytes().replace(b": 2,", b": 1,", 1)
    with pytest.raises(CorruptCheckpointError, match="gave_up came with format 2"):
        parse_record(GenerationEnd, forged)


@pytest.mark.parametrize("name", NEWER)
def test_a_golden_record_of_format_2_is_read_and_written_as_it_was(name: str) -> None:
    stored = (GOLDEN / f"{name}_v2.json").read_bytes()
    assert parse_record(type(NEWER[name]), stored) == NEWER[name]
    assert NEWER[name].to_bytes() == stored


@pytest.mark.parametrize(
    ("actor", "kind"),
    [
        ("ada", "person"),
        ("sensor payments_alignment", "sensor"),
        ("schedule nightly", "schedule"),
        ("laminar", "program"),
        ("sensors", "person"),
    ],
)
def test_the_kind_of_an_older_record_follows_from_the_name(actor: str, kind: str) -> None:
    older = ControlCommand(action=StopJob(), **ASKED | {"actor": actor})
    data = older.to_bytes()
    assert b"actor_kind" not in data
    assert parse_record(ControlCommand, data).by.kind == kind
    assert parse_record(ControlCommand, data).to_bytes() == data


@pytest.mark.parametrize("name", RECORDS)
def test_a_golden_record_is_read_and_written_as_it_was(name: str) -> None:
    stored = (GOLDEN / f"{name}_v1.json").read_bytes()
    assert parse_record(type(RECORDS[name]), stored) == RECORDS[name]
    assert RECORDS[name].to_bytes() == stored
