"""Between two runs, early results come and go; late rows do not; an aggregate can be added."""

import pytest

from laminar_core.operators import agg, windows
from laminar_core.testing.jobs import rows_of
from tests.simulated.test_evolving_jobs import OFTEN, TABLES, UNALIGNED, Build, Evolving


def counts(*more, **options) -> Build:
    """Rows per window in the ledger ``out``."""

    def build(rows, job: Evolving) -> None:
        by_key = rows.key_by("key").window(windows.tumbling("10 seconds"), time="ts")
        job.slow(by_key.aggregate("totals", agg.count(), *more, **options))

    return build


def counted(job: Evolving) -> int:
    """The number of rows in the last result of each window."""
    rows = job.ledgers["out"].rows()
    last = {(row["key"], row["window_start"]): int(str(row["count"])) for row in rows}
    return sum(last.values())


@pytest.mark.parametrize(("before", "after"), [(None, "2 seconds"), ("3 seconds", None)])
def test_early_results_come_and_go(before: str | None, after: str | None) -> None:
    job = Evolving(UNALIGNED, seed=1)
    job.begin(counts(early=before, late_rows=True))
    job.go_on(counts(early=after, late_rows=True), workers=3)
    assert counted(job) == len(rows_of(TABLES))


def test_late_rows_are_for_another_pipeline() -> None:
    job = Evolving(UNALIGNED, seed=1)
    job.begin(counts())
    assert "late_rows was null, is true" in job.refused(counts(late_rows=True))


def test_an_aggregate_can_be_added_beside_late_rows() -> None:
    job = Evolving(OFTEN)
    job.begin(counts(late_rows=True))
    job.go_on(counts(agg.sum("value"), late_rows=True), "state-since:totals")
    assert counted(job) == len(rows_of(TABLES))
