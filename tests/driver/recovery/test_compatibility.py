"""A pipeline continues a checkpoint only if everything that the checkpoint holds means the same."""

from dataclasses import dataclass, replace

import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.operators.stateless import SelectColumns
from laminar_core.operators.watermarks import AssignWatermarks
from laminar_core.plan.plan import (
    Broadcast,
    Edge,
    Forward,
    Keyed,
    Plan,
    Rebalance,
    SinkNode,
    SourceNode,
    Vertex,
)
from laminar_core.records.channel_entries import EdgeRef, InflightEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.testing.scenarios import loop_job
from tests.plan.plans import KEEP, SCHEMA, SOURCE, TIME, small_plan, with_first, with_second
from tests.records.manifests import file_ref, manifest, subtask


def check_compatible(manifest: CheckpointManifest, plan: Plan, parallelism: int) -> None:
    """Raise the gravest mismatch."""
    for mismatch in mismatches(manifest, plan, parallelism):
        raise mismatch.error


def checkpoint_of(plan: Plan, *with_state: str, parallelism: int = 2) -> CheckpointManifest:
    """A checkpoint of ``plan`` in which ``with_state`` kept something: rows, or what it says."""
    keeping = {
        "in": {"segments": (file_ref("checkpoints/0000000007/operators/in/state_0.arrow"),)},
        "time": {"properties": {"newest_us": 5}},
        "out": {"committables": ({"file": 1},)},
    }
    described = plan.descriptions()
    return manifest(
        parallelism=dict.fromkeys(described, parallelism),
        fingerprint={o: fingerprint_of(d) for o, d in described.items()},
        operators_description=described,
        max_parallelism=plan.max_parallelism,
        subtasks=tuple(
            subtask(o, n, **(keeping[o] if o in with_state and n == 0 else {}))
            for o in described
            for n in range(parallelism)
        ),
        alignment=(),
    )


ALL = ("in", "time", "out")
PLAN = small_plan()


@pytest.mark.parametrize("with_state", [(), ALL])
def test_the_same_pipeline_continues(with_state: tuple[str, ...]) -> None:
    check_compatible(checkpoint_of(PLAN, *with_state), small_plan(), 2)


OTHER_SOURCE = SourceNode("in", DatagenSource({"key": Sequence(1)}, rows=5))
LATER = (AssignWatermarks("time", "at", 1_000_000),)
OTHER_KEEP = (SelectColumns("keep", ("key",)),)


@pytest.mark.parametrize(
    ("kept", "plan", "problem"),
    [
        ("in", with_first(PLAN, source=OTHER_SOURCE), "in is not what it was in checkpoint 7: "),
        ("time", with_second(PLAN, operators=LATER), "max_delay_us was 0, is 1000000"),
        ("time", with_second(PLAN, operators=()), "checkpoint 7 has state of time, which"),
    ],
)
def test_an_operator_with_state_must_be_what_it_was(kept: str, plan: Plan, problem: str) -> None:
    with pytest.raises(IncompatibleStateError, match=problem) as caught:
        check_compatible(checkpoint_of(PLAN, kept), plan, 2)
    assert caught.value.code is ErrorCode.OPERATORS_CHANGED
    assert "run the pipeline as it was, or start a new job under another name" in str(caught.value)


@pytest.mark.parametrize(
    "plan",
    [
        with_first(PLAN, operators=OTHER_KEEP),
        with_first(PLAN, operators=()),
        with_second(PLAN, operators=LATER),
        with_first(PLAN, source=OTHER_SOURCE),
    ],
    ids=["other select", "no select", "other watermark", "other source"],
)
def test_an_operator_that_kept_nothing_may_change(plan: Plan) -> None:
    check_compatible(checkpoint_of(PLAN), plan, 2)


def test_an_operator_that_the_checkpoint_does_not_know_may_begin() -> None:
    more = with_first(PLAN, operators=(KEEP, SelectColumns("again", ("key",))))
    check_compatible(checkpoint_of(PLAN, "in"), more, 2)


@pytest.mark.parametrize(
    "plan",
    [
        small_plan(Rebalance()),
        small_plan(Keyed(("at",))),
        small_plan(edges=(*PLAN.edges, Edge(1, "in", "time", Forward(), SCHEMA))),
    ],
    ids=["another partitioning", "another key", "another input"],
)
@pytest.mark.parametrize("with_state", [(), ALL])
def test_inputs_must_be_what_they_were_also_of_operators_without_state(plan, with_state) -> None:
    """Event time is kept by the number of the channel: on other inputs it would be another's."""
    with pytest.raises(IncompatibleStateError, match=r"time is not what it was .* inputs was"):
        check_compatible(checkpoint_of(PLAN, *with_state), plan, 2)


