"""The acknowledgements of workers become one manifest and one line of history."""

from dataclasses import replace
from itertools import permutations, product

import pytest

from laminar_core.driver.carrying import Carried
from laminar_core.driver.publication import (
    Completion,
    JobIdentity,
    build_manifest,
    committables_of,
    history_record,
    longest_alignment_ms,
    longest_phase_ms,
)
from laminar_core.link.messages import SnapshotAck
from laminar_core.protocol.coordinator_events import Outcome, RecordOutcome
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation, ResolvedMode
from laminar_core.records.channel_entries import AlignmentEntry, InflightEntry
from laminar_core.records.manifest import TriggerRecord, fingerprint_of
from laminar_core.records.manifest_fields import DiscoveryEntry
from laminar_core.records.manifest_versions import parse_manifest
from tests.plan.plans import small_plan
from tests.records.manifests import edge, edge_entry, file_ref, files_of, inflight, subtask
from tests.records.test_manifest_versions import CARRYING

PLAN = small_plan()
WORKERS = 2
IDENTITY = JobIdentity("payments", Generation(3), PLAN, WORKERS)
TRIGGER = TriggerRecord(
    checkpoint_id=9, generation=3, kind=CheckpointKind.PERIODIC, triggered_at_ms=1_000
)


def aligned(vertex_id: str, worker: int, mode: ResolvedMode = "aligned") -> AlignmentEntry:
    return AlignmentEntry(
        vertex_id=vertex_id,
        subtask_index=worker,
        mode=mode,
        start_delay_ms=1,
        alignment_ms=5.0 + worker,
        watermark_us=None,
    )


def overtaken(sender: int, receiver: int, direction: str) -> InflightEntry:
    """Return the rows that an unaligned barrier passed on one channel of the only edge."""
    subtask_index = receiver if direction == "input" else sender
    input_id = sender if direction == "input" else receiver
    return inflight(
        operator_id="time" if direction == "input" else "keep",
        direction=direction,
        subtask_index=subtask_index,
        input_id=input_id,
        edge=edge(upstream="in", downstream="time"),
        sender=sender,
        receiver=receiver,
        path=f"operators/{direction}/{subtask_index}/{input_id}.buf",
    )


def ack(
    worker: int, mode: ResolvedMode = "aligned", captured: tuple[InflightEntry, ...] = ()
) -> SnapshotAck:
    """One worker's part; tasks finish in any order, here from the last to the first."""
    path = f"checkpoints/0000000009/operators/in/state_{worker}.arrow"
    entries = (
        subtask("out", worker, committables=({"file": worker}, {"file": worker + 10})),
        subtask("time", worker),
        subtask("keep", worker),
        subtask("in", worker, file_ref(path), sync_ms=0.5 + worker, async_ms=9.0 - worker),
    )
    return SnapshotAck(
        generation=3,
        worker=worker,
        checkpoint_id=9,
        entries=entries,
        alignment=(aligned("time", worker, mode), aligned("in", worker)),
        inflight_files=files_of(*captured),
        inflight=captured,
    )


DISCOVERY = {"in": DiscoveryEntry(state={"n": 1}, next_split_id=4, complete=False)}


def test_a_manifest_has_what_was_found() -> None:
    assert built().discovery == DISCOVERY


def built(*acks: SnapshotAck):
    given = acks or (ack(0), ack(1))
    completion = Completion(1_250, 250)
    return build_manifest(IDENTITY, TRIGGER, CheckpointId(8), given, completion, DISCOVERY)


def in_wall_time(protocol_ms: int) -> int:
    return 1_700_000_000_000 + protocol_ms


def test_a_manifest_says_whose_it_is_and_how_long_it_took() -> None:
    made = built()
    assert (made.job, made.generation, made.checkpoint_id) == ("payments", 3, 9)
    assert (made.parent_checkpoint_id, made.kind) == (8, CheckpointKind.PERIODIC)
    assert (made.triggered_at_ms, made.completed_at_ms, made.duration_ms) == (1_000, 1_250, 250)
    assert made.parallelism == dict.fromkeys(PLAN.operator_ids(), WORKERS)
    assert made.operators_description == PLAN.descriptions()
    assert made.fingerprint["in"] == fingerprint_of(PLAN.descriptions()["in"])


def test_a_manifest_lists_the_edges_with_their_partitioning() -> None:
    (edge_in_manifest,) = built().edges
    assert edge_in_manifest == edge_entry(upstream="in", downstream="time")
    assert (edge_in_manifest.partitioning, edge_in_manifest.loop) == ("keyed", None)


def test_what_is_carried_is_in_every_manifest_as_it_was() -> None:
    before = CARRYING
    identity = replace(IDENTITY, carried=Carried(before, before.carried, {}))
    completion = Completion(1_250, 250)
    made = build_manifest(
        identity, TRIGGER, CheckpointId(8), [ack(0), ack(1)], completion, DISCOVERY
    )
    assert made.carried == before.carried
    assert made.parallelism == built().parallelism | {"gone": 3}
    assert made.discovery == built().discovery | before.discovery
    entries = [e for e in made.subtasks if e.operator_id == "gone"]
    assert [(e.subtask_index, e.written_bytes, e.async_ms) for e in entries] == [
        (n, 0, 0) for n in range(3)
    ]
    assert parse_manifest(made.to_bytes()) == made


