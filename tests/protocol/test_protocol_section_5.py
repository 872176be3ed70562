"""PROTOCOL section 5, row by row: cancelled, superseded, late; failures; order of the queue.

Rows about one subtask are traces of the alignment machine, rows about the job traces of the
coordinator; the words are those of ``test_alignment.py`` and ``test_coordinator.py``.
"""

from dataclasses import replace

import pytest

from laminar_core.protocol.alignment import ABORT_NOTICES_MAX, step
from laminar_core.protocol.alignment_events import (
    BarrierReached,
    CheckpointAborted,
    ForwardCancel,
)
from laminar_core.protocol.types import CheckpointBarrier, CheckpointId
from tests.protocol.test_alignment import channel, start
from tests.protocol.test_alignment import trace as subtask
from tests.protocol.test_coordinator import EVERY_100, ON_REQUEST
from tests.protocol.test_coordinator import trace as coordinator

# --- the table ----------------------------------------------------------------------------------


def test_a_barrier_below_the_current_id_is_ignored_and_unblocks_its_channel() -> None:
    assert subtask("a:2 b:2 a:1 a? b?") == "CUT2 sealed2 process process"
    assert subtask("a:2 b:1 b? a? b:2") == "process hold CUT2 sealed2"


def test_a_barrier_of_the_current_id_that_is_not_pending_is_ignored() -> None:
    assert subtask("a:1 b:1 a:1 a? b:1") == "CUT1 sealed1 process"


def test_a_newer_barrier_while_one_is_pending_subsumes_it_and_starts_its_own() -> None:
    assert subtask("a:1 b:2 a? b? a:2") == "discard1 subsumed1 cancel1 process hold CUT2 sealed2"


def test_a_cancel_marker_of_a_newer_id_aborts_and_its_barriers_start_nothing() -> None:
    assert subtask("b:x1 a:1 a?") == "cancel1 process"
    assert subtask("a:1 b:x2 a:2 a?") == "discard1 subsumed1 cancel1 cancel2 process"


def test_a_cancel_marker_of_the_current_id_with_something_aligned_aborts_it() -> None:
    assert subtask("a:1 b:x1 a? a:1 a?") == "discard1 cancel1 process process"


def test_an_abort_notice_for_an_id_not_yet_seen_is_remembered_and_sent_on_as_cancel() -> None:
    assert subtask("n1 a:1 a? b:1 a:2 b:2") == "cancel1 process CUT2 sealed2"


def test_abort_notices_are_a_bounded_set() -> None:
    """The oldest is forgotten: its checkpoint is aligned, and its acknowledgement comes late."""
    state = start("ab")
    for n in range(1, ABORT_NOTICES_MAX + 2):
        state, _ = step(state, CheckpointAborted(CheckpointId(n)))
    barriers = [BarrierReached(channel("a"), CheckpointBarrier(CheckpointId(n))) for n in (1, 2)]
    forgotten, remembered = (step(state, barrier)[1] for barrier in barriers)
    assert (forgotten, remembered) == ((), (ForwardCancel(CheckpointId(2)),))


def test_a_local_failure_declines_cancels_on_every_output_discards_and_unblocks() -> None:
    assert subtask("a:T1 f1 a? t1 b:T1 b?") == "discard1 failed1 cancel1 process process"
    assert subtask("a>U1 f1 b?") == "UCUT1 capture1a record1b discard1 failed1 cancel1 process"


def test_a_newer_barrier_on_one_channel_is_not_closed_by_an_older_one_on_another() -> None:
    assert subtask("a>U2 b>U1 b? b>U2") == "UCUT2 capture2a record2b process+record seal2b sealed2"


def test_an_acknowledgement_after_the_abort_is_rejected_and_its_files_discarded() -> None:
    assert coordinator("100. 101r1 110d1 120a1 121b1") == (
        "reserve1:periodic inject1 abort1 declined1 discard1:a discard1:b"
    )


def test_an_acknowledgement_of_an_old_attempt_is_no_part_of_a_new_one() -> None:
    """Generations keep executions apart (``driver.coordination``); ids keep attempts apart."""
    assert coordinator("100. 101r1 110d1 200. 201r2 210a1 220b2").endswith("inject2 discard1:a")


# --- ids ----------------------------------------------------------------------------------------


def test_ids_strictly_increase_and_are_never_used_again() -> None:
    assert coordinator("100. 101k1 102f2 200. 201r3") == (
        "reserve1:periodic reserve2:periodic abort2 declined2 reserve3:periodic inject3"
    )


# --- failure counting ---------------------------------------------------------------------------

