"""Files are read in turn and within a rate; whole jobs are in ``test_lost_files``."""

import pytest

from laminar_core.driver.events import FilesDamaged
from laminar_core.driver.scrub import Scrub
from laminar_core.link.messages import Renew
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.store.file_scrub import DamageLog
from tests.driver.hosts import Background, Host
from tests.retention.retention_jobs import StoredJob
from tests.store.stores import claim, damage, open_job

SECOND_MS = 1_000


class Bench:
    def __init__(self, bytes_per_second: int = 1 << 20, checkpoints: int = 3) -> None:
        self.objects = CountedObjectStore(MemoryObjectStore())
        self.job = StoredJob(self.objects)
        self.job.start()
        for _ in range(checkpoints):
            self.job.complete()
        self.store, self.host, self.background = self.job.store, Host(), Background()
        self.scrub = Scrub(self.store, Generation(1), self.host, self.background, bytes_per_second)
        self.scrub.completed(self.manifest())

    def manifest(self, number: int | None = None) -> CheckpointManifest:
        return self.store.manifests.read(CheckpointId(number or self.job.number))

    def settle(self) -> None:
        while self.background.queue or self.host.posted:
            self.background.run()
            self.host.run()

    def pass_time(self, ticks: int, each_ms: int = SECOND_MS) -> int:
        """Returns how many files were read."""
        before = self.objects.counts
        for _ in range(ticks):
            self.scrub.tick()
            self.settle()
            self.host.time_ms += each_ms
        return (self.objects.counts - before).gets

    def harm(self, path: str, how: str = "rotten") -> None:
        damage(self.store, self.store.paths.absolute(path), how)

    @property
    def told(self) -> list[FilesDamaged]:
        return [event for event in self.host.told if isinstance(event, FilesDamaged)]

    @property
    def ordered(self) -> list[tuple]:
        return [m.operators for m in self.host.sent if isinstance(m, Renew)]


def test_every_file_has_its_turn_and_then_again():
    bench = Bench()
    files = len(list(bench.manifest().files()))
    assert bench.pass_time(2 * files) == 2 * files
    assert bench.told == []


def test_a_small_file_a_second_is_the_most():
    bench = Bench()
    assert bench.pass_time(10, each_ms=100) == 1


def test_the_rate_bounds_bytes():
    """Files of this job have less than 200 bytes: one byte a second reads none for a long time."""
    bench = Bench(bytes_per_second=1)
    assert bench.pass_time(1) == 1
    size = min(file.size_bytes for file in bench.manifest().files())
    assert bench.pass_time(size - 2) == 0
    assert bench.scrub.next_wakeup_ms() > bench.host.time_ms


def test_without_a_rate_nothing_is_read():
    bench = Bench(bytes_per_second=0)
    assert bench.scrub.next_wakeup_ms() is None
    assert bench.pass_time(5) == 0


def test_what_is_found_is_reported_once_marked_and_healed():
    bench = Bench()
    lost = bench.manifest().subtasks[0].segments[1].path
    bench.harm(lost)
    bench.pass_time(20)
    (event,) = bench.told
    assert [(file.path, file.problem) for file in event.files] == [(lost, "digest")]
    assert (event.found_by, event.checkpoint_ids) == ("reading", (1, 2, 3))
    assert event.rewritten_operators == ("window",)
    assert bench.ordered == [(("window", 0),)]
    assert DamageLog(bench.store.objects, bench.store.paths).ids() == {1, 2, 3}


def test_a_file_of_one_checkpoint_alone_is_marked_and_needs_no_healing():
    bench = Bench()
    bench.harm(bench.manifest().subtasks[0].segments[0].path)
    bench.pass_time(20)
    (event,) = bench.told
    assert (event.checkpoint_ids, event.rewritten_operators, bench.ordered) == ((3,), (), [])


def test_what_no_checkpoint_names_any_more_is_no_loss():
    """Retention may have deleted it while it waited for its turn."""
    bench = Bench()
    first = bench.manifest().subtasks[0].segments[1].path
    bench.scrub.tick()
    bench.job.complete(forget=1)
    bench.scrub.completed(bench.manifest())
    bench.harm(first, "missing")
    bench.settle()
    bench.pass_time(20)
    assert bench.told == []


