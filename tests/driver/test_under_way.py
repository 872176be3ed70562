"""A checkpoint under way is described within bounds, and read from heartbeats of any version."""

from laminar_core.driver.events import ProgressMade
from laminar_core.driver.missing import SUBTASKS_MAX
from laminar_core.driver.publication import JobIdentity
from laminar_core.driver.under_way import CheckpointUnderWay, described, under_way_of
from laminar_core.link.messages import WaitingCheckpoint, WaitingVertex
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.types import CheckpointKind, Generation
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.records.manifest import TriggerRecord
from laminar_core.records.operator_numbers import operators_of
from laminar_core.records.record import JsonObject
from laminar_core.store.generation_summary import read_generation
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from tests.plan.plans import small_plan

PLAN = small_plan()
LAST = PLAN.vertices[-1].vertex_id
TRIGGER = TriggerRecord(
    checkpoint_id=9, generation=3, kind=CheckpointKind.SAVEPOINT, triggered_at_ms=1_000
)


def pending(workers: int, done: set[int]) -> CheckpointUnderWay:
    vertex = WaitingVertex(vertex_id=LAST, waits_for=WaitsFor.UPLOAD)
    waits = WaitingCheckpoint(generation=3, worker=1, checkpoint_id=9, vertices=(vertex,))
    identity = JobIdentity("payments", Generation(3), PLAN, workers)
    return described(identity, TRIGGER, 1_500, {1: waits}, done, lambda worker: f"host-{worker}")


def test_it_waits_for_all_subtasks_of_workers_that_are_not_done() -> None:
    found = pending(2, {0})
    assert (found.checkpoint_id, found.kind, found.age_ms) == (9, CheckpointKind.SAVEPOINT, 1_500)
    assert (found.workers, found.acknowledged) == (2, 1)
    assert found.missing_count == len(PLAN.vertices)
    first = found.missing[0]
    assert (first.vertex_id, first.subtask_index, first.host) == (LAST, 1, "host-1")
    assert first.waits_for is WaitsFor.UPLOAD


def test_it_waits_for_nobody_while_its_manifest_is_written() -> None:
    assert (pending(2, {0, 1}).missing, pending(2, {0, 1}).missing_count) == ((), 0)


def test_a_job_of_any_size_is_described_in_the_same_space() -> None:
    found = pending(1_000, set())
    assert len(found.missing) == SUBTASKS_MAX
    assert found.missing_count == 1_000 * len(PLAN.vertices)


def test_heartbeats_of_older_and_newer_drivers_can_be_read() -> None:
    found = pending(2, {0})
    written = found.model_dump(mode="json")
    assert under_way_of({"pending": [written]}) == [found]
    assert under_way_of({"pending": [{**written, "invented_later": 7}, {"broken": 1}]}) == [found]
    assert under_way_of({}) == under_way_of({"pending": 5}) == []


def test_the_heartbeat_of_a_job_names_the_checkpoint_under_way_and_its_operators() -> None:
    """One operator computes for long in worker 1, so the checkpoint waits for this worker."""
    job = SCENARIOS["windows"](2)
    checkpoint = CoordinatorConfig(interval_ms=300, tolerable_failures=None)
    simulation = Simulation(job.plan, parallelism=2, seed=3, checkpoint=checkpoint)
    simulation.paces = {0: 100.0, 1: 100.0}
    beats: list[JsonObject] = []

    def slow() -> None:
        simulation.drivers[-1].stages[-1].workers[1].when_computing(lambda: 4_000.0)

    def look() -> None:
        beat = read_generation(simulation.store.objects, simulation.store.paths, Generation(1))
        assert beat.heartbeat is not None
        beats.append(beat.heartbeat.progress)

    simulation.when(ProgressMade, slow)
    for number in range(2, 10):
        simulation.when(ProgressMade, look, number)
    simulation.run_to_end()
    known = [operators_of(beat) for beat in beats if beat]  # The first ones may be empty.
    assert known
    assert all(found.keys() >= {"in", "totals", "out"} for found in known)
    waiting = [each for beat in beats for each in under_way_of(beat)]
    assert {subtask.subtask_index for each in waiting for subtask in each.missing} >= {1}
    assert any(each.age_ms > 1_000 for each in waiting)
    senders = {c.sender for each in waiting for subtask in each.missing for c in subtask.channels}
    assert 1 in senders