NONE_TOLERATED = replace(EVERY_100, tolerable_failures=0)
ONE_TOLERATED = replace(EVERY_100, tolerable_failures=1)


@pytest.mark.parametrize(
    "script",
    ["100. 101r1 102d1", "100. 101r1 1100.", "100. 101f1", "100. 101r1 102a1 103b1 104f1"],
    ids=["declined", "expired", "not reserved", "not published"],
)
def test_declines_expiry_and_errors_of_the_store_count(script: str) -> None:
    assert "FAIL" in coordinator(script, NONE_TOLERATED)


@pytest.mark.parametrize(
    ("script", "changes"),
    [
        ("100. 101r1 102u1", {}),
        ("100. 101r1 200. 201r2 310a2 311b2 312p2", {"max_concurrent": 2}),
        ("100. 101r1 102a1 103b1 104p1 150. 200. 250.", {"min_pause_ms": 500}),
        ("100. 101r1 150?m 160?s 200.", {}),
        ("100. 101k1", {}),
        ("5x9 100. 200.", {}),
    ],
    ids=["subsumed or not ready", "subsumed here", "min pause", "too many", "id", "deletions"],
)
def test_subsumed_not_ready_min_pause_and_too_many_do_not_count(script, changes) -> None:
    assert "FAIL" not in coordinator(script, replace(NONE_TOLERATED, **changes))


def test_a_checkpoint_counts_once_however_often_it_fails() -> None:
    assert "FAIL" not in coordinator("100. 101r1 102d1 103d1 104f1 1200.", ONE_TOLERATED)


def test_a_success_resets_the_count() -> None:
    failing, good = "100. 101r1 102d1", "200. 201r2 202a2 203b2 204p2"
    assert "FAIL" not in coordinator(f"{failing} {good} 300. 301r3 302d3", ONE_TOLERATED)
    assert "FAIL" in coordinator(f"{failing} 200. 201r2 202d2", ONE_TOLERATED)


@pytest.mark.parametrize("script", ["1?s 2f1", "1?s 2r1 1001.", "1?s 2r1 3a1 4b1 5f1"])
def test_a_savepoint_that_fails_at_the_coordinator_does_not_count(script: str) -> None:
    config = replace(ON_REQUEST, tolerable_failures=0)
    happened = coordinator(script, config)
    assert "FAIL" not in happened
    assert "answer-s" in happened


def test_nor_does_it_reset_the_count() -> None:
    script = "100. 101r1 102d1 110?s 111f2 200. 201r3 202d3"
    assert coordinator(script, ONE_TOLERATED).endswith("FAIL")


def test_a_savepoint_that_fails_at_a_task_counts() -> None:
    config = replace(ON_REQUEST, tolerable_failures=0)
    assert coordinator("1?s 2r1 3d1", config).endswith("FAIL")


def test_a_savepoint_to_stop_with_that_fails_is_tried_again_and_fails_the_job_in_the_end() -> None:
    """Differs from Flink, which fails the job at once: the user asked for an end."""
    config = replace(ON_REQUEST, tolerable_failures=1)
    assert coordinator("1?q 2r1 3d1 500. 501r2", config).endswith("reserve2:stop inject2")
    assert coordinator("1?q 2r1 3d1 500. 501r2 502d2", config).endswith("FAIL")


# --- order of the queue -------------------------------------------------------------------------


def test_savepoints_first_then_other_manual_ones_then_periodic_ones() -> None:
    happened = coordinator("10?m 11r1 100. 101?m 102?s 110a1 111b1 112p1 113r2 120d2 121r3 122d3")
    reserved = [word for word in happened.split() if word.startswith("reserve")]
    assert reserved == [
        "reserve1:manual",
        "reserve2:savepoint",
        "reserve3:manual",
        "reserve4:periodic",
    ]


def test_the_minimum_pause_binds_periodic_ones_only() -> None:
    config = replace(EVERY_100, min_pause_ms=500)
    whole = "100. 101r1 110a1 120b1 130p1"
    assert coordinator(f"{whole} 200. 300?m", config).endswith("reserve2:manual")
    assert coordinator(f"{whole} 200. 604.", config).endswith("completed1")
    assert coordinator(f"{whole} 200. 605. 606r2 629.", config).endswith("reserve2:periodic")
    assert coordinator(f"{whole} 200. 605. 606r2 629. 630.", config).endswith("inject2")


def test_new_ones_wait_while_too_many_deletions_are_pending() -> None:
    assert coordinator("5x2 6?s 7?m", ON_REQUEST) == ""
    assert coordinator("5x2 6?s 7?m 8x1", ON_REQUEST) == "reserve1:savepoint"
