"""A stream with one more reader has other vertices; the checkpoint is read with those."""

import pytest

from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.rechaining import rechained, vertices_of
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.records.channel_entries import EdgeRef, InflightEntry
from laminar_core.records.manifest import fingerprint_of
from laminar_core.testing.jobs import DELAY, payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from tests.driver.recovery.test_source_changes import checkpoint_of
from tests.records.manifests import file_ref


def plan_of(*branches: str, rebalanced: bool = False) -> Plan:
    p = Pipeline("p")
    rows = p.source("a", MemorySource(payments(1, 5))).watermark("ts", max_delay=DELAY, name="time")
    if rebalanced:
        rows = rows.rebalance()
    for name in branches:
        totals = rows.key_by("key").aggregate(name, agg.count())
        totals.sink(f"{name}-out", LedgerSink(Ledger(), f"{name}-out"))
    return p.plan()


ONE, TWO = plan_of("sums"), plan_of("sums", "counts")


def test_a_chain_that_a_second_reader_cuts() -> None:
    before = checkpoint_of(ONE)
    assert list(vertices_of(before)) == ["a", "sums"]
    found = rechained(before, TWO)
    assert list(vertices_of(found)) == ["a", "sums-combine", "sums"]
    edges = [(e.upstream, e.downstream, e.partitioning) for e in found.edges]
    assert sorted(edges) == [
        ("a", "sums-combine", "forward"),
        ("sums-combine", "sums", "keyed"),
    ]
    now = TWO.descriptions()
    assert found.operators_description["sums"] == now["sums"]
    assert found.fingerprint["sums"] == fingerprint_of(now["sums"])
    assert list(mismatches(before, TWO, 2)) == []


def test_a_chain_that_goes_on_when_its_second_reader_is_gone() -> None:
    found = rechained(checkpoint_of(TWO), ONE)
    assert vertices_of(found)["a"] == ["a", "time", "sums-combine"]
    now = ONE.descriptions()
    assert found.operators_description["sums"] == now["sums"]
    assert found.operators_description["sums-combine"] == now["sums-combine"]
    assert "sums-combine" not in {entry.vertex_id for entry in found.alignment}
    assert list(mismatches(checkpoint_of(TWO), ONE, 2)) == []


def test_rows_in_flight_keep_their_edge() -> None:
    flowing = InflightEntry(
        **file_ref("checkpoints/0000000007/operators/sums/0/inflight_0.buf").model_dump(
            include={"path", "size_bytes", "sha256"}
        ),
        offset=0,
        operator_id="sums",
        direction="input",
        subtask_index=0,
        input_id=0,
        edge=EdgeRef(upstream="a", downstream="sums", input_index=0),
        sender=0,
        receiver=0,
        event_count=1,
        row_count=1,
    )
    before = checkpoint_of(ONE).model_copy(update={"inflight_data": (flowing,)})
    (found,) = rechained(before, TWO).inflight_data
    assert (found.edge.upstream, found.edge.downstream) == ("sums-combine", "sums")
    assert list(mismatches(before, TWO, 2)) == []


@pytest.mark.parametrize("plan", [ONE, TWO])
def test_the_same_chains_stay_as_they_are(plan: Plan) -> None:
    checkpoint = checkpoint_of(plan)
    assert rechained(checkpoint, plan) is checkpoint


def test_an_exchange_that_was_not_there_is_no_other_chain() -> None:
    """Rows go to other workers there, so what waits for whom is another matter."""
    checkpoint = checkpoint_of(ONE)
    exchanged = plan_of("sums", rebalanced=True)
    assert rechained(checkpoint, exchanged) is checkpoint
    assert list(mismatches(checkpoint, exchanged, 2))
