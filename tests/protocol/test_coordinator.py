"""Traces of the coordinator machine. Times are milliseconds; the expected set is {a, b}."""

from dataclasses import replace

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.protocol.coordinator import (
    RETRY_PAUSE_MS,
    abort_all,
    initial,
    next_wakeup_ms,
    step,
)
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import (
    AbortCheckpoint,
    Acknowledged,
    AlignmentTimeoutChanged,
    AnswerRequest,
    CheckpointRequested,
    CommitCheckpoint,
    CommitsPending,
    Declined,
    DeletionsPending,
    DiscardParts,
    Effect,
    Event,
    FailJob,
    HoldSources,
    IdReserved,
    IdTaken,
    InjectBarrier,
    Published,
    PublishManifest,
    RecordOutcome,
    ReserveId,
    ResumeSources,
    StopRevoked,
    StoreFailed,
    SubtaskId,
    Tick,
    TimeOutAlignment,
)
from laminar_core.protocol.types import CheckpointId, CheckpointKind, DeclineCause

A, B = SubtaskId("a", 0), SubtaskId("b", 0)
STRANGER = SubtaskId("a", 1)
"""Nobody expects it."""
EVERY_100 = CoordinatorConfig(interval_ms=100, timeout_ms=1000)
ON_REQUEST = CoordinatorConfig(interval_ms=None, timeout_ms=1000)
KINDS = {"m": "manual", "s": "savepoint", "q": "stop", "z": "final"}


def parse(word: str) -> Event:
    """``r1`` reserved, ``k1`` taken, ``a1``/``b1`` acks, ``c1`` one of a stranger, ``d1`` declined,
    ``u1`` subsumed below, ``p1`` published, ``f1`` store failed, ``?m`` request of a kind, ``?Q`` a
    stop tried once, ``!`` the stop is revoked, ``=5`` another alignment timeout, ``=`` none, ``x2``
    two deletions are pending, ``w2`` two commits, ``.`` tick."""
    if word == ".":
        return Tick()
    if word == "!":
        return StopRevoked()
    if word[0] == "?":
        kind = CheckpointKind(KINDS[word[1].lower()])
        return CheckpointRequested(kind, word[1:], once=word[1].isupper())
    if word[0] == "=":
        return AlignmentTimeoutChanged(None if word == "=" else int(word[1:]))
    n = CheckpointId(int(word[1:]))
    return {
        "r": IdReserved(n),
        "k": IdTaken(n),
        "a": Acknowledged(n, frozenset({A})),
        "b": Acknowledged(n, frozenset({B})),
        "c": Acknowledged(n, frozenset({STRANGER})),
        "d": Declined(n, DeclineCause.FAILED, "disk"),
        "u": Declined(n, DeclineCause.SUBSUMED, "newer"),
        "p": Published(n),
        "f": StoreFailed(n, "disk"),
        "x": DeletionsPending(int(word[1:])),
        "w": CommitsPending(int(word[1:])),
    }[word[0]]


def show(effect: Effect) -> str:
    match effect:
        case ReserveId(n, kind, _):
            return f"reserve{n}:{kind.value}"
        case InjectBarrier(barrier):
            unaligned = barrier.unaligned
            return f"{'INJECT' if unaligned else 'inject'}{barrier.checkpoint_id}"
        case TimeOutAlignment(n):
            return f"overtake{n}"
        case PublishManifest(n):
            return f"publish{n}"
        case CommitCheckpoint(n, _):
            return f"commit{n}"
        case AbortCheckpoint(n):
            return f"abort{n}"
        case RecordOutcome(n, _, outcome, _, _, _):
            return f"{outcome.value}{n}"
        case DiscardParts(n, subtasks):
            return f"discard{n}:{''.join(sorted(s.vertex_id for s in subtasks))}"
        case AnswerRequest(request_id, n, outcome, _):
            return f"answer-{request_id}:{outcome.value}{n or ''}"
        case HoldSources() | ResumeSources() | FailJob():
            return show_for_the_job(effect)


