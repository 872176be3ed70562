"""A source that lost rows refuses the start and names them, until a person accepts the loss."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from laminar_core.connectors.base import Gap
from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.gaps import GAPS_NAMED_MAX, judge_gaps, mended
from laminar_core.driver.recovery.sources import examine_sources
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject
from laminar_core.pipeline import Pipeline
from laminar_core.records.actor import Actor, ActorKind
from laminar_core.records.audit import parse_audit_record
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.world import ProcessKilledError

RETENTION = Gap("payments/3", "1287", ("1290", "2000"), 3, "retention")
RECREATED = Gap("payments/4", "12", None, None, "recreated")
FILE = Gap("a.log", "7", None, 20, "changed", "a.log is gone: put it back")
EARLIEST = parse_acceptance("source-gap:in=earliest")


def test_a_gap_is_a_range_and_a_number_of_rows():
    assert str(RETENTION) == (
        "payments/3 continues at 1287, and there is 1290 to 2000 (retention): 3 rows are lost"
    )
    assert str(RECREATED) == (
        "payments/4 continues at 12, and nothing is there (recreated): "
        "an unknown number of rows are lost"
    )
    assert str(FILE) == "a.log is gone: put it back"


def test_all_gaps_are_named_with_what_would_accept_them():
    problem = judge_gaps("in", [RETENTION, FILE], ()).problem
    assert (problem.code, problem.exit_code) == (ErrorCode.SOURCE_CHANGED, 2)
    for part in ("source in: payments/3", "a.log is gone", "--accept source-gap:in=earliest"):
        assert part in str(problem)
    many = judge_gaps("in", [RETENTION] * (GAPS_NAMED_MAX + 3), ()).problem
    assert "; and 3 more. To continue" in str(many)


def test_an_acceptance_is_for_this_source_and_says_what_is_lost():
    assert judge_gaps("other", [RETENTION], (EARLIEST,)).problem is not None
    verdict = judge_gaps("in", [RETENTION, RECREATED], (EARLIEST,))
    assert (verdict.problem, verdict.used) == (None, EARLIEST)
    assert verdict.accepted == (
        (
            "source-gap:in=earliest: payments/3 from 1287, 1290 to 2000 was there (retention), "
            "3 rows lost"
        ),
        (
            "source-gap:in=earliest: payments/4 from 12, nothing was there (recreated), "
            "an unknown number of rows lost"
        ),
    )
    assert judge_gaps("in", (), (EARLIEST,)).used is None


class TestMending:
    SOURCE = MemorySource([pa.table({"n": list(range(10))})] * 2, first_row=6)

    def splits(self) -> pa.Table:
        return MemorySource(self.SOURCE.splits).discovery().step({}).splits

    @pytest.mark.parametrize(("how", "offsets"), [("earliest", "6"), ("skip-split", "10")])
    def test_positions_are_behind_every_gap(self, how: str, offsets: str):
        gaps = self.SOURCE.gaps(self.splits())
        assert [(g.split, g.wanted, g.available, g.rows_lost) for g in gaps] == [
            ("0", "0", ("6", "10"), 6),
            ("1", "0", ("6", "10"), 6),
        ]
        by = parse_acceptance(f"source-gap:in={how}")
        assert mended(self.SOURCE, self.splits(), gaps, by).column("offset").to_pylist() == [
            offsets,
            offsets,
        ]

    def test_what_is_still_missing_afterwards_is_refused(self):
        gaps = self.SOURCE.gaps(self.splits())
        with pytest.raises(IncompatibleStateError, match="does not help: 1 continues at 0"):
            mended(self.SOURCE, self.splits(), gaps[:1], EARLIEST)

    def test_a_source_may_be_unable_to_continue(self):
        class Simple(MemorySource):
            mend = MemorySource.__mro__[1].mend

        source = Simple(self.SOURCE.splits, first_row=6)
        with pytest.raises(IncompatibleStateError, match="Simple cannot continue behind missing"):
            mended(source, self.splits(), source.gaps(self.splits()), EARLIEST)


class Job:
    """A job that is killed after a checkpoint in the middle of its only split."""

    ROWS = 300

    def __init__(self, workers: int = 1, kind: type[MemorySource] = MemorySource) -> None:
        self.source = kind([pa.table({"n": list(range(self.ROWS))})])
        self.ledger, p = Ledger(), Pipeline("gaps")
        read = p.source("in", self.source, rows_per_second=2_000)
        read.sink("out", LedgerSink(self.ledger))
        self.simulation = Simulation(p.plan(), parallelism=workers)
        self.simulation.when(CheckpointCompleted, self.simulation.kill_driver)
        with pytest.raises(ProcessKilledError):
            self.simulation.run()
        store = self.simulation.store
        manifest = store.manifests.read(store.manifests.ids()[-1])
        entries = [e for e in manifest.subtasks if e.operator_id == "in" and e.segments]
        tables = [store.parts.read_state(entries[0].segments[0])]
        self.next_row = int(tables[0].column("offset")[0].as_py())
        assert 0 < self.next_row < 200

    def forget(self, rows: int) -> None:
        """Delete everything before this row from the input."""
        object.__setattr__(self.source, "first_row", rows)

    def read(self) -> list[int]:
        return sorted(row["n"] for row in self.ledger.rows())

    def audited(self) -> dict:
        store = self.simulation.store
        keys = [key for key in store.objects.list(store.paths.audit) if "head" not in key]
        records = [parse_audit_record(store.objects.get(key)) for key in sorted(keys)]
        return next(r for r in reversed(records) if r.action == "restore")


ACCEPTED = {
    "accepted": (EARLIEST,),
    "actor": Actor("ada", ActorKind.PERSON, "the weekend is lost"),
}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gap_refuses_the_start_and_an_acceptance_continues_behind_it(workers: int):
    job = Job()
    job.forget(200)
    options = {"parallelism": workers, "take_over": True}
    with pytest.raises(IncompatibleStateError, match=rf"0 continues at {job.next_row}, and"):
        job.simulation.run(**options)
    assert job.simulation.run(**options, **ACCEPTED).outcome == "finished"
    assert job.read() == [*range(job.next_row), *range(200, 300)]
    record = job.audited()
    assert (record.actor, record.reason) == ("ada", "the weekend is lost")
    lost = 200 - job.next_row
    assert record.after["accepted"] == [
        (
            f"source-gap:in=earliest: 0 from {job.next_row}, 200 to 300 was there (retention), "
            f"{lost} rows lost"
        )
    ]


def test_an_acceptance_holds_until_the_start_has_its_first_checkpoint():
    job = Job()
    job.forget(200)
    job.simulation.when(GenerationStarted, lambda: job.simulation.kill_worker(0), 2)
    job.simulation.run(take_over=True, **ACCEPTED)
    starts = [e for e in job.simulation.events if isinstance(e, GenerationStarted)]
    assert len({e.generation for e in starts}) == 3
    assert job.read() == [*range(job.next_row), *range(200, 300)]


def test_an_acceptance_that_nothing_needs_is_refused():
    job = Job()
    with pytest.raises(ConfigurationError, match="nothing needs --accept source-gap:in=earliest"):
        job.simulation.run(take_over=True, **ACCEPTED)
    job.simulation.run(take_over=True)
    assert job.read() == list(range(300))


def test_a_dry_run_has_every_gap_accepted_or_not():
    job = Job()
    job.forget(200)
    store, plan = job.simulation.store, job.simulation.plan
    manifest = store.manifests.read(store.manifests.ids()[-1])
    refused = examine_sources(plan, store, manifest, ())
    allowed = examine_sources(plan, store, manifest, (EARLIEST,))
    for examined in (refused, allowed):
        assert [gap.rows_lost for gap in examined.reports[0].gaps] == [200 - job.next_row]
    assert (len(refused.problems), refused.used) == (1, [])
    assert (allowed.problems, allowed.used, len(allowed.accepted)) == ([], [EARLIEST], 1)
    assert allowed.splits["in"].column("offset").to_pylist() == ["200"]


def test_the_discovery_is_told_which_gaps_were_accepted():
    class Attentive(MemorySource):
        def leave_out(self, state: JsonObject, gaps: Sequence[Gap]) -> JsonObject:
            return {**state, "left out": [gap.split for gap in gaps]}

    job = Job(kind=Attentive)
    store, plan = job.simulation.store, job.simulation.plan
    manifest = store.manifests.read(store.manifests.ids()[-1])
    assert examine_sources(plan, store, manifest, ()).discovering["in"].found.state == {}
    job.forget(200)
    examined = examine_sources(plan, store, manifest, (EARLIEST,))
    assert examined.discovering["in"].found.state == {"left out": ["0"]}
