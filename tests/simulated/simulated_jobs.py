"""Jobs that only tests need; those with an answer that a campaign checks are the library's."""

import pyarrow as pa

from laminar_core.connectors.collect import CollectSink
from laminar_core.pipeline import Pipeline
from laminar_core.testing.jobs import Job, normal, payments, rows_of, with_ledgers
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.scenarios import SCENARIOS, windows_job

__all__ = ["JOBS", "Job", "normal", "rows_of", "windows_job"]

JOBS = SCENARIOS


def never_ending_job() -> Job:
    """All rows are output; then the source waits for more that never come."""
    tables = payments()
    p = Pipeline("endless")
    rows = p.source("in", MemorySource(tables, bounded=False))
    return with_ledgers(p, {"out": (rows.rebalance(), rows_of(tables))})


def collect_job(parallelism: int) -> Job:
    """Rows come back through the stage, not through a ledger."""
    del parallelism
    tables = payments()
    p = Pipeline("collect")
    p.source("in", MemorySource(tables)).rebalance().sink("rows", CollectSink())
    return Job(p.plan(), {"rows": rows_of(tables)})


def failing_job(error: Exception) -> Job:
    """Row 77 is more than the job can bear."""
    tables = payments()

    def fail_at_77(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 10_077 in batch.column("id").to_pylist():
            raise error
        return batch

    p = Pipeline("failing")
    return with_ledgers(p, {"out": (p.source("in", MemorySource(tables)).map(fail_at_77), [])})
