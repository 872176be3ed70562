"""The digest of the user's code changes with that code, and with nothing else."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.driver.user_code import user_code_sha256
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.store.audit_log import AuditLog
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.simulation import Simulation
from tests.simulated.savepoint_stories import slow_job


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "n", pc.multiply(batch.column("n"), 2))


def treble(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "n", pc.multiply(batch.column("n"), 3))


class Secret:
    """An object that does not like to be looked at."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    @property
    def __dict__(self):
        raise OSError("no")


def plan(function: Callable | None = None, rows: int = 10) -> Plan:
    p = Pipeline("numbers")
    stream = p.source("in", DatagenSource({"n": Sequence()}, rows=rows))
    stream = stream.select("n") if function is None else stream.map(function)
    return stream.sink("out", CollectSink()).plan()


def test_another_function_is_another_version() -> None:
    assert user_code_sha256(plan(double)) == user_code_sha256(plan(double))
    assert user_code_sha256(plan(double)) != user_code_sha256(plan(treble))


def test_settings_are_no_code() -> None:
    assert user_code_sha256(plan(double)) == user_code_sha256(plan(double, rows=11))


def test_a_pipeline_of_laminars_own_parts_has_no_version() -> None:
    assert user_code_sha256(plan()) is None


def test_who_watches_what_a_sink_writes_to_is_no_code_of_the_pipeline() -> None:
    ledger = Ledger()
    p = Pipeline("numbers")
    p.source("in", DatagenSource({"n": Sequence()}, rows=10)).sink("out", LedgerSink(ledger))
    calls: list[tuple[str, str]] = []
    ledger.observe = lambda *call: calls.append(call)
    assert user_code_sha256(p.plan()) is None


def test_what_cannot_be_digested_refuses_nothing() -> None:
    assert user_code_sha256(plan(Secret())) is None


def test_the_audit_log_has_it_with_each_claim() -> None:
    job = slow_job(rows=10, row_ms=0)
    simulation = Simulation(job.plan, checkpoint=CoordinatorConfig(interval_ms=300))
    simulation.run()
    log = AuditLog(simulation.store.objects, simulation.store.paths, lambda: 0)
    (claim,) = [r for r in log.records() if r.action == "claim"]
    assert claim.after is not None
    assert claim.after.get("user_code_sha256") == user_code_sha256(job.plan)
    own = Simulation(plan(double), checkpoint=CoordinatorConfig(interval_ms=300))
    own.run()
    log = AuditLog(own.store.objects, own.store.paths, lambda: 0)
    (claim,) = [r for r in log.records() if r.action == "claim"]
    assert claim.after == {"generation": 1, "user_code_sha256": user_code_sha256(plan(double))}
