from laminar_core.protocol.types import CheckpointId, CheckpointKind
from laminar_core.records.manifest import HistoryRecord
from laminar_core.store.summaries import CheckpointSummary, summarise
from tests.records.manifests import manifest
from tests.store.stores import trigger

SEVEN = CheckpointId(7)


def test_a_manifest_is_a_completed_checkpoint():
    assert summarise(SEVEN, manifest(), committed=True) == CheckpointSummary(
        checkpoint_id=SEVEN,
        outcome="completed",
        generation=2,
        kind=CheckpointKind.PERIODIC,
        mode="aligned",
        triggered_at_ms=1_700_000_000_000,
        duration_ms=40.5,
        size_bytes=1234,
        written_bytes=1234,
        inflight_bytes=0,
        committed=True,
    )


def test_an_outcome_says_what_became_of_it():
    record = HistoryRecord(
        checkpoint_id=7,
        generation=2,
        kind=CheckpointKind.MANUAL,
        outcome="declined",
        reason="disk full",
        triggered_at_ms=1,
        ended_at_ms=3,
        duration_ms=2,
    )
    summary = summarise(SEVEN, record, committed=False)
    assert (summary.outcome, summary.reason, summary.duration_ms) == ("declined", "disk full", 2)


def test_a_reservation_is_pending():
    summary = summarise(SEVEN, trigger(7, 2), committed=False)
    assert (summary.outcome, summary.generation, summary.triggered_at_ms) == ("pending", 2, 1)


def test_nothing_readable_is_pending_with_a_problem():
    summary = summarise(SEVEN, None, committed=False, problem="torn")
    assert (summary.outcome, summary.problem, summary.kind) == ("pending", "torn", None)
