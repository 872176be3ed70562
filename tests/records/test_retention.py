"""Records of retention: what is written is read again, for ever, and nothing else is."""

from pathlib import Path

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.actor import ActorKind
from laminar_core.records.retention import (
    TOMBSTONE_LENGTH_MAX,
    DeletionMarker,
    PinRecord,
    PlannedCheckpoint,
    PlannedFile,
    QuarantineRecord,
    RetentionDecision,
    RetentionPlanRecord,
    RetentionResult,
    SealedRecord,
    Tombstone,
    is_tombstone,
    parse_sealed,
)
from tests.records.manifests import manifest

GOLDEN = Path(__file__).parent.parent / "golden"

ORPHAN = PlannedFile(
    path="checkpoints/0000000003/operators/window/state_0.seg",
    reason="checkpoint 3 never completed, and generation 1 is over",
    size_bytes=7,
    checkpoint_id=3,
)
RECORDS: dict[str, SealedRecord] = {
    "plan": RetentionPlanRecord(
        format_version=1,
        number=4,
        job="payments",
        generation=2,
        actor="eve",
        reason="the disk is full",
        planned_at_ms=1_700_000_000_000,
        policy={"keep_last": 3},
        checkpoints=(
            PlannedCheckpoint(
                checkpoint_id=1,
                reasons=("older than the last 3 that can be restored, and in no other tier",),
                files=("checkpoints/0000000001/operators/window/state_0.seg",),
                size_bytes=10,
            ),
        ),
        orphans=(ORPHAN,),
        abandoned=(3,),
        quarantine=(ORPHAN,),
        released=("shared/window/0000000001-0-00000002.seg",),
        forgotten=(2,),
    ),
    "decision": RetentionDecision(
        number=4, verdict="apply", by="eve", reason="the disk is full", checkpoint_ids=(1,)
    ),
    "result": RetentionResult(
        number=4,
        finished_at_ms=1_700_000_000_900,
        deleted_checkpoints=1,
        deleted_files=2,
        deleted_bytes=17,
        quarantined_files=1,
    ),
    "marker": DeletionMarker(checkpoint_id=1, plan=4, actor="eve", reason="too old"),
    "tombstone": Tombstone(checkpoint_id=3, plan=4),
    "quarantine": QuarantineRecord(
        path=ORPHAN.path,
        reason=ORPHAN.reason,
        size_bytes=7,
        plan=4,
        first_seen_at_ms=1_700_000_000_000,
    ),
    "pin": PinRecord(
        checkpoint_id=12,
        name="audit",
        actor="eve",
        reason="to compare",
        created_at_ms=1_700_000_000_000,
        expires_at_ms=1_700_000_600_000,
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_version_1_is_read_for_ever(name: str) -> None:
    stored = (GOLDEN / f"retention_{name}_v1.json").read_bytes()
    assert parse_sealed(type(RECORDS[name]), stored) == RECORDS[name]
    assert RECORDS[name].to_bytes() == stored


def test_a_plan_of_version_2_says_what_kind_of_actor_wanted_it() -> None:
    stored = (GOLDEN / "retention_plan_v2.json").read_bytes()
    fields = dict(RECORDS["plan"]) | {"format_version": 2, "actor_kind": ActorKind.SCHEDULE}
    written = RetentionPlanRecord(**fields)
    assert parse_sealed(RetentionPlanRecord, stored) == written
    assert written.to_bytes() == stored


@pytest.mark.parametrize("name", RECORDS)
def test_a_flipped_bit_anywhere_is_found(name: str) -> None:
    whole = RECORDS[name].to_bytes()
    for place in range(0, len(whole), 7):
        data = bytearray(whole)
        data[place] ^= 1
        with pytest.raises(CorruptCheckpointError):
            parse_sealed(type(RECORDS[name]), bytes(data))


def test_a_record_without_its_digest_is_refused() -> None:
    whole = RECORDS["plan"].model_dump_json(indent=1).encode() + b"\n"
    with pytest.raises(CorruptCheckpointError, match="its digest is missing"):
        parse_sealed(RetentionPlanRecord, whole)


def test_a_tombstone_is_no_manifest_and_no_manifest_is_a_tombstone() -> None:
    stone = Tombstone(checkpoint_id=9_999_999_999, plan=9_999_999_999).to_bytes()
    assert is_tombstone(stone)
    assert len(stone) < TOMBSTONE_LENGTH_MAX < len(manifest().to_bytes())
    assert not is_tombstone(manifest().to_bytes())
    assert not is_tombstone(b"")
    assert not is_tombstone(stone[:-5])


def test_a_plan_knows_its_bytes() -> None:
    plan = RECORDS["plan"]
    assert isinstance(plan, RetentionPlanRecord)
    assert plan.deleted_bytes == 17
