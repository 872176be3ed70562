"""An expired checkpoint names who did not acknowledge it, in the event and in the history."""

from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.simulation import Simulation
from tests.simulated.savepoint_stories import slow_job


def test_it_names_subtasks_operators_channels_and_hosts() -> None:
    job = slow_job(rows=60, row_ms=120)
    config = CoordinatorConfig(interval_ms=300, timeout_ms=4_000, tolerable_failures=None)
    simulation = Simulation(job.plan, parallelism=2, checkpoint=config, job="slow")
    job.burden.spend = simulation.world.spend
    simulation.run()
    job.check()
    expired = [
        e for e in simulation.events if isinstance(e, CheckpointFailed) and e.outcome == "expired"
    ]
    assert expired
    event = next(e for e in expired if any(m.channels for m in e.missing))
    assert event.missing_count >= len(event.missing) > 0
    known = {vertex.vertex_id: tuple(vertex.operator_ids()) for vertex in job.plan.vertices}
    assert all(known[m.vertex_id] == m.operators for m in event.missing)
    assert {m.host for m in event.missing} <= {"host-0", "host-1"}
    channel = next(m for m in event.missing if m.channels).channels[0]
    assert channel.upstream in known
    waited = f"waited for the barrier from {channel.upstream} {channel.sender}"
    assert waited in event.reason
    record = simulation.store.attempts.read_outcome(event.checkpoint_id)
    assert record is not None
    assert record.reason == event.reason


def test_what_completed_says_which_channels_were_slow() -> None:
    job = slow_job(rows=30, row_ms=20)
    simulation = Simulation(job.plan, parallelism=2, checkpoint=CoordinatorConfig(interval_ms=300))
    job.burden.spend = simulation.world.spend
    simulation.run()
    done = [e.checkpoint_id for e in simulation.events if isinstance(e, CheckpointCompleted)]
    entries = [a for n in done for a in simulation.store.manifests.read(n).alignment]
    aligned = [a for a in entries if a.slowest_channels and a.mode == "aligned" and not a.finished]
    assert aligned
    for entry in aligned:
        times = [c.barrier_ms for c in entry.slowest_channels]
        assert all(t is not None for t in times)
        assert times == sorted(times, reverse=True)
        assert times[0] <= entry.alignment_ms
    assert any(entry.slowest_channels[0].barrier_ms > 0 for entry in aligned)
