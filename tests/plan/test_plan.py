"""A plan knows its parts, describes what state depends on, and refuses what cannot run."""

from dataclasses import replace

import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.stateless import SelectColumns
from laminar_core.plan.plan import (
    Broadcast,
    Edge,
    Forward,
    Keyed,
    Partitioning,
    Plan,
    Rebalance,
    SinkNode,
    SourceNode,
    Vertex,
)
from tests.plan.plans import KEEP, SCHEMA, SOURCE, TIME, small_plan, with_first, with_second


def test_a_plan_lists_its_parts_in_order() -> None:
    plan = small_plan()
    assert plan.operator_ids() == ["in", "keep", "time", "out"]
    assert [node.operator_id for node in plan.sources()] == ["in"]
    assert [node.operator_id for node in plan.sinks()] == ["out"]


def test_edges_are_found_from_both_ends() -> None:
    plan = small_plan()
    assert plan.outputs_of("in") == plan.inputs_of("time") == list(plan.edges)
    assert plan.inputs_of("in") == plan.outputs_of("time") == []


def test_schemas_are_followed_through_a_chain() -> None:
    vertex = Vertex("a", (SCHEMA,), operators=(TIME, SelectColumns("one", ("at",))))
    assert [inputs for _, inputs in vertex.operators_with_inputs()] == [(SCHEMA,), (SCHEMA,)]
    assert vertex.output_schema() == SCHEMA.remove(0)
    assert Vertex("b", (SCHEMA,)).output_schema() == SCHEMA


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (Keyed(("key", "at")), "in, keyed by key, at"),
        (Forward(), "in, forward"),
        (Rebalance(), "in, rebalanced"),
        (Broadcast(), "in, broadcast"),
    ],
    ids=str,
)
def test_the_first_operator_of_a_vertex_is_described_with_its_inputs(
    by: Partitioning, said: str
) -> None:
    """The fingerprint is of these words: other ones, and no older checkpoint would fit."""
    described = small_plan(by).descriptions()
    assert list(described) == ["in", "keep", "time", "out"]
    assert described["time"] == {**TIME.describe(), "inputs": [said]}
    assert described["in"] == SOURCE.describe()
    assert described["keep"] == KEEP.describe()
    assert described["out"] == CollectSink().describe()


def test_describing_a_plan_twice_gives_the_same() -> None:
    plan = small_plan()
    assert plan.descriptions() == plan.descriptions() == small_plan().descriptions()


def test_a_plan_that_can_run_is_accepted() -> None:
    small_plan().check()


def lacking(part: str) -> Plan:
    plan = small_plan()
    if part == "source":
        return with_first(plan, source=None)
    if part == "sink":
        return with_second(plan, sink=None)
    idle = Vertex("idle", (SCHEMA,), source=SourceNode("idle", SOURCE))
    return replace(plan, vertices=(*plan.vertices, idle))


def named_twice(operator_id: str) -> Plan:
    return with_second(small_plan(), sink=SinkNode(operator_id, CollectSink()))


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (lacking("source"), "at least one source and one sink"),
        (lacking("sink"), "at least one source and one sink"),
        (lacking("consumer"), "nothing consumes idle: end it in a sink"),
        (named_twice("keep"), "keep is used twice: give one of them another name"),
        (named_twice("in"), "in is used twice"),
        (Plan((), ()), "at least one source and one sink"),
    ],
    ids=["source", "sink", "consumer", "operator twice", "source twice", "nothing"],
)
def test_a_plan_that_cannot_run_is_refused(plan: Plan, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        plan.check()
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_two_edges_between_the_same_vertices_are_two_inputs() -> None:
    """A stream in union with itself."""
    again = Edge(1, "in", "time", Forward(), SCHEMA)
    plan = small_plan(edges=(*small_plan().edges, again))
    assert plan.descriptions()["time"]["inputs"] == ["in, keyed by key", "in, forward"]


def test_an_edge_knows_its_key_columns() -> None:
    (edge,) = small_plan(Keyed(("key", "at"))).edges
    assert edge.key_columns == ("key", "at")
    assert replace(edge, partitioning=Forward()).key_columns is None


def test_a_plan_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the text of a function at each checkpoint would cost a millisecond for each one."""
    plan, expected = small_plan(), KEEP.describe()
    before = plan.descriptions()
    before["another"] = {}
    monkeypatch.setattr(SelectColumns, "describe", lambda _: {"kind": "changed"})
    assert plan.descriptions()["keep"] == expected
    assert "another" not in plan.descriptions()
    assert small_plan().descriptions()["keep"] == {"kind": "changed"}