def show_for_the_job(effect: HoldSources | ResumeSources | FailJob) -> str:
    match effect:
        case HoldSources(held):
            return "hold" if held else "release"
        case ResumeSources():
            return "resume"
        case FailJob(_):
            return "FAIL"


def trace(script: str, config: CoordinatorConfig = EVERY_100) -> str:
    """Run words like ``100.`` (tick at 100) or ``105r1``."""
    state = initial(config, {A, B}, CheckpointId(0), now_ms=0)
    happened: list[str] = []
    for word in script.split():
        digits = len(word) - len(word.lstrip("0123456789"))
        state, effects = step(state, parse(word[digits:]), int(word[:digits]))
        happened += [show(effect) for effect in effects]
    return " ".join(happened)


WHOLE = "100. 101r1 110a1 120b1 130p1"
COMPLETED = "reserve1:periodic inject1 publish1 commit1 completed1"


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        (WHOLE, COMPLETED),
        ("74.", ""),
        # Its number is reserved a quarter of the interval ahead, and nothing else happens then.
        ("75. 80r1 99.", "reserve1:periodic"),
        ("75. 80r1 99. 100.", "reserve1:periodic inject1"),
        ("75. 105r1", "reserve1:periodic inject1"),
        ("75. 80f1 99. 100.", "reserve1:periodic abort1 declined1"),
        # The number is another generation's: the next one is reserved when it is due.
        ("75. 80k1 99. 100. 101r2", "reserve1:periodic reserve2:periodic inject2"),
        # The next one counts from when it was due.
        ("75. 80r1 100. 110a1 120b1 130p1 174. 175.", COMPLETED + " reserve2:periodic"),
        # One at a time: the next waits for the end of the first, then comes at once.
        ("100. 101r1 250.", "reserve1:periodic inject1"),
        (WHOLE + " 174. 200.", COMPLETED + " reserve2:periodic"),
        # The same acknowledgement twice, and one for a checkpoint that is over.
        ("100. 101r1 110a1 111a1 120b1", "reserve1:periodic inject1 publish1"),
        (WHOLE + " 140a1", COMPLETED),
        (
            "100. 101r1 110d1 120a1",
            "reserve1:periodic inject1 abort1 declined1 discard1:a",
        ),
        # A subtask that nobody expects stands for none of those that are missing.
        ("100. 101r1 110c1 111a1", "reserve1:periodic inject1"),
        ("100. 101r1 110c1 111a1 120b1", "reserve1:periodic inject1 publish1"),
        # A second decline of the same checkpoint counts nothing.
        ("100. 101r1 110d1 111d1", "reserve1:periodic inject1 abort1 declined1"),
        # It expires while collecting, but not once its manifest is on the way.
        ("100. 101r1 1099. 1100.", "reserve1:periodic inject1 abort1 expired1 reserve2:periodic"),
        ("100. 101r1 110a1 120b1 1100.", "reserve1:periodic inject1 publish1"),
        ("100. 101r1 110a1 120b1 125d1 130p1", COMPLETED),
        ("100. 101r1 110a1 120b1 130f1", "reserve1:periodic inject1 publish1 abort1 declined1"),
        ("100. 101f1", "reserve1:periodic abort1 declined1"),
        # An id of another generation is skipped, not reused.
        ("100. 101k1 102r2", "reserve1:periodic reserve2:periodic inject2"),
        ("100. 101r1 110p9 110a9", "reserve1:periodic inject1 discard9:a"),
    ],
)
def test_periodic(script: str, happened: str) -> None:
    assert trace(script) == happened


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        ("5?m", "reserve1:manual"),
        (
            "5?m 6r1 7a1 8b1 9p1",
            "reserve1:manual inject1 publish1 commit1 completed1 answer-m:completed1",
        ),
        # Whoever waits for the same kind gets the same checkpoint; savepoints overtake.
        (
            "5?m 6?m 7?m 8?s 9f1",
            "reserve1:manual abort1 declined1 answer-m:declined1 reserve2:savepoint",
        ),
        # A stop that fails is tried again, and the answer waits.
        ("5?q 6f1 7.", "reserve1:stop abort1 declined1"),
        (f"5?q 6f1 {6 + RETRY_PAUSE_MS}.", "reserve1:stop abort1 declined1 reserve2:stop"),
    ],
)
def test_requested(script: str, happened: str) -> None:
    assert trace(script, ON_REQUEST) == happened


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        # At the limit sources pause once, below it they read on.
        ("5w1 6w2 7w3 8w2 9w1 10w0", "hold release"),
        # Nothing is triggered meanwhile, and what is due comes as soon as there is room.
        ("5w2 100. 200. 210w1", "hold release reserve1:periodic"),
        ("5w2 6?m 7?q 8w1", "hold release reserve1:stop"),
        # A savepoint commits nothing; one that is under way completes.
        ("5w2 6?m 7?s 8r1", "hold reserve1:savepoint inject1"),
        (
            "100. 101r1 105w2 110a1 120b1 130p1",
            "reserve1:periodic inject1 hold publish1 commit1 completed1",
        ),
    ],
)
def test_output_that_waits_for_its_commit_holds_sources_back(script: str, happened: str) -> None:
    assert trace(script, replace(EVERY_100, max_uncommitted=2)) == happened


