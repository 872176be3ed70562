"""A drawn graph becomes vertices and edges; operators are chained if nothing is between them."""

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import DatagenSource, EventTime, Sequence
from laminar_core.connectors.formats.letters import LETTERS_SCHEMA
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.operators.base import JsonObject, SideOutputs
from laminar_core.operators.stateless import SelectColumns
from laminar_core.pipeline import LettersTo, Pipeline, Stream
from laminar_core.plan.plan import Forward, Plan, Rebalance, SideOutput
from laminar_core.testing.input_jobs import NameInputs
from laminar_core.testing.memory_source import MemorySource
from tests.codec.edited_program import change, loaded, written

FIELDS = {"key": Sequence(), "at": EventTime(0, 1_000_000)}
SOURCE = DatagenSource(FIELDS, rows=100)


def source(p: Pipeline, name: str = "in") -> Stream:
    return p.source(name, SOURCE)


def spell(plan: Plan) -> str:
    """One line a vertex, its inputs in front."""
    lines = []
    for vertex in plan.vertices:
        edges = plan.inputs_of(vertex.vertex_id)
        inputs = [f"({edge.upstream}, {edge.partitioning})" for edge in edges]
        lines.append(" | ".join([*inputs, " ".join(vertex.operator_ids())]))
    return "\n".join(lines)


def chained(p: Pipeline) -> None:
    source(p).select("key", "at").watermark("at").sink("out", CollectSink())


def keyed(p: Pipeline) -> None:
    counts = source(p).watermark("at").key_by("key").window(windows.tumbling("1 minute"))
    counts.aggregate("per-key", agg.count()).select("key").sink("out", CollectSink())


def rebalanced(p: Pipeline) -> None:
    source(p).rebalance().select("key", "at").sink("out", CollectSink())


def broadcast_to_a_sink(p: Pipeline) -> None:
    source(p).broadcast().sink("out", CollectSink())


def two_consumers(p: Pipeline) -> None:
    rows = source(p)
    rows.select("key").sink("keys", CollectSink())
    rows.sink("rows", CollectSink())


def union(p: Pipeline) -> None:
    source(p, "a").union(source(p, "b").rebalance()).sink("out", CollectSink())


def union_with_itself(p: Pipeline) -> None:
    rows = source(p)
    rows.union(rows).sink("out", CollectSink())


def side_by_side(p: Pipeline) -> None:
    source(p, "a").sink("a-out", CollectSink())
    source(p, "b").sink("b-out", CollectSink())


@pytest.mark.parametrize(
    ("draw", "plan"),
    [
        (chained, "in select-1 watermark-1 out"),
        (keyed, "in watermark-1 per-key-combine\n(in, keyed by key) | per-key select-1 out"),
        (rebalanced, "in\n(in, rebalanced) | select-1 out"),
        (broadcast_to_a_sink, "in\n(in, broadcast) | out"),
        (two_consumers, "in\n(in, forward) | select-1 keys\n(in, forward) | rows"),
        (union, "a\nb\n(a, forward) | (b, rebalanced) | union-1 out"),
        (union_with_itself, "in\n(in, forward) | (in, forward) | union-1 out"),
        (side_by_side, "a a-out\nb b-out"),
    ],
)
def test_trace(draw, plan: str) -> None:
    p = Pipeline("p")
    draw(p)
    assert spell(p.plan()) == plan


def abreast(p: Pipeline) -> Stream:
    table = pa.table({"key": [1], "at": pa.array([0], pa.timestamp("us"))})
    return p.source("in", MemorySource([table], abreast=True))


@pytest.mark.parametrize("order", ["raw first second", "first raw second", "second first raw"])
def test_event_time_of_splits_begins_in_the_chain_of_their_source(order: str) -> None:
    """Others that read the source's rows, or write another watermark, come behind it.

    They get no watermarks of it, and the order of the program decides nothing.
    """
    p = Pipeline("p")
    rows = abreast(p).select("key", "at", name="pick")
    for reader in order.split():
        read = rows if reader == "raw" else rows.watermark("at", name=reader)
        read = read.select("key", name="keys") if reader == "first" else read
        read.sink(f"{reader}-out", CollectSink())
    plan = p.plan()
    assert sorted(spell(plan).splitlines()) == [
        "(in, forward) | keys first-out",
        "(in, forward) | raw-out",
        "(in, forward) | second second-out",
        "in pick first",
    ]
    assert {e.downstream: e.timed for e in plan.edges} == {
        "keys": True,
        "raw-out": False,
        "second": False,
    }