def test_equal_cuts_give_equal_manifests_in_the_order_of_the_plan() -> None:
    made = {built(*acks).to_bytes() for acks in permutations([ack(0), ack(1)])}
    assert len(made) == 1
    manifest = parse_manifest(made.pop())
    order = [(entry.operator_id, entry.subtask_index) for entry in manifest.subtasks]
    assert order == [(o, n) for o in ("in", "keep", "time", "out") for n in range(WORKERS)]
    waits = [(entry.vertex_id, entry.subtask_index) for entry in manifest.alignment]
    assert waits == [(v, n) for v in ("in", "time") for n in range(WORKERS)]


def test_one_unaligned_subtask_makes_the_checkpoint_unaligned() -> None:
    assert (built().mode, built().is_unaligned) == ("aligned", False)
    mixed = built(ack(0), ack(1, mode="unaligned"))
    assert (mixed.mode, mixed.is_unaligned) == ("unaligned", True)


def test_one_subtask_that_switched_makes_the_checkpoint_a_switched_one() -> None:
    mixed = built(ack(0, mode="unaligned"), ack(1, mode="switched"))
    assert (mixed.mode, mixed.is_unaligned) == ("switched", True)


def test_inflight_data_of_all_workers_is_in_the_manifest_by_channel() -> None:
    """Shuffled: whatever the order of acknowledgements, the manifest's is that of the plan."""
    parts = {
        worker: tuple(
            overtaken(sender, receiver, direction)
            for sender, receiver, direction in product((1, 0), (0, 1), ("output", "input"))
            if worker == (receiver if direction == "input" else sender)
        )
        for worker in range(WORKERS)
    }
    acks = [ack(worker, "unaligned", parts[worker]) for worker in range(WORKERS)]
    assert len({built(*order).to_bytes() for order in permutations(acks)}) == 1
    found = [(e.receiver, e.sender, e.direction) for e in built(*acks).inflight_data]
    assert found == list(product(range(WORKERS), range(WORKERS), ("input", "output")))


def test_inflight_data_is_in_the_order_of_the_vertices() -> None:
    looped = inflight(
        operator_id="in",
        edge=edge(upstream="time", downstream="in", input_index=1, feedback=True),
        path="loop.buf",
    )
    made = built(ack(0, captured=(overtaken(0, 0, "input"), looped)), ack(1))
    assert [entry.edge.downstream for entry in made.inflight_data] == ["in", "time"]


def test_what_was_overtaken_in_an_output_queue_only_counts_too() -> None:
    made = built(ack(0, captured=(overtaken(0, 1, "output"),)), ack(1))
    assert (made.mode, made.is_unaligned) == ("switched", True)


def test_a_manifest_without_the_part_of_a_worker_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="missing"):
        built(ack(0))
    with pytest.raises(ValueError, match="unexpected"):
        built(ack(0), ack(0), ack(1))


def test_committables_are_those_of_the_sink_over_all_workers() -> None:
    assert committables_of(built(), "out") == [{"file": n} for n in (0, 10, 1, 11)]
    assert committables_of(built(), "in") == []


def test_the_slowest_subtask_counts() -> None:
    made = built()
    assert longest_alignment_ms(made.alignment) == 6.0
    assert longest_phase_ms(made.subtasks, "sync_ms") == 1.5
    assert longest_phase_ms(made.subtasks, "async_ms") == 12.25
    assert (longest_alignment_ms(()), longest_phase_ms((), "sync_ms")) == (0, 0)


def outcome(what: Outcome, reason: str = "") -> RecordOutcome:
    return RecordOutcome(CheckpointId(9), CheckpointKind.PERIODIC, what, reason, 1_000, 1_250)


def test_the_history_of_a_completed_checkpoint_has_its_numbers() -> None:
    manifest = built()
    record = history_record(outcome(Outcome.COMPLETED), Generation(3), manifest, in_wall_time)
    assert (record.outcome, record.duration_ms, record.mode) == ("completed", 250, "aligned")
    assert (record.triggered_at_ms, record.ended_at_ms) == (
        in_wall_time(1_000),
        in_wall_time(1_250),
    )
    assert record.size_bytes == manifest.size_bytes == 2 * 1234
    assert record.alignment_ms_max == 6.0
    assert [(s.operator_id, s.size_bytes) for s in record.subtasks[:3]] == [
        ("in", 1234),
        ("in", 1234),
        ("keep", 0),
    ]


def test_the_history_of_any_other_attempt_has_its_reason() -> None:
    record = history_record(outcome(Outcome.EXPIRED, "too slow"), Generation(3), None, in_wall_time)
    assert (record.outcome, record.reason, record.size_bytes) == ("expired", "too slow", 0)
    assert (record.alignment_ms_max, record.subtasks) == (None, ())