def test_the_minimum_pause_binds_periodic_checkpoints_only() -> None:
    config = replace(EVERY_100, min_pause_ms=500)
    assert trace(WHOLE + " 604.", config) == COMPLETED
    assert trace(WHOLE + " 605. 610r2 629.", config) == COMPLETED + " reserve2:periodic"
    assert trace(WHOLE + " 605. 610r2 630.", config).endswith("reserve2:periodic inject2")
    assert trace(WHOLE + " 200?m", config) == COMPLETED + " reserve2:manual"


def test_the_pause_counts_from_a_checkpoint_that_ends_after_the_number_was_reserved() -> None:
    config = replace(EVERY_100, min_pause_ms=50, max_concurrent=2)
    script = "10?m 11r1 75. 76r2 90d1 100. 139."
    before = "reserve1:manual inject1 reserve2:periodic abort1 declined1 answer-m:declined1"
    assert trace(script, config) == before
    assert trace(script + " 140.", config) == before + " inject2"


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        # Whoever asks does not wait until a reserved one is due, and gets a checkpoint of his own.
        ("75. 80r1 85?m", "reserve1:periodic inject1"),
        ("75. 80?m 85r1", "reserve1:periodic inject1"),
        (
            "75. 80r1 85?q 90a1 91b1 92p1",
            COMPLETED + " reserve2:stop",
        ),
    ],
)
def test_a_request_makes_a_reserved_checkpoint_start_at_once(script: str, happened: str) -> None:
    assert trace(script) == happened


def test_a_reserved_checkpoint_expires_counted_from_its_trigger() -> None:
    config = replace(EVERY_100, timeout_ms=200)
    for script, trigger_ms in (("75. 80r1 100.", 100), ("75. 80r1 85?m", 85)):
        assert "expired" not in trace(f"{script} {trigger_ms + 199}.", config)
        assert "expired1" in trace(f"{script} {trigger_ms + 200}.", config)


def test_a_number_is_reserved_a_tenth_of_a_second_ahead_at_most() -> None:
    config = replace(EVERY_100, interval_ms=10_000)
    assert trace("9899.", config) == ""
    assert trace("9900.", config) == "reserve1:periodic"


def test_nothing_periodic_starts_once_the_job_ends() -> None:
    script = "10?z 11r1 12a1 13b1 14p1 500."
    assert trace(script).endswith("completed1 answer-z:completed1")


def test_aligned_checkpoints_may_overlap_and_the_newer_subsumes_the_older() -> None:
    config = replace(EVERY_100, max_concurrent=2)
    script = "100. 101r1 200. 201r2 300. 310a2 311b2 312p2"
    assert trace(script, config) == (
        "reserve1:periodic inject1 reserve2:periodic inject2 publish2 "
        "abort1 subsumed1 commit2 completed2 reserve3:periodic"
    )


