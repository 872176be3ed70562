import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.protocol.types import CheckpointKind, ResolvedMode
from laminar_core.records.actor import ActorKind
from laminar_core.records.manifest import (
    CommitRecord,
    FileRef,
    GenerationBase,
    GenerationClaim,
    GenerationEnd,
    Heartbeat,
    HistoryRecord,
    Owner,
    Record,
    SubtaskNumbers,
    TriggerRecord,
    fingerprint_of,
    parse_record,
    resolved_mode,
)
from laminar_core.records.seal import unseal
from laminar_core.records.stored_manifest import StoredManifest
from tests.records.manifests import (
    DESCRIPTIONS,
    DIGEST,
    alignment,
    edge,
    file_ref,
    files_of,
    inflight,
    manifest,
    subtask,
    unaligned,
)

MODES: list[ResolvedMode] = ["aligned", "unaligned", "switched"]

OWNER = Owner(host_id="host/1", boot_id="b", pid=7, pid_start_time=9, claim_number=1, user="root")
RECORDS = [
    OWNER,
    GenerationClaim(
        job="payments",
        generation=3,
        owner=OWNER,
        actor="dagster",
        actor_kind=ActorKind.RUN,
        reason="restart",
        code_version="0.1.0",
        claimed_at_ms=1,
    ),
    GenerationBase(generation=3, base_checkpoint_id=None),
    GenerationBase(generation=3, base_checkpoint_id=None, closed_by=4),
    Heartbeat(sequence=0, at_ms=1, progress={"rows": 5, "sources": ["a", None]}),
    GenerationEnd(generation=3, outcome="finished", reason="end of input"),
    TriggerRecord(checkpoint_id=1, generation=3, kind=CheckpointKind.SAVEPOINT, triggered_at_ms=1),
    CommitRecord(checkpoint_id=1, generation=3, committed_at_ms=1, committables={"sink": 2}),
    HistoryRecord(
        checkpoint_id=1,
        generation=3,
        kind=CheckpointKind.FINAL,
        outcome="expired",
        reason="took 10 min",
        triggered_at_ms=1,
        ended_at_ms=2,
        duration_ms=1,
        mode="unaligned",
        alignment_ms_max=0.5,
        subtasks=(
            SubtaskNumbers(
                operator_id="w", subtask_index=0, size_bytes=1, row_count=2, sync_ms=0, async_ms=1
            ),
        ),
    ),
]


EVERY_RECORD = [StoredManifest.of(manifest()), StoredManifest.of(unaligned()), *RECORDS]
IDS = [f"{type(record).__name__}-{i}" for i, record in enumerate(EVERY_RECORD)]


