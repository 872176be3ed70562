"""Discoveries run beside the coordinator: what they find goes out once, whatever fails."""

import pyarrow as pa
import pytest

from laminar_core.connectors.base import Found
from laminar_core.driver.discovery import Discovering, SplitDiscovery, checked, found_so_far
from laminar_core.driver.publication import JobIdentity
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, StorageUnavailable
from laminar_core.link.messages import AddSplits, SourceProgress, decode_splits
from laminar_core.plan.plan import Plan
from laminar_core.protocol.split_book import FoundSoFar
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest_fields import DiscoveryEntry
from laminar_core.state.splits import split_table
from tests.driver.hosts import Background, Host


def splits(*ids: int) -> pa.Table:
    return split_table([{"split_id": n, "split": str(n), "offset": "0"} for n in ids])


class Steps:
    """Returns what a test puts in, or raises it; remembers the states that it was given."""

    interval_ms = 500

    def __init__(self, *results: Found | Exception) -> None:
        self.results, self.states = list(results), []

    def step(self, state: dict) -> Found:
        self.states.append(state)
        result = self.results.pop(0) if self.results else Found(splits(), state)
        if isinstance(result, Exception):
            raise result
        return result


class Running:
    def __init__(self, *results: Found | Exception, found: FoundSoFar | None = None) -> None:
        self.host, self.threads, self.steps = Host(), Background(), Steps(*results)
        identity = JobIdentity("job", Generation(3), Plan((), ()), 2)
        sources = {"in": Discovering("Steps", self.steps, found or FoundSoFar())}
        self.all = SplitDiscovery(sources, identity, self.host, self.threads)

    def turn(self, wait_ms: int = 0) -> None:
        self.host.time_ms += wait_ms
        self.all.tick()
        self.threads.run()
        self.host.run()

    def sent(self) -> list[tuple[int, list[int], bool]]:
        """Worker, split numbers, and whether it is the end."""
        told = []
        for worker, message in self.host.sent_to:
            assert isinstance(message, AddSplits)
            table = decode_splits(message.splits)
            ids = [] if table is None else table.column("split_id").to_pylist()
            told.append((worker, ids, message.complete))
        return told


def test_what_is_found_goes_to_its_owners_and_the_end_to_everybody() -> None:
    running = Running(Found(splits(0, 1, 2), {"n": 3}), Found(splits(3), {"n": 4}, complete=True))
    running.turn()
    assert running.sent() == [(0, [0, 2], False), (1, [1], False)]
    assert running.all.next_wakeup_ms() == running.host.monotonic_ms() + 500
    running.turn(wait_ms=499)
    assert len(running.steps.states) == 1
    running.turn(wait_ms=1)
    assert running.steps.states == [{}, {"n": 3}]
    assert running.sent()[2:] == [(1, [3], False), (0, [], True), (1, [], True)]
    assert running.all.next_wakeup_ms() is None
    running.turn(wait_ms=10_000)
    assert len(running.steps.states) == 2


def test_a_step_begins_only_when_the_last_one_has_ended() -> None:
    running = Running()
    running.all.tick()
    running.host.time_ms += 10_000
    running.all.tick()
    assert len(running.threads.queue) == 1


def test_the_duration_of_the_last_step_that_succeeded_is_known() -> None:
    running = Running(ValueError("odd"), Found(splits(0), {}))
    running.turn()
    assert running.all.durations_ms() == {}
    running.host.time_ms += 1_000
    running.all.tick()
    running.host.time_ms += 70
    running.threads.run()
    running.host.run()
    assert running.all.durations_ms() == {"in": 70}


def test_files_that_the_last_step_left_out_as_late_are_counted() -> None:
    running = Running(Found(splits(0), {}, late_count=3), Found(splits(1), {}))
    assert running.all.late_counts() == {"in": None}
    running.turn()
    assert running.all.late_counts() == {"in": 3}
    running.turn(wait_ms=500)
    assert running.all.late_counts() == {"in": None}


def test_a_long_list_goes_out_in_several_messages() -> None:
    running = Running(Found(splits(*range(12_000)), {}))
    running.turn()
    assert [len(ids) for _, ids, _ in running.sent()] == [5_000, 1_000, 5_000, 1_000]


def test_a_checkpoint_has_the_state_of_the_last_step_before_its_trigger() -> None:
    running = Running(Found(splits(0), {"n": 1}), found=FoundSoFar({"n": 0}, 0))
    before = running.all.trigger_sent(CheckpointId(1))
    running.turn()
    after = running.all.trigger_sent(CheckpointId(2))
    assert before == {"in": DiscoveryEntry(state={"n": 0}, next_split_id=0, complete=False)}
    assert after == {"in": DiscoveryEntry(state={"n": 1}, next_split_id=1, complete=False)}


def test_a_worker_with_much_left_to_read_gets_no_more() -> None:
    running = Running(Found(splits(0, 1), {}))
    running.all.reported(
        0, {"in": SourceProgress(rows_unread=9), "gone": SourceProgress(rows_unread=1)}
    )
    running.turn()
    assert running.sent() == [(1, [0, 1], False)]


def test_a_step_that_fails_is_tried_again_and_reported_once() -> None:
    away = StorageUnavailable(ErrorCode.STORE_IO, "the folder does not answer")
    running = Running(away, away, ValueError("odd"), Found(splits(0), {}), away)
    for wait_ms in (0, 1_000, 2_000, 4_000, 500):
        running.turn(wait_ms)
    assert len(running.steps.states) == 5
    assert [event.problem.partition(": ")[2] for event in running.host.told] == [
        "the folder does not answer",
        "ValueError('odd')",
        "the folder does not answer",
    ]
    assert running.host.failures == []
    assert [ids for _, ids, _ in running.sent()] == [[0]]


def test_what_a_restart_would_meet_again_ends_the_job() -> None:
    for error in (
        ConfigurationError(ErrorCode.SOURCE_CHANGED, "another topic"),
        DataError(ErrorCode.UNREADABLE_FILE, "a.log"),
    ):
        running = Running(error)
        running.turn()
        assert running.host.failures == [(error.code, str(error))]


def test_problems_are_reported_once_as_long_as_they_last() -> None:
    bad = Found(splits(), {}, problems=["a has changed"])
    both = Found(splits(), {}, problems=["a has changed", "b is gone"])
    running = Running(bad, both, Found(splits(), {}), bad)
    for _ in range(4):
        running.turn(wait_ms=500)
    assert [e.problem for e in running.host.told] == ["a has changed", "b is gone", "a has changed"]


@pytest.mark.parametrize("ids", [(4,), (5, 5), (6, 2)])
def test_a_number_that_is_used_twice_is_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="number new splits from 5 on"):
        checked("in", "Steps", Found(splits(*ids), {}), next_split_id=5)
    running = Running(Found(splits(*ids), {}), found=FoundSoFar({}, 5))
    running.turn()
    assert running.sent() == []
    assert [code for code, _ in running.host.failures] == [ErrorCode.WRONG_SCHEMA]


def test_a_table_without_a_column_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="without offset"):
        checked("in", "Steps", Found(splits(0).drop_columns("offset"), {}), next_split_id=0)


def test_a_checkpoint_of_an_older_format_has_nothing_more_to_find() -> None:
    assert found_so_far(None, splits(0, 1, 7)) == FoundSoFar({}, 8, complete=True)
    entry = DiscoveryEntry(state={"n": 1}, next_split_id=9, complete=False)
    assert found_so_far(entry, splits(0)) == FoundSoFar({"n": 1}, 9)