def test_a_watermark_behind_another_one_does_not_reach_other_readers_of_that_one() -> None:
    p = Pipeline("p")
    first = abreast(p).watermark("at", name="first")
    first.watermark("at", name="second").sink("out", CollectSink())
    first.sink("other", CollectSink())
    plan = p.plan()
    assert spell(plan) == "in first\n(in, forward) | second out\n(in, forward) | other"
    assert all(e.timed for e in plan.edges)


def test_a_vertex_is_named_by_what_it_does_and_not_by_when_it_was_written() -> None:
    """Event time is restored by this name: swapped lines must not swap it."""
    p = Pipeline("p")
    source(p, "b").sink("b-out", CollectSink())
    source(p, "a").sink("a-out", CollectSink())
    swapped = {vertex.vertex_id: vertex for vertex in p.plan().vertices}
    p = Pipeline("p")
    side_by_side(p)
    assert swapped == {vertex.vertex_id: vertex for vertex in p.plan().vertices}


def test_an_edge_has_the_schema_of_the_rows_on_it() -> None:
    p = Pipeline("p")
    source(p).select("at", "key").rebalance().select("key").sink("out", CollectSink())
    (edge,) = p.plan().edges
    assert edge.schema == pa.schema([SOURCE.schema().field(name) for name in ("at", "key")])
    assert p.plan().vertices[1].input_schemas == (edge.schema,)


def test_edges_are_numbered_densely() -> None:
    p = Pipeline("p")
    union(p)
    two_consumers(p)
    assert [edge.edge_id for edge in p.plan().edges] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["in", "out"])
def test_a_name_that_is_used_twice_is_refused_also_between_vertices(name: str) -> None:
    p = Pipeline("p")
    source(p).rebalance().sink("out", CollectSink())
    source(p, "in" if name == "in" else "other").sink(
        "out" if name == "out" else "elsewhere", CollectSink()
    )
    with pytest.raises(ConfigurationError, match=f"{name} is used twice"):
        p.plan()


class TestSeveralInputs:
    """Streams are given to one operator as numbered inputs."""

    NAMES = NameInputs("meet", ("left", "right"))

    def test_each_stream_is_an_input_in_the_order_in_which_they_are_given(self) -> None:
        p = Pipeline("p")
        left, right = source(p, "a").select("key", "at"), source(p, "b").select("key")
        met = left.key_by("key").connect(right.key_by("key"), operator=self.NAMES)
        met.select("input").sink("out", CollectSink())
        plan = p.plan()
        assert [(e.upstream, e.feeds, str(e.partitioning)) for e in plan.edges] == [
            ("a", 0, "keyed by key"),
            ("b", 1, "keyed by key"),
        ]
        vertex = plan.vertices[-1]
        assert list(vertex.operator_ids()) == ["meet", "select-3", "out"]
        assert vertex.input_schemas == (left.schema, right.schema)
        assert met.schema.names == ["key", "at", "input"]
        assert met.event_time is None

    def test_a_stream_can_be_connected_with_itself_and_with_broadcast_rows(self) -> None:
        p = Pipeline("p")
        rows = source(p)
        three = NameInputs("meet", ("one", "two", "all"))
        rows.connect(rows.rebalance(), rows.broadcast(), operator=three).sink("out", CollectSink())
        described = p.plan().descriptions()["meet"]["inputs"]
        assert described == ["in, forward", "in, rebalanced, input 1", "in, broadcast, input 2"]

    def test_a_side_output_can_be_one_of_them(self) -> None:
        p = Pipeline("p")
        rows = p.source("in", SOURCE, on_bad_row="letters")
        rows.connect(rows.side("letters"), operator=self.NAMES).sink("out", CollectSink())
        edges = p.plan().edges
        assert [e.side for e in edges] == [None, SideOutput("in", "letters")]

    def test_an_operator_of_a_single_input_of_several_is_not_chained(self) -> None:
        p = Pipeline("p")
        source(p).connect(operator=NameInputs("meet", ("only",))).sink("out", CollectSink())
        assert spell(p.plan()) == "in\n(in, forward) | meet out"

    def test_what_cannot_meet_is_refused(self) -> None:
        p = Pipeline("p")
        rows = source(p)
        with pytest.raises(ConfigurationError, match=r"meet needs 2 inputs .* and is given 3"):
            rows.connect(rows, rows, operator=self.NAMES)
        with pytest.raises(ConfigurationError, match="meet is of streams of one pipeline, not of"):
            rows.connect(source(Pipeline("q")), operator=self.NAMES)
        totals = rows.key_by("key").aggregate("totals", agg.count())
        with pytest.raises(ConfigurationError, match=r"meet would take a row .* call .changes\(\)"):
            rows.connect(totals, operator=self.NAMES)
        rows.connect(totals.changes(), operator=self.NAMES)
        rows = source(p := Pipeline("p"))
        rows.key_by("key").connect(rows, operator=self.NAMES).sink("out", CollectSink())
        with pytest.raises(ConfigurationError, match="keyed by key on left and forward on right"):
            p.plan()