class TestOneConsistentCut:
    def test_a_missing_subtask_is_named(self):
        with pytest.raises(ValidationError, match=r"missing \[\('sink', 1\)\]"):
            manifest(subtasks=manifest().subtasks[:-1])

    def test_a_subtask_that_came_twice_is_named(self):
        with pytest.raises(ValidationError, match=r"unexpected \[\('sink', 1\)\]"):
            manifest(subtasks=(*manifest().subtasks, subtask("sink", 1)))

    def test_a_subtask_of_an_unknown_operator_is_named(self):
        with pytest.raises(ValidationError, match=r"unexpected \[\('ghost', 0\)\]"):
            manifest(subtasks=(*manifest().subtasks, subtask("ghost", 0)))

    def test_two_subtasks_cannot_share_a_file(self):
        twice = tuple(subtask(op, i, file_ref()) for op in ("window", "sink") for i in (0, 1))
        with pytest.raises(ValidationError, match="listed twice"):
            manifest(subtasks=twice)

    @pytest.mark.parametrize("parent", [7, 8])
    def test_a_parent_is_older(self, parent):
        with pytest.raises(ValidationError, match="older than its child"):
            manifest(parent_checkpoint_id=parent)

    def test_the_first_checkpoint_has_no_parent(self):
        assert manifest(parent_checkpoint_id=None, checkpoint_id=1).parent_checkpoint_id is None

    def test_an_aligned_checkpoint_has_only_what_a_loop_logged(self):
        with pytest.raises(ValidationError, match="mode is aligned but the parts say switched"):
            manifest(inflight_data=(inflight(),))
        logged = inflight(edge=edge(feedback=True))
        files = files_of(logged)
        assert manifest(inflight_data=(logged,), inflight_files=files).mode == "aligned"

    @pytest.mark.parametrize(
        ("mode", "is_unaligned"),
        [("aligned", True), ("unaligned", False), ("switched", False)],
    )
    def test_mode_and_flag_say_the_same(self, mode, is_unaligned):
        with pytest.raises(ValidationError, match="but the mode is"):
            manifest(mode=mode, is_unaligned=is_unaligned, alignment=(alignment(mode=mode),))

    @pytest.mark.parametrize("said", MODES)
    @pytest.mark.parametrize("met", MODES)
    def test_the_mode_is_that_of_the_parts(self, said, met):
        changes = {
            "mode": said,
            "is_unaligned": said != "aligned",
            "alignment": (alignment(mode=met),),
        }
        if said == met:
            assert manifest(**changes).mode == met
        else:
            with pytest.raises(ValidationError, match=f"is {said} but the parts say {met}"):
                manifest(**changes)

    @pytest.mark.parametrize("changes", [{"operator_id": "ghost"}, {"receiver": 2}])
    def test_inflight_data_is_of_a_subtask_that_exists(self, changes):
        entry = inflight(**changes | {"subtask_index": changes.get("receiver", 0)})
        with pytest.raises(ValidationError, match="of unknown subtasks"):
            unaligned(inflight_data=(entry,))

    def test_a_queue_has_one_part(self):
        other = inflight(path="checkpoints/0000000007/operators/window/0/inflight_2.buf")
        with pytest.raises(ValidationError, match="one queue has several parts"):
            unaligned(inflight_data=(inflight(), other))
        elsewhere = inflight(edge=edge(input_index=1), path=other.path)
        assert len(unaligned(inflight_data=(inflight(), elsewhere)).inflight_data) == 2

    def test_queues_share_a_file_and_each_has_its_own_bytes_of_it(self):
        first, second = inflight(), inflight(edge=edge(input_index=1), offset=99)
        made = unaligned(inflight_data=(second, first))
        assert [file.size_bytes for file in made.inflight_files] == [198]
        assert made.size_bytes == 1234 + 198
        for offset, problem in [(98, "overlaps with another part"), (100, "is behind the end")]:
            moved = second.model_copy(update={"offset": offset})
            with pytest.raises(ValidationError, match=problem) as caught:
                unaligned(inflight_data=(first, moved), inflight_files=made.inflight_files)
            assert "input 1 of window subtask 0, from source 1 to keyed 0" in str(caught.value)

    def test_in_flight_data_is_in_a_file_that_is_listed_and_all_of_these_have_some(self):
        with pytest.raises(ValidationError, match="in a file that is not listed"):
            unaligned(inflight_files=files_of(inflight()))
        with pytest.raises(ValidationError, match="files without parts"):
            manifest(inflight_files=files_of(inflight()))

    def test_a_part_is_not_empty(self):
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            inflight(size_bytes=0)

    @pytest.mark.parametrize(("direction", "subtask"), [("input", 1), ("output", 0)])
    def test_a_queue_is_at_the_end_that_its_direction_says(self, direction, subtask):
        with pytest.raises(ValidationError, match="must be recorded by its"):
            inflight(direction=direction, subtask_index=subtask, sender=1, receiver=0)

    def test_the_fingerprint_is_that_of_the_description(self):
        with pytest.raises(ValidationError, match="not that of the operators"):
            manifest(operators_description=DESCRIPTIONS | {"sink": {"kind": "other"}})

    def test_every_operator_has_a_description(self):
        with pytest.raises(ValidationError, match=r"without description: \['sink'\]"):
            manifest(
                fingerprint={"window": fingerprint_of(DESCRIPTIONS["window"])},
                operators_description={"window": DESCRIPTIONS["window"]},
            )

    def test_a_clock_that_stepped_back_costs_no_checkpoint(self):
        assert manifest(completed_at_ms=0, duration_ms=-5).duration_ms == -5


def test_all_files_are_listed_also_those_of_inflight_data():
    files = unaligned().files()
    assert files[:2] == (file_ref(), *files_of(inflight()))
    assert files[2].path == "checkpoints/0000000007/operators/window/1/outflight_0.buf"
    assert unaligned().size_bytes == 1234 + 99 + 99


