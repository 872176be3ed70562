"""Whole jobs record up to which event time the output of a sink is complete."""

import pyarrow as pa
import pytest

from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.sink_outputs import SinkOutput, outputs_of
from laminar_core.testing.jobs import DELAY, SECOND_US, Job, payments, with_ledgers
from laminar_core.testing.ledger import Ledger, LedgerSink
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


def test_readers_in_front_of_a_watermark_record_no_event_time_and_lose_no_rows() -> None:
    """Rows of a source that is read side by side, with two clocks that are far apart."""
    p, ledgers = Pipeline("p"), {name: Ledger() for name in ("raw", "late", "early")}
    clock = [SECOND_US * second for second in range(60)]
    far = [us + 1000 * SECOND_US for us in clock]
    times = {name: pa.array(us, pa.timestamp("us")) for name, us in (("at", clock), ("to", far))}
    source = MemorySource([pa.table({"k": ["a"] * 60, **times})], abreast=True)
    rows = p.source("in", source, rows_per_second=500)
    behind = rows.watermark("at", name="early-time")
    rows.sink("raw", LedgerSink(ledgers["raw"], "raw"))
    for name, stream in (("early", behind), ("late", behind.watermark("to"))):
        counted = stream.key_by("k").window(windows.tumbling("10 seconds"))
        counts = counted.aggregate(f"{name}-counts", agg.count())
        counts.sink(name, LedgerSink(ledgers[name], name))
    simulation = Simulation(p.plan(), parallelism=2, seed=1, checkpoint=OFTEN)
    simulation.world.at_turn(60, lambda: simulation.kill_worker(0))
    result = simulation.run()
    assert (result.outcome, result.rows_late) == ("finished", 0)
    assert [row["count"] for row in ledgers["early"].rows()] == [10] * 6
    assert [row["count"] for row in ledgers["late"].rows()] == [10] * 6
    assert len(ledgers["raw"].rows()) == 60
    manifests = [simulation.store.manifests.find(n) for n in simulation.store.attempts.ids()]
    outputs = [o for m in manifests if m is not None for o in outputs_of(m)]
    timed = {o.operator_id for o in outputs if o.time.watermark_us is not None}
    assert timed == {"early", "late"}
