"""An operator gets the inputs that it needs, and equal keys of all of them meet."""

from dataclasses import replace

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, Sequence
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.plan.inputs import require_input_count
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
from laminar_core.testing.input_jobs import NameInputs
from tests.plan.plans import KEEP, SCHEMA, SOURCE, small_plan, with_first, with_second

KEY, COUNT = Keyed(("key",)), Keyed(("count",))
MEETS = NameInputs("meet", ("left", "right"))
LEFT, RIGHT = pa.schema([("key", pa.int64())]), pa.schema([("count", pa.int32())])


def edge(number: int, by: Partitioning, schema: pa.Schema = LEFT, feeds: int | None = None) -> Edge:
    return Edge(
        number, f"in-{number}", "meet", by, schema, feeds=number if feeds is None else feeds
    )


def plan_of(*edges: Edge, inputs: tuple[pa.Schema, ...] = (LEFT, RIGHT)) -> Plan:
    """One source per edge, all of them into ``meet``."""
    read = DatagenSource({"key": Sequence()}, rows=10)
    sources = [Vertex(e.upstream, (e.schema,), source=SourceNode(e.upstream, read)) for e in edges]
    meet = Vertex("meet", inputs, operators=(MEETS,), sink=SinkNode("out", CollectSink()))
    return Plan((*sources, meet), edges)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (KEY, COUNT),
        (KEY, Broadcast()),
        (Broadcast(), COUNT),
        (Forward(), Rebalance()),
        (Broadcast(), Forward()),
    ],
    ids=str,
)
def test_two_inputs_are_divided_by_alike_keys_or_by_none(
    left: Partitioning, right: Partitioning
) -> None:
    plan_of(edge(0, left), edge(1, right, RIGHT)).check()


def test_several_edges_feed_one_input() -> None:
    plan = plan_of(edge(0, KEY), edge(1, KEY, feeds=0), edge(2, COUNT, RIGHT, feeds=1))
    plan.check()
    said = ["in-0, keyed by key", "in-1, keyed by key", "in-2, keyed by count, input 1"]
    assert plan.descriptions()["meet"]["inputs"] == said


def test_to_swap_two_inputs_is_another_pipeline() -> None:
    one = plan_of(edge(0, KEY), edge(1, KEY, feeds=1), inputs=(LEFT, LEFT))
    other = plan_of(edge(0, KEY, feeds=1), edge(1, KEY, feeds=0), inputs=(LEFT, LEFT))
    for plan in (one, other):
        plan.check()
    assert one.descriptions()["meet"] != other.descriptions()["meet"]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (
            plan_of(edge(0, KEY), edge(1, KEY, feeds=0)),
            r"meet needs 2 inputs \(left, right\) and is given 1",
        ),
        (
            plan_of(edge(0, KEY), edge(1, COUNT, RIGHT), inputs=(LEFT,)),
            r"meet needs 2 inputs \(left, right\) and is given 1",
        ),
        (
            plan_of(edge(0, KEY), edge(1, COUNT, RIGHT, feeds=2)),
            "in-1 feeds input 2 of meet, which has 2, counted from 0",
        ),
        (
            plan_of(edge(0, KEY), edge(1, Forward(), RIGHT)),
            (
                "meet is keyed by key on left and forward on right, so equal keys would not meet: "
                "call key_by on both, or broadcast one"
            ),
        ),
        (
            plan_of(edge(0, Rebalance()), edge(1, COUNT, RIGHT)),
            "meet is keyed by count on right and rebalanced on left",
        ),
        (
            plan_of(edge(0, KEY), edge(1, Keyed(("count", "count")), RIGHT)),
            (
                "meet needs as many key columns on every input, and left is keyed by key, right is "
                "keyed by count, count"
            ),
        ),
    ],
)
def test_other_inputs_are_refused(plan: Plan, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        plan.check()
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_an_edge_that_brings_other_rows_than_its_input_is_refused() -> None:
    plan = plan_of(edge(0, KEY), edge(1, KEY))
    with pytest.raises(
        ConfigurationError, match=r"in-1 sends \['key'\] to meet, and its right is"
    ) as caught:
        plan.check()
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


def test_a_key_column_that_is_not_there_is_refused() -> None:
    plan = plan_of(edge(0, KEY), edge(1, KEY, RIGHT))
    with pytest.raises(
        ConfigurationError, match="right of meet is keyed by key and has no column"
    ) as caught:
        plan.check()
    assert caught.value.code is ErrorCode.WRONG_SCHEMA


@pytest.mark.parametrize(
    ("left", "right", "problem"),
    [
        (pa.int64(), pa.string(), "key of left has integers and key of right has strings"),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), "decimals with 2 digits behind the point and"),
        (pa.int64(), pa.float64(), "key of left has integers and key of right has floats"),
        (
            pa.struct([("id", pa.int64())]),
            pa.struct([("id", pa.string())]),
            r"has structs of \(integers\) and key of right has structs of \(strings\)",
        ),
    ],
    ids=str,
)
def test_keys_whose_equal_values_have_other_hashes_are_refused(
    left: pa.DataType, right: pa.DataType, problem: str
) -> None:
    inputs = (pa.schema([("key", left)]), pa.schema([("key", right)]))
    plan = plan_of(edge(0, KEY, inputs[0]), edge(1, KEY, inputs[1]), inputs=inputs)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        plan.check()
    assert caught.value.code is ErrorCode.UNSUPPORTED_TYPE


def test_an_operator_with_several_inputs_is_the_first_of_its_vertex() -> None:
    behind_source = with_first(small_plan(), operators=(MEETS,))
    with pytest.raises(ConfigurationError, match="must be the first operator of its vertex, not b"):
        behind_source.check()
    behind_operator = with_second(small_plan(), operators=(replace(KEEP, operator_id="k"), MEETS))
    with pytest.raises(ConfigurationError, match="not behind k"):
        behind_operator.check()


def test_an_operator_with_one_input_has_no_second_one() -> None:
    other = Vertex("other", (SCHEMA,), source=SourceNode("other", SOURCE))
    plan = small_plan()
    edges = (*plan.edges, replace(plan.edges[0], edge_id=1, upstream="other", feeds=1))
    with pytest.raises(ConfigurationError, match="time needs one input and is given 2"):
        replace(plan, vertices=(other, *plan.vertices), edges=edges).check()


def test_inputs_are_counted() -> None:
    require_input_count(MEETS, 2)
    require_input_count(KEEP, 1)
    with pytest.raises(ConfigurationError, match="keep needs one input and is given 2"):
        require_input_count(KEEP, 2)
