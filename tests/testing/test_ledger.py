"""The transactional sink in memory: what every other one has to do, too."""

import pyarrow as pa
import pytest

from laminar_core.connectors.outlook import Committable, Committed, Lost
from laminar_core.errors import CorruptCheckpointError, ErrorCode, StorageUnavailable
from laminar_core.operators.base import SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.testing.ledger import Ledger, LedgerCommitter, LedgerSink

SCHEMA = pa.schema([("n", pa.int64())])


def offer(ledger: Ledger, *values: int, checkpoint_id: int = 1, generation: int = 1, subtask=0):
    """Committables of rows that a writer of its own staged."""
    context = SubtaskContext("out", subtask, 2, 128, Generation(generation))
    writer = LedgerSink(ledger).open(context, SCHEMA)
    writer.write(pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA))
    return writer.snapshot(CheckpointId(checkpoint_id))().committables


def values(ledger: Ledger) -> list[object]:
    return [row["n"] for row in ledger.rows()]


@pytest.fixture
def ledger():
    return Ledger()


def commit(ledger: Ledger, checkpoint_id: int, parts) -> None:
    LedgerCommitter(ledger).commit(CheckpointId(checkpoint_id), parts)


def test_rows_are_visible_when_they_are_committed_and_not_before(ledger):
    parts = offer(ledger, 1, 2)
    assert values(ledger) == []
    commit(ledger, 1, parts)
    assert values(ledger) == [1, 2]
    assert ledger.staged == {}


def test_committing_again_changes_nothing(ledger):
    first, second = offer(ledger, 1), offer(ledger, 2, checkpoint_id=2, subtask=1)
    for _ in range(2):
        commit(ledger, 1, first)
    for _ in range(2):
        commit(ledger, 2, [*first, *second, *second])
    assert (values(ledger), ledger.commits) == ([1, 2], {1: ["1-0-0"], 2: ["1-1-0"]})


def test_a_commit_without_output_leaves_no_trace(ledger):
    commit(ledger, 1, ())
    assert ledger.commits == {}
    assert LedgerCommitter(ledger).last_committed() is None


def test_whether_a_commit_would_succeed_is_known_before(ledger):
    parts = offer(ledger, 1)
    committer = LedgerCommitter(ledger)
    assert committer.outlook(CheckpointId(1), parts) == Committable()
    commit(ledger, 1, parts)
    assert committer.outlook(CheckpointId(1), parts) == Committed()
    lost = offer(ledger, 2, checkpoint_id=2, subtask=1)
    ledger.staged.clear()
    outlook = committer.outlook(CheckpointId(2), lost)
    assert isinstance(outlook, Lost)
    assert "part 1-1-0 of checkpoint 2 is gone" in outlook.why
    assert outlook.gone == list(lost)


def test_a_part_that_is_gone_is_named(ledger):
    parts = offer(ledger, 1)
    ledger.staged.clear()
    with pytest.raises(CorruptCheckpointError, match="part 1-0-0 of checkpoint 1 is gone"):
        commit(ledger, 1, parts)


def test_later_output_of_older_generations_can_be_withdrawn(ledger):
    for checkpoint_id, generation in ((1, 1), (2, 1), (3, 2)):
        parts = offer(ledger, checkpoint_id, checkpoint_id=checkpoint_id, generation=generation)
        commit(ledger, checkpoint_id, parts if checkpoint_id != 2 else renamed(ledger, parts))
    committer = LedgerCommitter(ledger)
    committer.withdraw_after(CheckpointId(1), Generation(2))
    assert values(ledger) == [1, 3]
    committer.withdraw_after(CheckpointId(1), Generation(3))
    assert (values(ledger), committer.last_committed()) == ([1], 1)


def renamed(ledger: Ledger, parts):
    """As if the same writer had gone on."""
    ledger.staged["1-0-1"] = ledger.staged.pop("1-0-0")
    ledger.intervals |= {"1-0-0": 1, "1-0-1": 2}
    return ({**parts[0], "name": "1-0-1"},)


def test_what_older_generations_staged_can_be_discarded(ledger):
    for generation in (1, 2, 3):
        offer(ledger, generation, generation=generation)
    LedgerCommitter(ledger).discard_uncommitted(Generation(3))
    assert list(ledger.staged) == ["3-0-0"]


def test_a_writer_names_a_part_once_and_lets_go_of_the_rest(ledger):
    writer = LedgerSink(ledger).open(SubtaskContext("out", 1, 2, 128, Generation(4)), SCHEMA)
    row = pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA)
    names = []
    for checkpoint_id in (1, 2):
        writer.write(row)
        snapshot = writer.snapshot(CheckpointId(checkpoint_id))()
        names += [part["name"] for part in snapshot.committables]
    assert names == ["4-1-0", "4-1-1"]
    assert writer.snapshot(CheckpointId(3))().committables == ()
    writer.write(row)
    writer.close()
    assert writer.snapshot(CheckpointId(4))().committables == ()
    assert list(writer.collected()) == []


@pytest.mark.parametrize(("moment", "visible"), [("before", []), ("after", [1])])
def test_an_observer_can_fail_a_call_or_lose_its_answer(ledger, moment, visible):
    parts = offer(ledger, 1)

    def fail(*call: str) -> None:
        if call == ("commit", moment):
            raise StorageUnavailable(ErrorCode.STORE_IO, "no answer")

    ledger.observe = fail
    with pytest.raises(StorageUnavailable):
        commit(ledger, 1, parts)
    assert values(ledger) == visible


def test_sinks_are_distinguished_by_their_names(ledger):
    assert LedgerSink(ledger, "a").describe() != LedgerSink(ledger, "b").describe()


def test_what_an_interrupted_commit_made_visible_is_visible_output(ledger):
    """It is not listed, so a reader by commits does not see it; one of the directory does."""
    parts = offer(ledger, 1) + offer(ledger, 2, subtask=1)

    def die(*call: str) -> None:
        if call == ("publish", "after"):
            raise StorageUnavailable(ErrorCode.STORE_IO, "in the midst of it")

    ledger.observe = die
    with pytest.raises(StorageUnavailable):
        commit(ledger, 1, parts)
    assert (values(ledger), list(ledger.visible)) == ([], ["1-0-0"])
    committer = LedgerCommitter(ledger)
    assert committer.last_committed() == 1
    committer.withdraw_after(CheckpointId(0), Generation(1))
    assert list(ledger.visible) == ["1-0-0"], "its own generation is not withdrawn"
    committer.withdraw_after(CheckpointId(0), Generation(2))
    assert (ledger.visible, committer.last_committed()) == ({}, None)


def test_output_that_an_older_checkpoint_shows_as_well_is_not_withdrawn_with_a_newer_one(ledger):
    """Checkpoint 2 carried the output of 1, whose commit came late: going back to 1 needs it."""
    first, second = offer(ledger, 1), offer(ledger, 2, checkpoint_id=2, subtask=1)
    commit(ledger, 2, [*first, *second])
    commit(ledger, 1, first)
    LedgerCommitter(ledger).withdraw_after(CheckpointId(1), Generation(2))
    assert values(ledger) == [1]
    assert sorted(ledger.visible) == ["1-0-0"]