def test_one_that_completes_while_it_is_found_is_marked_too():
    bench = Bench()
    lost = bench.manifest().subtasks[0].segments[1].path
    bench.harm(lost)
    bench.pass_time(20)
    bench.job.complete()
    assert [file.path for file in bench.scrub.known_damage(bench.manifest())] == [lost]
    bench.scrub.completed(bench.manifest())
    bench.settle()
    assert DamageLog(bench.store.objects, bench.store.paths).ids() == {1, 2, 3, 4}


def test_a_listing_orders_once_however_often_it_shows_the_same():
    bench = Bench()
    prepared = bench.job.prepare()
    lost = prepared.subtasks[0].segments[1].path
    bench.harm(lost, "missing")
    for _ in range(2):
        damaged = bench.store.manifests.publish_if_whole(prepared)
        bench.scrub.unpublished(prepared, damaged)
        bench.settle()
    assert [event.found_by for event in bench.told] == ["listing"]
    assert bench.told[0].checkpoint_ids == (1, 2, 3)
    assert bench.ordered == [(("window", 0),)]


def test_the_next_checkpoint_may_complete_before_the_report_is_made():
    """It does not name the file any more, and those before it do."""
    bench = Bench()
    prepared = bench.job.prepare()
    lost = prepared.subtasks[0].segments[1].path
    bench.harm(lost, "missing")
    bench.scrub.unpublished(prepared, bench.store.manifests.publish_if_whole(prepared))
    bench.job.complete(forget=1)
    assert lost not in {file.path for file in bench.manifest().files()}
    bench.scrub.completed(bench.manifest())
    bench.settle()
    assert bench.told[0].checkpoint_ids == (1, 2, 3)


def test_a_file_in_the_folder_of_the_restored_checkpoint_is_healed_once_it_is_inherited():
    """A chain goes on from it; who found it before had nobody to ask."""
    bench = Bench()
    restored = bench.manifest()
    lost = restored.subtasks[0].segments[0].path
    bench.harm(lost, "missing")
    bench.pass_time(20)
    assert (len(bench.told), bench.ordered) == (1, [])
    inherits = bench.job.prepare()
    inherits = inherits.model_copy(update={"subtasks": restored.subtasks})
    for _ in range(2):
        known = bench.scrub.known_damage(inherits)
        assert [file.path for file in known] == [lost]
        bench.scrub.unpublished(inherits, known)
        bench.settle()
    assert bench.ordered == [(("window", 0),)]
    assert len(bench.told) == 1


def test_a_file_that_a_worker_could_not_merge_is_read_at_once_also_without_a_rate():
    bench = Bench(bytes_per_second=0)
    segment = bench.manifest().subtasks[0].segments[2]
    bench.harm(segment.path)
    bench.scrub.suspect("window", 0, segment)
    bench.scrub.suspect("window", 0, segment)
    bench.pass_time(3)
    assert [event.rewritten_operators for event in bench.told] == [("window",)]


def test_a_suspect_that_is_whole_was_only_out_of_reach():
    bench = Bench(bytes_per_second=0)
    bench.scrub.suspect("window", 0, bench.manifest().subtasks[0].segments[2])
    bench.pass_time(3)
    assert (bench.told, bench.scrub.next_wakeup_ms()) == ([], None)


def test_a_suspect_that_is_merged_while_it_is_read_is_not_read_again():
    """The worker has tried again meanwhile, so the next checkpoint does not name the file."""
    bench = Bench()
    segment = bench.manifest().subtasks[0].segments[0]
    bench.scrub.suspect("window", 0, segment)
    bench.scrub.tick()
    entry = bench.manifest().subtasks[0]
    merged = entry.model_copy(update={"segments": entry.segments[1:]})
    rest = bench.manifest().subtasks[1:]
    bench.scrub.completed(bench.manifest().model_copy(update={"subtasks": (merged, *rest)}))
    bench.settle()
    bench.host.time_ms += SECOND_MS
    others = len(list(bench.manifest().files())) - 1
    assert bench.pass_time(2 * others) == 2 * others
    assert bench.told == []


def test_a_zombie_reports_nothing_that_its_successor_deleted():
    bench = Bench()
    claim(open_job(bench.objects), base=3)
    bench.harm(bench.manifest().subtasks[0].segments[1].path, "missing")
    bench.pass_time(20)
    assert bench.told == []
    assert len(bench.host.fences) >= 1


@pytest.mark.parametrize(("index", "mine"), [(0, {"a", "b"}), (1, {"a"}), (2, set())])
def test_a_worker_renews_what_is_its_own(index, mine):
    message = Renew(generation=1, operators=(("a", 0), ("a", 1), ("b", 0)))
    assert message.operators_at(index) == mine