def union_of(*names: str) -> Plan:
    """Sources of these names that flow into one vertex, in this order."""
    sources = tuple(Vertex(n, (SCHEMA,), source=SourceNode(n, SOURCE)) for n in names)
    union = Vertex("time", (SCHEMA,), operators=(TIME,), sink=SinkNode("out", CollectSink()))
    edges = tuple(Edge(i, n, "time", Forward(), SCHEMA) for i, n in enumerate(names))
    return Plan((*sources, union), edges)


def test_the_order_of_a_union_is_part_of_what_it_is() -> None:
    """Otherwise one source would go on from the event time of the other, and its rows be late."""
    checkpoint = checkpoint_of(union_of("a", "b"))
    check_compatible(checkpoint, union_of("a", "b"), 2)
    with pytest.raises(IncompatibleStateError, match=r"inputs was \[\"a, forward\", \"b, forward"):
        check_compatible(checkpoint, union_of("b", "a"), 2)


def test_the_order_of_independent_lines_in_a_program_does_not_matter() -> None:
    swapped = replace(PLAN, vertices=PLAN.vertices[::-1])
    check_compatible(checkpoint_of(PLAN, *ALL), swapped, 2)


@pytest.mark.parametrize("parallelism", [1, 3, 128])
@pytest.mark.parametrize("with_state", [(), ALL])
def test_another_number_of_workers_may_continue(parallelism: int, with_state) -> None:
    check_compatible(checkpoint_of(PLAN, *with_state), PLAN, parallelism)


def refusal(checkpoint: CheckpointManifest, plan: Plan, parallelism: int) -> str:
    check_compatible(checkpoint, plan, checkpoint.workers)
    with pytest.raises(IncompatibleStateError) as caught:
        check_compatible(checkpoint, plan, parallelism)
    assert caught.value.code is ErrorCode.UNSUPPORTED_PARALLELISM
    return str(caught.value)


def test_more_workers_than_key_groups_are_refused() -> None:
    assert "128 key groups, so at most as many workers can continue it, not 129" in refusal(
        checkpoint_of(PLAN), PLAN, 129
    )


@dataclass(frozen=True)
class SaysNothing(SelectColumns):
    """An operator that does not say how what it kept is divided."""


def test_an_operator_that_kept_something_has_to_say_how_it_is_divided() -> None:
    plan = with_second(PLAN, operators=(SaysNothing("time", ("key", "at")),))
    check_compatible(checkpoint_of(plan), plan, 3)
    assert (
        "was taken with 2 workers and cannot be continued with 3, because time does not declare "
        "how its state is redistributed (attribute redistribution): run with 2 workers"
    ) in refusal(checkpoint_of(plan, "time"), plan, 3)


def test_loops_keep_their_number_of_workers() -> None:
    plan = loop_job(2).plan
    assert "because rows in loop rounds stay with" in refusal(checkpoint_of(plan), plan, 1)


def test_rows_in_flight_where_no_barrier_overtakes_belong_to_nobody_else() -> None:
    plan = small_plan(Broadcast())
    edge = EdgeRef(upstream="in", downstream="time", input_index=0)
    checkpoint = _with_inflight(edge, plan)
    assert "rows in flight from in to time, which are broadcast" in refusal(checkpoint, plan, 1)


def test_another_number_of_key_groups_is_refused() -> None:
    with pytest.raises(IncompatibleStateError, match="set max_parallelism to 128"):
        check_compatible(checkpoint_of(PLAN), replace(PLAN, max_parallelism=64), 2)


def test_rows_in_flight_need_the_edge_that_they_were_on() -> None:
    edge = PLAN.edges[0]
    there = EdgeRef(upstream=edge.upstream, downstream=edge.downstream, input_index=0)
    check_compatible(_with_inflight(there), PLAN, 2)
    for gone in (
        there.model_copy(update={"upstream": "other"}),
        there.model_copy(update={"input_index": 1}),
    ):
        with pytest.raises(IncompatibleStateError, match="in flight") as caught:
            check_compatible(_with_inflight(gone), PLAN, 2)
        assert caught.value.code is ErrorCode.OPERATORS_CHANGED


def _with_inflight(edge: EdgeRef, plan: Plan = PLAN) -> CheckpointManifest:
    first = next(iter(plan.descriptions()))
    entry = InflightEntry(
        **file_ref(f"checkpoints/0000000007/operators/{first}/0/inflight_0.buf").model_dump(
            include={"path", "size_bytes", "sha256"}
        ),
        offset=0,
        operator_id=first,
        direction="input",
        subtask_index=0,
        input_id=0,
        edge=edge,
        sender=1,
        receiver=0,
        event_count=1,
        row_count=1,
    )
    return checkpoint_of(plan).model_copy(update={"inflight_data": (entry,)})
