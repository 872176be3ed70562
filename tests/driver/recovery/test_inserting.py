"""An operator gets between two others: the second one keeps its state, or the start is refused."""

from collections.abc import Callable

import pytest

from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.inserting import arranged, through
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Plan
from laminar_core.records.channel_entries import EdgeRef, InflightEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.testing.jobs import DELAY, payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from tests.driver.recovery.test_evolution import compared
from tests.driver.recovery.test_source_changes import checkpoint_of
from tests.records.manifests import file_ref


def plan_of(*between: Callable[[Stream], Stream], key: str = "key", other: bool = False) -> Plan:
    """Rows that are exchanged, and a count per key behind another exchange."""
    p = Pipeline("p")
    rows = p.source("a", MemorySource(payments(1, 5))).watermark("ts", max_delay=DELAY, name="time")
    rows = rows.rebalance().map(lambda batch: batch, name="first")
    second = p.source("b", MemorySource(payments(1, 5))).watermark("ts", max_delay=DELAY, name="u")
    for step in between:
        rows = step(rows)
    if other:
        rows = rows.union(second, name="all").rebalance().map(lambda batch: batch, name="behind")
    else:
        second.sink("rest", LedgerSink(Ledger(), "rest"))
    rows = rows.rebalance().map(lambda batch: batch, name="last")
    rows.key_by(key).aggregate("sums", agg.count()).sink("out", LedgerSink(Ledger(), "out"))
    return p.plan()


def checked(rows: Stream) -> Stream:
    return rows.rebalance().map(lambda batch: batch, name="checked")


def again(rows: Stream) -> Stream:
    return rows.rebalance().map(lambda batch: batch, name="again")


def keyed(rows: Stream) -> Stream:
    return rows.key_by("id").aggregate("each", agg.max("ts", name="ts"), agg.max("key", name="key"))


BEFORE = plan_of()


def flowing(checkpoint: CheckpointManifest, upstream: str, downstream: str) -> CheckpointManifest:
    entry = InflightEntry(
        **file_ref("checkpoints/0000000007/operators/last/0/inflight_0.buf").model_dump(
            include={"path", "size_bytes", "sha256"}
        ),
        offset=0,
        operator_id=downstream,
        direction="input",
        subtask_index=0,
        input_id=0,
        edge=EdgeRef(upstream=upstream, downstream=downstream, input_index=0),
        sender=0,
        receiver=0,
        event_count=1,
        row_count=5,
    )
    return checkpoint.model_copy(update={"inflight_data": (entry,)})


@pytest.mark.parametrize(
    "between", [(checked,), (keyed,), (checked, again)], ids=["one", "keyed", "two"]
)
def test_an_operator_behind_an_exchange_leaves_the_next_one_as_it_was(between) -> None:
    plan = plan_of(*between)
    found = arranged(checkpoint_of(BEFORE), plan)
    now = plan.descriptions()
    assert found.operators_description["last"] == now["last"]
    assert found.fingerprint["last"] == fingerprint_of(now["last"])
    (edge,) = through(found)
    assert (edge.upstream, edge.downstream) == (plan.inputs_of("last")[0].upstream, "last")
    assert list(mismatches(checkpoint_of(BEFORE), plan, 2)) == []
    line = f"last: its rows come through {edge.upstream} now"
    assert line in compared(checkpoint_of(BEFORE), plan).lines


def test_event_time_of_its_senders_begins_anew_and_its_own_stays() -> None:
    found = arranged(checkpoint_of(BEFORE), plan_of(checked))
    (entry, _) = [a for a in found.alignment if a.vertex_id == "last"]
    (before, _) = [a for a in checkpoint_of(BEFORE).alignment if a.vertex_id == "last"]
    assert before.channels
    assert entry.channels == ()
    assert entry.watermark_us == before.watermark_us
    assert arranged(checkpoint_of(BEFORE), BEFORE).alignment == checkpoint_of(BEFORE).alignment


def test_rows_on_the_way_would_pass_it_by() -> None:
    checkpoint = flowing(checkpoint_of(BEFORE), "first", "last")
    assert list(mismatches(checkpoint, BEFORE, 2)) == []
    (problem,) = mismatches(checkpoint, plan_of(checked), 2)
    assert "from first to last, and checked is between them now: these rows" in str(problem.error)
    assert "`laminar mode aligned`, then `laminar stop`" in str(problem.error)


@pytest.mark.parametrize(
    "plan",
    [plan_of(key="id"), plan_of(other=True)],
    ids=["other keys", "rows of another source as well"],
)
def test_what_gets_other_rows_stays_as_it_was(plan: Plan) -> None:
    checkpoint = checkpoint_of(BEFORE)
    assert list(through(arranged(checkpoint, plan))) == []