def test_a_savepoint_is_not_subsumed_by_a_periodic_checkpoint() -> None:
    config = replace(EVERY_100, max_concurrent=2)
    script = "50?s 51r1 100. 101r2 110a2 111b2 112p2 120a1 121b1"
    assert "subsumed" not in trace(script, config)
    assert trace(script, config).endswith("publish1")


def test_failures_in_a_row_fail_the_job_and_a_success_resets_the_count() -> None:
    config = replace(EVERY_100, tolerable_failures=1)
    assert "FAIL" not in trace(
        "100. 101r1 102d1 200. 201r2 202a2 203b2 204p2 300. 301r3 302d3", config
    )
    assert trace("100. 101r1 102d1 200. 201r2 202d2", config).endswith("declined2 FAIL")


def test_a_subsumed_checkpoint_is_no_failure() -> None:
    config = replace(EVERY_100, tolerable_failures=0)
    assert trace("100. 101r1 102u1", config) == "reserve1:periodic inject1 abort1 subsumed1"


def test_unaligned_from_the_start_and_savepoints_never() -> None:
    config = replace(ON_REQUEST, alignment_timeout_ms=0)
    assert trace("1?m 2r1", config) == "reserve1:manual INJECT1"
    assert trace("1?s 2r1", config) == "reserve1:savepoint inject1"


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        # As many as checkpoints may be under way do not matter; one more holds everything.
        ("5x1 6?m", "reserve1:manual"),
        ("5x2 6?m 7?s 8?q 1000.", ""),
        ("5x2 6?m 7x1", "reserve1:manual"),
        # What is under way goes on.
        (
            "5?m 6x9 7r1 8a1 9b1 10p1",
            COMPLETED.replace("periodic", "manual") + " answer-m:completed1",
        ),
    ],
)
def test_too_many_pending_deletions_hold_new_checkpoints(script, happened) -> None:
    assert trace(script, ON_REQUEST) == happened


def test_nothing_is_due_while_deletions_hold_it() -> None:
    state = initial(EVERY_100, {A, B}, CheckpointId(0), now_ms=0)
    state, _ = step(state, DeletionsPending(2), 1)
    assert next_wakeup_ms(state) is None
    state, effects = step(state, DeletionsPending(0), 130)
    assert [show(e) for e in effects] == ["reserve1:periodic"]


BUDGET = replace(EVERY_100, alignment_timeout_ms=50)


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        # Counted from the barrier's creation at 101, not from the trigger, and said once.
        ("100. 101r1 150. 151. 152. 200.", "reserve1:periodic inject1 overtake1"),
        ("100. 101r1 110a1 151. 160b1", "reserve1:periodic inject1 overtake1 publish1"),
        # Not while nothing is created, nor when nobody aligns any more.
        ("100. 200.", "reserve1:periodic"),
        ("100. 101r1 110a1 120b1 160.", "reserve1:periodic inject1 publish1"),
        ("100. 101r1 110d1 160.", "reserve1:periodic inject1 abort1 declined1"),
        # If all of it is spent, there is nothing left to turn.
        (
            "100. 101r1 1150.",
            "reserve1:periodic inject1 abort1 expired1 reserve2:periodic",
        ),
        ("1?m 2r1 52.", "reserve1:manual inject1 overtake1"),
        ("1?s 2r1 52.", "reserve1:savepoint inject1"),
        ("1?q 2r1 52.", "reserve1:stop inject1"),
        ("1?z 2r1 52.", "reserve1:final inject1"),
    ],
)
def test_a_checkpoint_turns_unaligned_when_its_budget_is_spent(script, happened) -> None:
    assert trace(script, BUDGET) == happened


def test_a_checkpoint_without_a_budget_never_turns() -> None:
    assert trace("100. 101r1 999.", EVERY_100) == "reserve1:periodic inject1"
    at_once = replace(EVERY_100, alignment_timeout_ms=0)
    assert trace("100. 101r1 999.", at_once) == "reserve1:periodic INJECT1"


