"""The driver looks once a minute how long its oldest checkpoint can still be restored."""

import pyarrow as pa

from laminar_core.connectors.base import Headroom
from laminar_core.driver.headroom import LOOK_INTERVAL_MS, HeadroomWatch, KnownHeadroom
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.state.splits import split_table
from laminar_core.testing.faulty_store import Fault, FaultyStore
from tests.driver.hosts import Background, Host
from tests.store.stores import claim, damage, open_job, write

SOURCE = "window"
"""The operator that the checkpoints of these tests have a state of."""


class Topic:
    """Has deleted what is before ``low``, and may be away."""

    def __init__(self) -> None:
        self.low = 0
        self.is_away = False

    def headroom(self, splits: pa.Table) -> Headroom:
        if self.is_away:
            raise OSError("away")
        offsets = [int(offset) for offset in splits.column("offset").to_pylist()]
        return Headroom(min(offsets) - self.low, 60.0)


class Watched:
    """A watch over ``sources``, in a job with two checkpoints at offsets 10 and 20."""

    def __init__(self, *faults: Fault, **sources: Topic) -> None:
        self.host, self.threads = Host(), Background()
        self.store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        self.generation = claim(self.store)
        self.watch = HeadroomWatch(sources, self.store, self.host, self.threads)

    def complete(self, checkpoint_id: int, offset: int) -> None:
        splits = split_table([{"split_id": 0, "split": "t/0", "offset": str(offset)}])
        self.store.manifests.publish(write(self.store, checkpoint_id, self.generation, splits))

    def look(self, wait_ms: float = LOOK_INTERVAL_MS):
        self.host.time_ms += int(wait_ms)
        self.watch.tick()
        self.threads.run()
        self.host.run()
        return self.watch.known.get(SOURCE)


def known(checkpoint_id: int, rows: int) -> KnownHeadroom:
    return KnownHeadroom(CheckpointId(checkpoint_id), Headroom(rows, 60.0))


def test_the_oldest_checkpoint_counts_and_retention_changes_which_that_is() -> None:
    topic = Topic()
    job = Watched(window=topic)
    assert job.look(0) is None, "there is no checkpoint yet"
    job.complete(1, 10)
    job.complete(2, 20)
    topic.low = 7
    assert job.look() == known(1, 3)
    topic.low = 12
    assert job.look() == known(1, -2)
    damage(job.store, job.store.paths.manifest(CheckpointId(1)), "missing")
    assert job.look() == known(2, 8)


def test_an_abandoned_or_damaged_checkpoint_does_not_count() -> None:
    job = Watched(window=Topic())
    job.complete(1, 10)
    job.complete(2, 20)
    job.complete(3, 30)
    damage(job.store, job.store.paths.manifest(CheckpointId(1)), "rotten")
    job.generation = claim(job.store, base=1)
    assert job.look() is None
    job.complete(4, 40)
    assert job.look() == known(4, 40)


def test_looks_are_once_a_minute_and_one_at_a_time() -> None:
    job = Watched(window=Topic())
    job.complete(1, 10)
    assert job.watch.next_wakeup_ms() == 0
    job.watch.tick()
    job.watch.tick()
    assert (len(job.threads.queue), job.watch.next_wakeup_ms()) == (1, None)
    assert job.look(0) == known(1, 10)
    assert job.watch.next_wakeup_ms() == job.host.monotonic_ms() + LOOK_INTERVAL_MS
    job.host.time_ms += LOOK_INTERVAL_MS - 1
    job.watch.tick()
    assert not job.threads.queue


def test_a_source_that_does_not_answer_hides_no_other_and_no_old_answer_stays() -> None:
    topic = Topic()
    job = Watched(window=topic, sink=Topic())
    job.complete(1, 10)
    assert job.look() == known(1, 10)
    topic.is_away = True
    assert job.look() is None
    topic.is_away = False
    assert job.look() == known(1, 10)


def test_a_store_that_does_not_answer_ends_nothing() -> None:
    job = Watched(Fault("list", "error", last=100), window=Topic())
    assert job.look() is None
    assert job.host.failures == []
    assert job.watch.next_wakeup_ms() is not None


def test_a_source_that_the_checkpoint_does_not_know_has_no_headroom() -> None:
    job = Watched(new=Topic())
    job.complete(1, 10)
    job.look()
    assert job.watch.known == {}


def test_without_a_source_that_forgets_nothing_is_read() -> None:
    job = Watched()
    job.watch.tick()
    assert (len(job.threads.queue), job.watch.next_wakeup_ms()) == (0, None)