def test_rows_that_nobody_takes_are_refused() -> None:
    p = Pipeline("p")
    source(p, "used").sink("out", CollectSink())
    source(p, "unused").select("key")
    with pytest.raises(ConfigurationError, match="nothing consumes unused: end it in a sink"):
        p.plan()


class TestSideOutputs:
    """A side output is an edge of its own, and does not break the chain of the main rows."""

    def test_letters_leave_the_source_beside_a_chain_that_ends_in_a_sink(self) -> None:
        p = Pipeline("p")
        rows = p.source("in", SOURCE, on_bad_row=LettersTo("bad", CollectSink()))
        rows.select("key").sink("out", CollectSink())
        plan = p.plan()
        (edge,) = plan.edges
        assert [list(v.operator_ids()) for v in plan.vertices] == [
            ["in", "select-1", "out"],
            ["bad"],
        ]
        assert (edge.upstream, edge.downstream) == ("in", "bad")
        assert (edge.side, edge.partitioning) == (SideOutput("in", "letters"), Rebalance())
        assert (edge.schema,) == plan.vertices[1].input_schemas == (LETTERS_SCHEMA,)
        assert plan.descriptions()["bad"]["inputs"] == ["in, letters of in, rebalanced"]

    def test_letters_can_be_worked_on(self) -> None:
        p = Pipeline("p")
        rows = p.source("in", SOURCE, on_bad_row="letters")
        rows.sink("out", CollectSink())
        rows.side("letters").select("value").sink("bad", CollectSink())
        (edge,) = p.plan().edges
        assert (edge.downstream, edge.partitioning) == ("select-1", Forward())

    def test_an_operator_declares_its_side_outputs(self) -> None:
        aside = pa.schema([("why", pa.string())])

        class Sorts(SelectColumns):
            def side_outputs(self, input_schema: pa.Schema) -> dict[str, pa.Schema]:
                del input_schema
                return {"odd": aside}

        p = Pipeline("p")
        operator = Sorts("sort", ("key",))
        assert isinstance(operator, SideOutputs)
        sorted_rows = source(p).then(operator)
        assert sorted_rows.side("odd").schema == aside
        assert sorted_rows.side("odd").broadcast().rebalance().schema == aside
        with pytest.raises(ConfigurationError, match="sort has no side output 'even'; it has: odd"):
            sorted_rows.side("even")
        with pytest.raises(ConfigurationError, match="sort has no side output"):
            sorted_rows.side("odd").side("odd")

    def test_letters_that_no_stream_reads_are_refused(self) -> None:
        p = Pipeline("p")
        p.source("in", SOURCE, on_bad_row="letters").sink("out", CollectSink())
        with pytest.raises(ConfigurationError, match="nothing reads the letters of in"):
            p.plan()

    def test_rows_that_no_stream_reads_are_refused_although_the_letters_are_read(self) -> None:
        p = Pipeline("p")
        p.source("in", SOURCE, on_bad_row=LettersTo("bad", CollectSink()))
        with pytest.raises(ConfigurationError, match="nothing consumes in: end it in a sink"):
            p.plan()

    def test_without_letters_there_is_no_such_side_output(self) -> None:
        with pytest.raises(ConfigurationError, match="in has no side output 'letters'"):
            source(Pipeline("p")).side("letters")


def test_a_union_of_one_stream_is_a_vertex_that_others_can_join() -> None:
    p = Pipeline("p")
    source(p, "a").union(name="all").sink("out", CollectSink())
    assert spell(p.plan()) == "a\n(a, forward) | all out"


def test_a_plan_is_described_as_the_code_that_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby plans at its start and again when it takes over; a file may change in between."""
    file = written(tmp_path)
    program = loaded(file, monkeypatch)
    first = described(program)
    change(file)
    assert described(program) == first
    assert described(loaded(file, monkeypatch)) != first


def described(program: ModuleType) -> dict[str, JsonObject]:
    p = Pipeline("p")
    source(p).map(program.keep).map(program.made()).sink("out", CollectSink())
    return p.plan().descriptions()


class Nameless(CollectSink):
    def describe(self) -> JsonObject:
        return {"number": int("two")}


def test_what_cannot_be_described_is_refused_by_its_name() -> None:
    p = Pipeline("p")
    source(p).sink("out", Nameless())
    with pytest.raises(
        ConfigurationError, match=r"'out' cannot be described: ValueError"
    ) as caught:
        p.plan()
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
    assert "\n" not in str(caught.value)