def test_the_end_of_the_budget_is_a_wakeup() -> None:
    state = initial(BUDGET, {A, B}, CheckpointId(0), now_ms=0)
    for now_ms, word in ((100, "."), (101, "r1")):
        state, _ = step(state, parse(word), now_ms)
    assert next_wakeup_ms(state) == 151
    state, _ = step(state, Tick(), 151)
    assert next_wakeup_ms(state) == 1100


def test_the_end_of_a_generation_aborts_everything_and_answers_everybody() -> None:
    state = initial(ON_REQUEST, {A, B}, CheckpointId(4), now_ms=0)
    for event in (parse("?s"), parse("?m")):
        state, _ = step(state, event, 1)
    state, effects = abort_all(state, "worker lost", 2)
    assert [show(e) for e in effects] == [
        "abort5",
        "aborted5",
        "answer-s:aborted5",
        "answer-m:aborted",
    ]
    assert (state.pending, state.queue, next_wakeup_ms(state)) == ((), (), None)


def test_the_next_wakeup_is_what_comes_first() -> None:
    state = initial(EVERY_100, {A, B}, CheckpointId(0), now_ms=0)
    assert next_wakeup_ms(state) == 75
    state, _ = step(state, Tick(), 75)
    state, _ = step(state, parse("r1"), 80)
    assert next_wakeup_ms(state) == 100
    state, _ = step(state, Tick(), 100)
    assert next_wakeup_ms(state) == 1100


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"interval_ms": 0}, "interval_ms"),
        ({"interval_ms": 1, "max_concurrent": 0}, "max_concurrent"),
        ({"interval_ms": 1, "max_concurrent": 2, "alignment_timeout_ms": 5}, "overlap"),
    ],
)
def test_impossible_options_are_refused_by_name(options, named) -> None:
    with pytest.raises(ConfigurationError, match=named):
        CoordinatorConfig(**options)


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        # It fails: whoever asked hears it, the workers read on, the next periodic one comes.
        (
            "10?Q 11r1 20d1 110.",
            "reserve1:stop inject1 abort1 resume declined1 answer-Q:declined1 reserve2:periodic",
        ),
        ("10?Q 11f1", "reserve1:stop abort1 resume declined1 answer-Q:declined1"),
        # Somebody else wants the end whatever it takes: nobody reads on.
        (
            "10?Q 11r1 12?q 20d1",
            "reserve1:stop inject1 abort1 declined1 answer-Q:declined1 reserve2:stop",
        ),
        # Those who wait for the same one want what the others want.
        (
            "10?m 11r1 12?Q 13?q 20d1 21r2 30d2",
            (
                "reserve1:manual inject1 abort1 declined1 answer-m:declined1 reserve2:stop inject2 "
                "abort2 declined2"
            ),
        ),
        # Complete, and then its copy fails: the job goes on.
        (
            "10?Q 11r1 20a1 21b1 22p1 30! 110.",
            (
                "reserve1:stop inject1 publish1 commit1 completed1 answer-Q:completed1 resume "
                "reserve2:periodic"
            ),
        ),
        (
            "10?Q 11r1 20a1 21b1 22p1 23?q 30!",
            "reserve1:stop inject1 publish1 commit1 completed1 answer-Q:completed1 reserve2:stop",
        ),
        # An id that is taken: the next one serves the same request.
        (
            "10?Q 11k1 12r2 20d2",
            "reserve1:stop reserve2:stop inject2 abort2 resume declined2 answer-Q:declined2",
        ),
    ],
)
def test_a_stop_that_is_tried_once_does_not_end_the_job_if_it_fails(script, happened):
    assert trace(script) == happened


def test_the_alignment_timeout_changes_for_checkpoints_from_then_on():
    assert trace("100. 101r1 102=0 110a1 120b1 130p1 200. 201r2").endswith(
        "reserve2:periodic INJECT2"
    )
    assert trace("=0 100. 101r1".replace("=0", "1=0")).endswith("INJECT1")
    assert trace("1=50 100. 101r1 151.").endswith("inject1 overtake1")
    assert trace("1=50 100. 101r1 110= 151.").endswith("inject1 overtake1"), "it was told before"
    assert trace("1=0 2= 100. 101r1 500.").endswith("inject1")
