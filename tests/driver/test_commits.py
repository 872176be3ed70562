"""A decided commit is made, in order, whatever it takes; a zombie's is not."""

import pytest

from laminar_core.driver.commits import CommitNumbers, CommitQueue, commit_output
from laminar_core.driver.events import CommitDelayed
from laminar_core.driver.publication import LeftOut
from laminar_core.errors import (
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.store.staging import StagingArea
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from laminar_core.testing.ledger import Ledger, LedgerCommitter
from tests.driver.hosts import Background, Host
from tests.records.manifests import manifest, subtask
from tests.store.stores import claim, open_job

UNAVAILABLE = StorageUnavailable(ErrorCode.STORE_IO, "it did not answer")


def checkpoint(checkpoint_id: int, *parts: str, generation: int = 1):
    """A manifest whose sink offers these parts."""
    offered = tuple({"name": part} for part in parts)
    sinks = (subtask("sink", 0, committables=offered), subtask("sink", 1))
    return manifest(
        checkpoint_id=checkpoint_id,
        parent_checkpoint_id=None,
        generation=generation,
        subtasks=(subtask("window", 0), subtask("window", 1), *sinks),
    )


class Queue:
    """A queue whose attempts take these outcomes; None is a success."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.host, self.background = Host(), Background()
        self.attempts: list[tuple[int, int]] = []
        self.again: list[bool] = []
        self.committed: list[int] = []
        self._outcomes = list(outcomes)
        self.commits = CommitQueue(
            self._attempt,
            lambda m: self.committed.append(m.checkpoint_id),
            self.background,
            self.host,
        )

    def _attempt(self, wanted, again) -> None:
        self.attempts.append((wanted.checkpoint_id, self.host.time_ms))
        self.again.append(again)
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is not None:
            raise outcome

    def settle(self) -> None:
        while self.background.queue or self.host.posted:
            self.background.run()
            self.host.run()

    def pass_time_until(self, time_ms: int) -> None:
        while self.host.time_ms < time_ms:
            self.host.time_ms += 10
            self.commits.tick()
            self.settle()


class TestQueue:
    def test_commits_happen_in_order_one_at_a_time(self):
        queue = Queue()
        for checkpoint_id in (3, 4, 5):
            queue.commits.add(checkpoint(checkpoint_id))
        assert len(queue.background.queue) == 1
        queue.settle()
        assert queue.committed == [3, 4, 5]
        assert queue.commits.next_wakeup_ms() is None

    def test_one_that_fails_is_tried_again_after_growing_pauses_and_holds_up_the_next(self):
        queue = Queue(UNAVAILABLE, UNAVAILABLE, UNAVAILABLE)
        queue.commits.add(checkpoint(3))
        queue.commits.add(checkpoint(4))
        queue.settle()
        assert queue.commits.next_wakeup_ms() == 1_050
        queue.pass_time_until(2_000)
        assert queue.attempts == [(3, 1_000), (3, 1_050), (3, 1_150), (3, 1_350), (4, 1_350)]
        assert queue.committed == [3, 4]
        assert queue.again == [False, True, True, True, False]

    def test_what_waits_and_what_failed_is_counted(self):
        fenced = StorageUnavailable(ErrorCode.STORE_IO, "taken over")
        fenced.__cause__ = FencedError(ErrorCode.FENCED, "by a sleeper")
        queue = Queue(UNAVAILABLE, fenced)
        assert queue.commits.numbers == CommitNumbers()
        queue.commits.add(checkpoint(3))
        queue.commits.add(checkpoint(4))
        queue.settle()
        assert queue.commits.numbers == CommitNumbers(2, None, 1, 0)
        queue.pass_time_until(1_100)
        assert queue.commits.numbers == CommitNumbers(2, None, 2, 1)
        queue.pass_time_until(1_200)
        assert queue.commits.numbers.uncommitted_checkpoints == 0
        assert queue.commits.numbers.commit_ms == 0, "the second one took no time"

    def test_the_first_failure_of_each_checkpoint_is_told_with_its_reason(self):
        queue = Queue(UNAVAILABLE, UNAVAILABLE, None, UNAVAILABLE)
        queue.commits.add(checkpoint(3))
        queue.commits.add(checkpoint(4))
        queue.settle()
        queue.pass_time_until(2_000)
        assert queue.host.told == [
            CommitDelayed(
                time_ms=1_000, checkpoint_id=3, reason=str(UNAVAILABLE), uncommitted_checkpoints=2
            ),
            CommitDelayed(
                time_ms=1_150, checkpoint_id=4, reason=str(UNAVAILABLE), uncommitted_checkpoints=1
            ),
        ]

    def test_the_pause_has_a_longest_and_starts_anew_after_a_success(self):
        queue = Queue(*[UNAVAILABLE] * 12, None, UNAVAILABLE)
        queue.commits.add(checkpoint(3))
        queue.settle()
        queue.pass_time_until(60_000)
        times = [time_ms for _, time_ms in queue.attempts]
        assert times[-1] - times[-2] == 5_000
        queue.commits.add(checkpoint(4))
        queue.settle()
        assert queue.commits.next_wakeup_ms() == queue.host.time_ms + 50

    def test_a_tick_before_the_pause_is_over_does_nothing(self):
        queue = Queue(UNAVAILABLE)
        queue.commits.add(checkpoint(3))
        queue.settle()
        queue.host.time_ms += 49
        queue.commits.tick()
        assert not queue.background.queue
        assert len(queue.attempts) == 1

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (CorruptCheckpointError(ErrorCode.OBJECT_MISSING, "a file is gone"), "object-missing"),
            (KeyError("part"), "worker-failed"),
        ],
    )
    def test_what_trying_again_cannot_mend_ends_the_generation(self, error, code):
        queue = Queue(error)
        queue.commits.add(checkpoint(3))
        queue.settle()
        assert queue.host.failures == [(code, f"commit of checkpoint 3: {error}")]
        assert queue.committed == []

    def test_a_zombie_is_fenced(self):
        queue = Queue(FencedError(ErrorCode.FENCED, "generation 2 owns it"))
        queue.commits.add(checkpoint(3))
        queue.settle()
        assert queue.host.fences == ["generation 2 owns it"]


class TestCommitOutput:
    def setup_method(self) -> None:
        self.store = open_job()
        self.generation = claim(self.store)
        self.ledger = Ledger(staged={"1-0-0": [], "1-0-1": []})
        self.committers = {"sink": LedgerCommitter(self.ledger)}

    def commit(self, wanted) -> None:
        commit_output(self.store, self.committers, wanted, self.generation)

    def test_output_is_visible_before_that_is_recorded(self):
        self.ledger.observe = lambda *_: (
            self.store.attempts.committed_ids() and pytest.fail("too early")
        )
        self.commit(checkpoint(3, "1-0-0"))
        assert list(self.ledger.visible) == ["1-0-0"]
        record = self.store.attempts.read_commit(CheckpointId(3))
        assert (record.generation, record.committables) == (1, {"sink": 1})

    def test_it_says_how_long_each_sink_took(self):
        host = Host()

        def pass_time(*_: object) -> None:
            host.time_ms += 40

        self.ledger.observe = pass_time
        took_ms = commit_output(
            self.store,
            self.committers,
            checkpoint(3, "1-0-0"),
            self.generation,
            monotonic_ms=host.monotonic_ms,
        )
        assert took_ms == {"sink": host.time_ms - 1_000}
        assert took_ms["sink"] >= 40

    def test_repeating_it_changes_nothing(self):
        for _ in range(3):
            self.commit(checkpoint(3, "1-0-0"))
        self.commit(checkpoint(4, "1-0-0", "1-0-1"))
        assert self.ledger.commits == {3: ["1-0-0"], 4: ["1-0-1"]}

    def test_a_record_that_was_written_but_not_confirmed_is_found_again(self):
        lost = Fault("put_if_absent", Effect.LOSE_ANSWER, key="commits/", last=2)
        self.store = open_job(FaultyStore(MemoryObjectStore(), lost))
        claim(self.store)
        with pytest.raises(StorageUnavailable):
            self.commit(checkpoint(3, "1-0-0"))
        self.commit(checkpoint(3, "1-0-0"))
        assert self.store.attempts.committed_ids() == [3]

    def test_a_zombie_touches_neither_the_sink_nor_the_store(self):
        claim(self.store)
        with pytest.raises(FencedError):
            self.commit(checkpoint(3, "1-0-0"))
        assert self.ledger.visible == {}
        assert self.store.attempts.committed_ids() == []

    def test_a_commit_that_failed_is_repeated_after_the_target_was_taken_over_again(self):
        """Whoever takes over looks for the owner afterwards, so a sleeper goes no further."""
        calls = []

        def observe(verb: str, moment: str) -> None:
            if moment == "before":
                calls.append(verb)

        self.ledger.observe = observe
        wanted = checkpoint(3, "1-0-0")
        commit_output(self.store, self.committers, wanted, self.generation, again=True)
        assert calls == ["take_over", "commit", "publish"]
        claim(self.store)
        calls.clear()
        with pytest.raises(FencedError):
            commit_output(self.store, self.committers, wanted, self.generation, again=True)
        assert calls == ["take_over"]

    def test_a_sink_that_a_sleeper_took_over_is_tried_again_by_the_owner_only(self):
        def observe(verb: str, moment: str) -> None:
            if (verb, moment) == ("publish", "before"):
                raise FencedError(ErrorCode.FENCED, "the target knows a newer producer")

        self.ledger.observe = observe
        with pytest.raises(StorageUnavailable, match="sink sink was taken over by another driver"):
            self.commit(checkpoint(3, "1-0-0"))
        self.ledger.observe = lambda verb, moment: (
            observe(verb, moment) if verb != "commit" else claim(self.store)
        )
        with pytest.raises(FencedError, match="generation"):
            self.commit(checkpoint(3, "1-0-0"))

    def test_staged_rows_are_deleted_once_their_commit_is_recorded(self):
        staging = StagingArea(self.store.objects, self.store.paths, "sink")
        file = staging.put(self.generation, 0, 0, b"rows")
        part = {"name": "1-0-0", "staged_file": file.model_dump()}
        sinks = (subtask("sink", 0, committables=(part,)), subtask("sink", 1))
        wanted = checkpoint(3)
        wanted = wanted.model_copy(update={"subtasks": (*wanted.subtasks[:2], *sinks)})
        self.ledger.observe = lambda *_: staging.open(file).close()  # There until the end.
        self.commit(wanted)
        assert staging.problem(file) is not None
        assert self.store.attempts.committed_ids() == [3]
        self.ledger.observe = lambda *_: None
        self.commit(wanted)  # Its rows are gone, and it is committed.

    def test_what_a_person_gave_up_is_not_committed(self):
        gone = {"name": "1-0-7"}
        wanted = checkpoint(3, "1-0-0", "1-0-7")
        left_out = LeftOut({"sink": (gone,)})
        commit_output(self.store, self.committers, wanted, self.generation, left_out=left_out)
        assert self.ledger.commits == {3: ["1-0-0"]}
