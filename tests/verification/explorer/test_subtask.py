"""Steps are taken once, remembered, and leave every other state alone."""

from laminar_core.protocol.types import Batch, CheckpointBarrier, CheckpointId, EndOfInput
from verification.explorer.records import Record, batch_of
from verification.explorer.subtask import Subtask, key_of
from verification.explorer.tasks import Classes
from verification.explorer.worlds import FAN_IN

NOTHING, ONE = CheckpointId(0), CheckpointId(1)
A0 = Batch(batch_of(Record("a", 0)))
BARRIER = CheckpointBarrier(ONE, alignment_timeout_ms=1)


def subtask(name: str) -> Subtask:
    return Subtask(FAN_IN, FAN_IN.nodes[FAN_IN.index[name]], Classes())


def test_a_source_emits_until_it_is_out_of_credit() -> None:
    source = subtask("a")
    first = source.start(None, NOTHING)
    once = source.work(first.local, 0)
    assert once is not None
    assert (once.said, [m.kind for m in once.sent]) == ("a emits a0", ["send"])
    twice = source.work(once.local, 0)
    assert twice is not None
    assert twice.sent == ()
    assert source.work(twice.local, 0) is None
    assert source.work(first.local, 0) is once


def test_states_that_are_the_same_have_one_number() -> None:
    sink = subtask("j")
    start = sink.start(None, NOTHING).local
    both = [
        [sink.arrive(start, c, A0 if c == 0 else Batch(batch_of(Record("b", 0)))) for c in order]
        for order in ((0, 1), (1, 0))
    ]
    ends = [
        sink.arrive(one[0].local, 1 - c, Batch(batch_of(Record("b", 0))) if c == 0 else A0)
        for c, one in zip((0, 1), both, strict=True)
    ]
    assert ends[0].local == ends[1].local


def test_a_fault_becomes_a_problem() -> None:
    sink = subtask("j")
    lost = sink.arrive(sink.start(None, NOTHING).local, 0, Batch(batch_of(Record("a", 1))))
    assert lost is not None
    taken = sink.work(lost.local, 0)
    assert taken is not None
    assert taken.problem is not None
    assert "a loss" in taken.problem


def test_what_is_left_over_is_said() -> None:
    sink = subtask("j")
    start = sink.start(None, NOTHING).local
    assert "has processed {} and not" in str(sink.left_over(start))
    arrived = sink.arrive(start, 0, BARRIER)
    assert arrived is not None
    assert not sink.calm(arrived.local)
    assert sink.calm(start)
    reached = sink.work(arrived.local, 0)
    assert reached is not None
    assert "waits for ever" in str(sink.left_over(reached.local))
    assert sink.due_rows() == ["aj0", "aj1", "bj0", "bj1"]


def test_a_part_is_pending_from_the_cut_to_the_last_word() -> None:
    sink = subtask("j")
    local = sink.start(None, NOTHING).local
    for act in (
        lambda n: sink.arrive(n, 0, BARRIER),
        lambda n: sink.deliver(n, "timeout", ONE),
    ):
        local = act(local).local
    assert sink.pending(local) == (ONE,)
    failed = sink.deliver(local, "not written:", ONE)
    assert failed is not None
    assert (sink.pending(failed.local), failed.sent[0].kind) == ((), "decline")


def test_batches_have_a_key() -> None:
    assert key_of(A0) == Record("a", 0)
    assert key_of(EndOfInput()) == EndOfInput()
