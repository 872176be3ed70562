"""Bad rows of a source: they stop the job, are dropped and counted, or go to a sink exactly once.

That letters are exact through disasters and changes of parallelism is tried by the scenario
``bad-rows``, in ``test_exactly_once.py`` and ``test_rescaling.py``.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors.formats.bad_rows import SkippedMessage
from laminar_core.driver.events import CheckpointCompleted, Finished, GenerationStarted
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import Emitted, JsonObject, Side, Snapshot, SubtaskContext
from laminar_core.pipeline import LettersTo, Pipeline
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.bad_rows import BadRowTotals, bad_rows_of
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.jobs import Job, payments, rows_of, with_ledgers
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import BAD_EVERY, bad_rows_job
from laminar_core.testing.simulation import Simulation

TABLES = payments()
BAD = sum(table.num_rows // BAD_EVERY for table in TABLES)


def job(**settings: Any) -> Job:
    """A job whose source has bad rows."""
    source = MemorySource(TABLES, bad_every=BAD_EVERY)
    good = [r for t in TABLES for n, r in enumerate(t.to_pylist()) if not source.is_bad(n)]
    p = Pipeline("bad")
    return with_ledgers(p, {"out": (p.source("in", source, **settings), good)})


def audited(simulation: Simulation, action: str) -> list[JsonObject]:
    """Return the details of all such acts in the audit log."""
    store = simulation.store
    records = AuditLog(store.objects, store.paths, lambda: 0).records()
    return [record.after or {} for record in records if record.action == action]


def test_by_default_the_job_stops_with_one_line_and_is_not_started_again() -> None:
    simulation = Simulation(job().plan, parallelism=1)
    with pytest.raises(DataError) as caught:
        simulation.run()
    assert caught.value.code is ErrorCode.BAD_ROW
    assert "in, split 0, offset 4: bad on purpose" in str(caught.value)
    assert "--skip-bad in:0:4" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert simulation.store.claims.newest() == 1


def test_a_message_that_a_person_names_is_left_out_and_that_is_in_the_audit_log() -> None:
    bad = job()
    simulation = Simulation(bad.plan, parallelism=2)
    offsets = [f"in:{s}:{n}" for s, t in enumerate(TABLES) for n in range(4, t.num_rows, 5)]
    with pytest.raises(DataError, match="offset 9"):
        simulation.run(skip_bad=tuple(map(SkippedMessage.parse, ("in:0:4", "in:1:4", "in:2:4"))))
    result = simulation.run(skip_bad=tuple(map(SkippedMessage.parse, offsets)))
    bad.check()
    assert result.bad_rows == BadRowTotals(skipped=BAD)
    starts = [*audited(simulation, "start-fresh"), *audited(simulation, "restore")]
    assert [act["skip_bad"] for act in starts] == [["in:0:4", "in:1:4", "in:2:4"], offsets]


def test_a_message_of_an_unknown_source_is_refused_before_anything_is_claimed() -> None:
    simulation = Simulation(job().plan)
    with pytest.raises(ConfigurationError, match="the pipeline has no source on, only in"):
        simulation.run(skip_bad=(SkippedMessage("on", "0", "4"),))
    assert simulation.store.claims.newest() is None


def test_dropped_rows_are_counted_everywhere() -> None:
    dropping = job(on_bad_row="drop", bad_share_max="30%", rows_per_second=300)
    simulation = Simulation(dropping.plan, parallelism=2, checkpoint=CoordinatorConfig(10))
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), 2)
    result = simulation.run()
    dropping.check()
    every = BadRowTotals(dropped=BAD)
    assert (result.generations, result.bad_rows) == (2, every)
    finished = [e for e in simulation.events if isinstance(e, Finished)]
    assert [e.bad_rows for e in finished] == [every]
    completed = [e for e in simulation.events if isinstance(e, CheckpointCompleted)]
    assert completed[-1].bad_rows == {"in": every}
    newest = simulation.store.manifests.read(max(simulation.store.manifests.ids()))
    assert bad_rows_of(newest) == {"in": every}
    assert audited(simulation, "end")[-1]["bad_rows"] == {
        "letters": 0,
        "dropped": BAD,
        "skipped": 0,
    }
    assert audited(simulation, "restore")[-1]["drops_bad_rows_of"] == ["in"]


def test_too_many_bad_rows_stop_the_job() -> None:
    few = job(on_bad_row="drop", bad_share_max="0.01%")
    simulation = Simulation(few.plan, parallelism=1)
    with pytest.raises(DataError, match=r"more than 0.01% of 10000 messages are bad") as caught:
        simulation.run()
    assert caught.value.code is ErrorCode.TOO_MANY_BAD_ROWS


def test_letters_to_a_sink_are_committed_with_the_checkpoint_that_has_their_rows() -> None:
    letters = Ledger()
    kept = job(on_bad_row=LettersTo("bad", LedgerSink(letters, "bad")), bad_share_max="100%")
    simulation = Simulation(kept.plan, parallelism=2, checkpoint=CoordinatorConfig(10))
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(1), 1)
    simulation.when(CheckpointCompleted, simulation.kill_driver, 3)
    result = simulation.run_to_end()
    assert len([e for e in simulation.events if isinstance(e, GenerationStarted)]) == 3
    kept.check()
    assert result.bad_rows == BadRowTotals(letters=BAD)
    found = sorted((row["split"], int(str(row["offset"]))) for row in letters.rows())
    assert found == [(str(s), n) for s in range(len(TABLES)) for n in range(4, 40, BAD_EVERY)]
    assert set(letters.commits) == set(kept.ledgers["out"].commits)


@pytest.mark.parametrize("workers", [(1, 3, 2), (3, 1, 2)])
def test_numbers_of_bad_rows_are_kept_when_the_number_of_workers_changes(
    workers: tuple[int, ...],
) -> None:
    bad = bad_rows_job(1)
    simulation = Simulation(bad.plan, checkpoint=CoordinatorConfig(10))
    for parallelism in workers[:-1]:
        simulation.options = replace(simulation.options, parallelism=parallelism)
        done = sum(isinstance(e, CheckpointCompleted) for e in simulation.events)
        simulation.when(CheckpointCompleted, simulation.kill_driver, done + 2)
        with pytest.raises(BaseException, match="driver"):
            simulation.run(take_over=True)
    simulation.options = replace(simulation.options, parallelism=workers[-1])
    result = simulation.run(take_over=True)
    bad.check()
    assert result.bad_rows == BadRowTotals(letters=BAD)
    assert result.rows_in == len(rows_of(TABLES))


class Sorts:
    """An operator that puts odd ids aside; it counts what it has seen, as state."""

    operator_id = "sort"
    redistribution = "split"

    def describe(self) -> JsonObject:
        return {"operator": "sort"}

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        return input_schema

    def side_outputs(self, input_schema: pa.Schema) -> dict[str, pa.Schema]:
        return {"odd": input_schema}

    def open(self, context: SubtaskContext, input_schema: pa.Schema) -> "Sorts":
        del context, input_schema
        return self

    def process(self, batch: pa.RecordBatch) -> Iterable[Emitted]:
        is_odd = pc.call_function("equal", [pc.call_function("bit_wise_and", [batch["id"], 1]), 1])
        yield Side("odd", batch.filter(is_odd))
        yield Side("nowhere", batch)
        yield batch.filter(pc.call_function("invert", [is_odd]))

    def on_watermark(self, watermark_us: int) -> Iterable[pa.RecordBatch]:
        del watermark_us
        return ()

    def snapshot(self, checkpoint_id: int):
        del checkpoint_id
        return Snapshot

    def restore(self, snapshots) -> None:
        pass


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("timeout_ms", [None, 0])
def test_a_side_output_of_an_operator_is_exact_as_well(seed: int, timeout_ms: int | None) -> None:
    p = Pipeline("sorted")
    both = p.source("in", MemorySource(TABLES)).rebalance().then(Sorts())
    rows = rows_of(TABLES)
    outputs = {
        "even": (both.select("id"), [{"id": r["id"]} for r in rows if r["id"] % 2 == 0]),
        "odd": (both.side("odd").rebalance(), [r for r in rows if r["id"] % 2]),
    }
    divided = with_ledgers(p, outputs)
    simulation = Simulation(
        divided.plan,
        seed=seed,
        parallelism=1 + seed % 3,
        checkpoint=CoordinatorConfig(10, alignment_timeout_ms=timeout_ms),
    )
    simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), 1)
    simulation.when(CheckpointCompleted, simulation.kill_driver, 2)
    assert simulation.run_to_end().outcome == "finished"
    divided.check()
