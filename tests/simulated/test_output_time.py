"""Whole jobs record up to which event time the output of a sink is complete."""

import pyarrow as pa
import pytest

from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.sink_outputs import SinkOutput, outputs_of
from laminar_core.testing.jobs import DELAY, Job, payments, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import windows_job
from laminar_core.testing.simulation import Simulation

OFTEN = CoordinatorConfig(interval_ms=20)


def copy_job() -> Job:
    """Return a job whose sink is in the vertex of the source, behind the watermark."""
    p = Pipeline("copy")
    rows = p.source("in", MemorySource(payments()), rows_per_second=500)
    return with_ledgers(p, {"out": (rows.watermark("ts", max_delay=DELAY), [])})


def recorded(simulation: Simulation) -> dict[int, SinkOutput]:
    """Return the output of the only sink, as each completed checkpoint records it."""
    store = simulation.store
    found: dict[int, SinkOutput] = {}
    for checkpoint_id in store.attempts.ids():
        if (manifest := store.manifests.find(checkpoint_id)) is not None:
            (found[checkpoint_id],) = outputs_of(manifest)
    return found


@pytest.mark.parametrize(("of", "column"), [("windows", "window_end"), ("rows", "ts")])
def test_no_later_row_is_older_than_the_recorded_event_time(of: str, column: str) -> None:
    """Goal: what becomes visible after a checkpoint is not of a time that it called complete.

    Method: a worker crashes in the midst. Each part of the output is compared with the event time
    of each checkpoint that does not contain it.
    """
    job = windows_job(2, pace=500) if of == "windows" else copy_job()
    simulation = Simulation(job.plan, seed=1, checkpoint=OFTEN)
    simulation.world.at_turn(150, lambda: simulation.kill_worker(0))
    simulation.run()
    (ledger,) = job.ledgers.values()
    outputs = recorded(simulation)
    assert outputs[max(outputs)].time.ended
    known = {n: o.time.watermark_us for n, o in outputs.items() if o.time.watermark_us is not None}
    assert len(known) > len(outputs) / 2
    for part, interval in ledger.intervals.items():
        batches = ledger.visible.get(part, [])
        times = [time for b in batches for time in b[column].cast(pa.int64()).to_pylist()]
        for checkpoint_id, watermark_us in known.items():
            assert checkpoint_id >= interval or min(times, default=watermark_us) >= watermark_us


def test_rows_columns_and_the_end_of_the_input_are_recorded() -> None:
    job = windows_job(1, pace=500)
    simulation = Simulation(job.plan, parallelism=1, checkpoint=OFTEN)
    simulation.run()
    (ledger,) = job.ledgers.values()
    outputs = recorded(simulation)
    last = outputs[max(outputs)]
    assert last.rows == len(ledger.rows())
    assert {"window_end", "total"} <= dict(last.columns).keys()
    times = [o.time.watermark_us for _, o in sorted(outputs.items()) if o.time.watermark_us]
    assert times == sorted(times)
    assert len(set(times)) > 1
