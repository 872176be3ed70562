import pytest

from laminar_core.driver.events import StoreBack, StoreLost
from laminar_core.driver.heartbeats import Heartbeats
from laminar_core.errors import ErrorCode
from laminar_core.records.actor import Actor
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.driver.hosts import Background, Host
from tests.store.stores import claim, open_job


class Bench:
    def __init__(self, *faults: Fault) -> None:
        self.disk, self.host, self.background = SimulatedDisk(), Host(), Background()
        self.store = open_job(FaultyStore(self.disk, *faults))
        self.generation = claim(self.store)
        audit = AuditLog(self.store.objects, self.store.paths, self.host.now_ms)
        self.heartbeats = Heartbeats(self.store, self.generation, audit, self.host, self.background)
        self.count = 0

    def beat(self) -> None:
        self.count += 1
        self.heartbeats.beat(Heartbeat(sequence=self.count, at_ms=self.count))
        self.background.run()

    @property
    def seen(self) -> int | None:
        found = self.store.generations.read_heartbeat(self.generation)
        return None if found is None else found.sequence


def test_a_heartbeat_is_in_the_store():
    bench = Bench()
    bench.beat()
    bench.beat()
    assert (bench.seen, bench.host.told) == (2, [])


def test_a_lost_store_is_reported_once_and_so_is_its_return():
    bench = Bench()
    bench.disk.unmount()
    bench.beat()
    bench.beat()
    assert bench.disk.list("") == []
    bench.disk.mount()
    bench.beat()
    bench.beat()
    lost, back = bench.host.told
    assert isinstance(lost, StoreLost)
    assert (lost.code, lost.generation) == ("store-gone", bench.generation)
    assert back == StoreBack(time_ms=1_000, generation=bench.generation)
    assert bench.seen == 4


def test_another_store_in_its_place_is_not_written_to():
    bench, other = Bench(), SimulatedDisk()
    claim(open_job(other))
    bench.disk.unmount(instead=other)
    bench.beat()
    assert [event.code for event in bench.host.told] == ["store-replaced"]
    assert bench.seen is None


def test_the_audit_log_of_another_store_is_not_named_when_the_right_one_is_back():
    """Nor later: whoever verifies the log would take that record for one that was changed."""
    bench, other = Bench(), SimulatedDisk()
    elsewhere = open_job(other)
    claim(elsewhere)
    audit = AuditLog(other, elsewhere.paths, bench.host.now_ms)
    for _ in range(3):
        audit.append(action="pin", actor=Actor("somebody", reason="there"))
    bench.disk.unmount(instead=other)
    bench.beat()
    bench.disk.mount()
    bench.beat()
    beat = bench.store.generations.read_heartbeat(bench.generation)
    assert beat is not None
    assert (beat.sequence, beat.audited) == (2, None)


@pytest.mark.parametrize("code", [ErrorCode.STORE_IO, ErrorCode.STORE_FULL])
def test_a_store_that_only_fails_is_not_lost(code):
    bench = Bench(Fault("put", Effect.FAIL, "heartbeat", last=3, code=code))
    for _ in range(4):
        bench.beat()
    assert bench.host.told == []
    assert bench.seen == 4


def test_a_newer_generation_ends_this_one():
    bench = Bench()
    claim(open_job(bench.disk))
    bench.beat()
    assert len(bench.host.fences) == 1
    assert bench.seen is None