class TestResolvedMode:
    """How the modes of subtasks add up to that of the checkpoint."""

    @pytest.mark.parametrize(
        ("modes", "resolved"),
        [
            ([], "aligned"),
            (["aligned", "aligned"], "aligned"),
            (["unaligned", "unaligned"], "unaligned"),
            (["aligned", "unaligned"], "unaligned"),
            (["aligned", "switched"], "switched"),
            (["unaligned", "switched"], "switched"),
            (["aligned", "unaligned", "switched"], "switched"),
        ],
    )
    def test_it_is_that_of_the_subtasks(self, modes, resolved):
        for order in permutations(modes):
            assert resolved_mode([alignment(mode=mode) for mode in order], ()) == resolved

    @pytest.mark.parametrize("mode", ["unaligned", "switched"])
    def test_a_finished_subtask_counts_because_its_output_may_still_be_overtaken(self, mode):
        parts = [alignment(), alignment(mode=mode, finished=True)]
        assert resolved_mode(parts, ()) == mode

    def test_what_was_overtaken_while_nobody_says_so_is_a_switch(self):
        assert resolved_mode([alignment()], [inflight()]) == "switched"
        assert resolved_mode([alignment(mode="unaligned")], [inflight()]) == "unaligned"

    def test_the_log_of_a_loop_belongs_to_every_mode(self):
        logged = inflight(edge=edge(feedback=True))
        assert {resolved_mode([alignment(mode=mode)], [logged]) for mode in MODES} == set(MODES)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../other/a", "a//b", "a/../b", ".hidden"])
def test_a_file_outside_the_job_is_refused(path):
    with pytest.raises(ValidationError, match="not an object name"):
        FileRef(path=path, size_bytes=1, sha256=DIGEST)


@pytest.mark.parametrize("digest", ["", "ABC", DIGEST.upper(), DIGEST[1:], DIGEST + "0"])
def test_a_digest_is_64_lower_case_hex_digits(digest):
    with pytest.raises(ValidationError):
        FileRef(path="a", size_bytes=1, sha256=digest)


def plain(record: Record) -> bytes:
    """Its JSON; that of a manifest without the seal, which ``test_seal.py`` is about."""
    return unseal(record.to_bytes())


@pytest.mark.parametrize("record", EVERY_RECORD, ids=IDS)
class TestEveryRecord:
    def test_comes_back_as_it_was(self, record: Record):
        assert parse_record(type(record), plain(record)) == record

    def test_refuses_an_unknown_field(self, record: Record):
        changed = json.loads(plain(record)) | {"extra": 1}
        with pytest.raises(CorruptCheckpointError, match="extra"):
            parse_record(type(record), json.dumps(changed).encode())

    def test_refuses_every_missing_field_that_has_no_default(self, record: Record):
        fields = json.loads(plain(record))
        for name, field in type(record).model_fields.items():
            if field.is_required():
                rest = {key: value for key, value in fields.items() if key != name}
                with pytest.raises(CorruptCheckpointError, match=name):
                    parse_record(type(record), json.dumps(rest).encode())

    def test_refuses_a_number_written_as_text(self, record: Record):
        fields = json.loads(plain(record))
        for name, value in fields.items():
            if isinstance(value, int) and not isinstance(value, bool):
                with pytest.raises(CorruptCheckpointError, match=name):
                    parse_record(type(record), json.dumps(fields | {name: str(value)}).encode())

    def test_torn_anywhere_is_unreadable_in_one_line(self, record: Record):
        data = plain(record)
        for length in range(len(data) - 2):
            with pytest.raises(CorruptCheckpointError) as caught:
                parse_record(type(record), data[:length])
            assert caught.value.code is ErrorCode.MANIFEST_UNREADABLE
            assert "\n" not in str(caught.value)

    def test_cannot_be_changed(self, record: Record):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(record, next(iter(type(record).model_fields)), None)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused_when_written(value):
    with pytest.raises(ValidationError, match="finite"):
        subtask("window", 0, properties={"deep": [{"x": value}]})


@pytest.mark.parametrize("closed_by", [2, 3])
def test_only_a_later_generation_closes(closed_by):
    with pytest.raises(ValidationError, match="only a later generation"):
        GenerationBase(generation=3, base_checkpoint_id=None, closed_by=closed_by)


def test_a_base_cannot_be_closed_and_set():
    with pytest.raises(ValidationError, match="only a later generation"):
        GenerationBase(generation=3, base_checkpoint_id=1, closed_by=4)


class TestFingerprint:
    @given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
    def test_the_order_of_keys_does_not_matter(self, description):
        assert fingerprint_of(description) == fingerprint_of(dict(reversed(description.items())))

    def test_any_change_of_a_value_matters(self):
        assert fingerprint_of({"size": 1}) != fingerprint_of({"size": 2})
        assert fingerprint_of({"size": 1}) != fingerprint_of({"size": "1"})

    def test_it_is_frozen(self):
        assert fingerprint_of({"size": 1, "key": ["a", None]})[:8] == "6c5c42bf"
