"""The builder refuses early, in words, and knows the schema at every step."""

import json
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import Constant, DatagenSource, EventTime, Sequence
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.operators import agg, windows
from laminar_core.pipeline import CheckpointConfig, Pipeline, RunConfig, Stream, WindowedStream
from laminar_core.plan.plan import Keyed, SourceNode
from laminar_core.testing import Ledger, LedgerSink, Simulation

FIELDS = {"key": Sequence(), "at": EventTime(0, 1_000_000), "word": Constant("a")}
SOURCE = DatagenSource(FIELDS, rows=100)
MINUTE = windows.tumbling("1 minute")


def stream(**settings: Any) -> Stream:
    return Pipeline("p").source("in", SOURCE, **settings)


def source_node(**settings: Any) -> SourceNode:
    p = Pipeline("p")
    p.source("in", SOURCE, **settings).sink("out", CollectSink())
    (node,) = p.plan().sources()
    return node


def test_the_pipeline_of_the_documentation_builds(tmp_path) -> None:
    p = Pipeline("payments")
    (
        p.source("payments", SOURCE)
        .watermark("at", max_delay="1 minute")
        .key_by("key")
        .window(windows.tumbling("5 minutes"))
        .aggregate("per-merchant", agg.count(), agg.sum("key"))
        .sink("totals", ParquetSink(str(tmp_path / "out")))
    )
    plan = p.plan()
    assert plan.operator_ids() == [
        "payments",
        "watermark-1",
        "per-merchant-combine",
        "per-merchant",
        "totals",
    ]
    assert not (tmp_path / "out").exists(), "building creates nothing"


def test_functions_of_rows_and_batches_run_in_a_job() -> None:
    """A row becomes two or none, and a batch becomes two."""
    ledger, columns = Ledger(), pa.schema([("key", pa.int64()), ("half", pa.int8())])
    p = Pipeline("p")
    (
        p.source("in", SOURCE)
        .watermark("at")
        .map_rows(lambda row: row if row["key"] % 2 else None, SOURCE.schema())
        .flat_map(lambda batch: (batch.slice(n * 3, 3) for n in range(2)), schema=SOURCE.schema())
        .map_rows(lambda row: [{"key": row["key"], "half": n} for n in range(2)], columns)
        .sink("out", LedgerSink(ledger))
    )
    assert "map-rows-2" in p.plan().operator_ids()
    simulation = Simulation(p.plan(), seed=3)
    assert simulation.run().outcome == "finished"
    found = sorted((row["key"], row["half"]) for row in ledger.rows())
    keys = sorted({key for key, _ in found})
    assert found == [(key, half) for key in keys for half in range(2)]
    assert keys
    assert all(key % 2 for key in keys)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda s: s, ["key", "at", "word"]),
        (lambda s: s.select("at"), ["at"]),
        (lambda s: s.map(lambda batch: batch.rename_columns(["a", "b", "c"])), ["a", "b", "c"]),
        (lambda s: s.filter(pc.field("key") > 0), ["key", "at", "word"]),
        (lambda s: s.rebalance().select("key"), ["key"]),
        (
            lambda s: s.watermark("at").key_by("key").window(MINUTE).aggregate("n", agg.count()),
            ["key", "window_start", "window_end", "count"],
        ),
    ],
    ids=["source", "select", "map", "filter", "rebalance", "aggregate"],
)
def test_a_stream_knows_its_schema(build, names: list[str]) -> None:
    assert build(stream()).schema.names == names


def test_copies_are_looked_for_where_all_rows_of_a_producer_are() -> None:
    p = Pipeline("p")
    rows = p.source("in", SOURCE).map(lambda b: b.append_column("seq", b.column("key")))
    rows = rows.deduplicate(producer="word", generation="key", sequence="seq")
    assert rows.schema.names == ["key", "at", "word", "seq"]
    rows.sink("out", CollectSink())
    plan = p.plan()
    assert plan.operator_ids() == ["in", "map-1", "deduplicate-1", "out"]
    assert [edge.partitioning for edge in plan.edges] == [Keyed(("word",))]


def test_unnamed_operators_are_numbered_by_kind() -> None:
    p = Pipeline("p")
    rows = p.source("in", SOURCE).select("key", "at").filter(pc.field("key") > 0)
    rows.select("key", "at", name="mine").select("key").sink("out", CollectSink())
    assert p.plan().operator_ids() == ["in", "select-1", "filter-1", "mine", "select-2", "out"]


IMPOSSIBLE = {
    "a slash in the name": (lambda _: Pipeline("a/b"), "job name"),
    "no name": (lambda _: Pipeline(""), "job name"),
    "a blank in a source's name": (lambda _: Pipeline("p").source("a b", SOURCE), "operator id"),
    "a sink without name": (lambda s: s.sink("", CollectSink()), "operator id"),
    "a dot in an operator's name": (lambda s: s.select("key", name="a.b"), "operator id"),
    "an unknown column": (lambda s: s.select("kee"), "kee"),
    "words as event time": (lambda s: s.watermark("word"), "word"),
    "a delay in no unit": (lambda s: s.watermark("at", max_delay="soon"), "soon"),
    "no key": (lambda s: s.key_by(), "at least one column"),
    "no event time": (lambda s: s.key_by("key").window(MINUTE), r"call watermark\(column\) before"),
    "no aggregate": (lambda s: windowed(s, "key").aggregate("n"), "n aggregates nothing"),
    "an unknown key": (lambda s: windowed(s, "kee").aggregate("n", agg.count()), "kee"),
    "a union of schemas": (lambda s: s.union(s.select("at")), r"\['at'\] is not \['key', 'at'"),
    "a union of pipelines": (lambda s: s.union(stream()), "streams of one pipeline"),
    "a map that fails": (lambda s: s.map(lambda batch: batch.column("x")), "map 'map-1' failed"),
    "no input": (lambda _: Pipeline("p").source("in", ParquetSource("/nowhere")), "/nowhere"),
    "a pace of zero": (lambda _: stream(rows_per_second=0), "must be positive, not 0"),
    "a negative pace": (lambda _: stream(rows_per_second=-1.5), "must be positive"),
    "no number as pace": (lambda _: stream(rows_per_second=float("nan")), "must be positive"),
    "a drift of splits that are read in turn": (
        lambda _: stream(max_drift="1 minute"),
        "max_drift needs splits that are read side by side, and .* leave max_drift out",
    ),
    "idle at once": (lambda _: stream(idle_timeout="0 seconds"), "a duration must be positive"),
}


def windowed(s: Stream, key: str) -> WindowedStream:
    return s.watermark("at").key_by(key).window(MINUTE)


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_cannot_be_is_refused_where_it_is_written(what: str) -> None:
    build, problem = IMPOSSIBLE[what]
    with pytest.raises(ConfigurationError, match=problem) as caught:
        build(stream())
    assert "\n" not in str(caught.value)


class Stateless:
    def process(self, rows, keys, state, timers) -> None: ...


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda _: Pipeline(3), "the job name comes first and is text, not int"),
        (lambda s: s.filter("key > 1"), "filter 'filter-1' needs an expression, as in pc.field"),
        (lambda s: s.key_by("key").process("a", Stateless()), "'a' needs a method process, and"),
        (
            lambda s: s.key_by("key").process("a", print, schema=s.schema, state={"n": int}),
            "state 'n' of process 'a' must be a state such as ValueState",
        ),
        (lambda s: s._pipeline.run(None, checkpoint="store"), "must be CheckpointConfig"),
        (
            lambda s: s._pipeline.run(None, checkpoint=CheckpointConfig("store")),
            "spark must be a session, .*, not None",
        ),
        (
            lambda s: s._pipeline.run(None, checkpoint=CheckpointConfig("store"), run=5),
            "run must be a RunConfig, not 5",
        ),
    ],
)
def test_an_argument_of_another_type_is_refused_in_one_line(make, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        make(stream())


def test_windows_take_the_time_of_the_watermark_or_the_one_they_are_given() -> None:
    keyed = stream().key_by("key")
    assert keyed.window(MINUTE, time="at").aggregate("a", agg.count()).schema.names[0] == "key"
    with pytest.raises(ConfigurationError, match="word"):
        keyed.window(MINUTE, time="word").aggregate("b", agg.count())


@pytest.mark.parametrize("idle", ["2 seconds", timedelta(seconds=2)])
def test_a_source_is_paced_and_may_be_idle(idle) -> None:
    node = source_node(rows_per_second=10, idle_timeout=idle)
    assert (node.rows_per_second, node.idle_timeout_ms) == (10, 2000)
    assert (source_node().rows_per_second, source_node().idle_timeout_ms) == (None, None)


def test_the_number_of_key_groups_is_the_pipelines() -> None:
    p = Pipeline("p", max_parallelism=12)
    p.source("in", SOURCE).sink("out", CollectSink())
    assert p.plan().max_parallelism == 12


def test_a_pipeline_can_be_planned_while_it_grows() -> None:
    p = Pipeline("p")
    rows = p.source("in", SOURCE)
    rows.sink("out", CollectSink())
    before = p.plan()
    rows.select("key").sink("keys", CollectSink())
    assert before.operator_ids() == ["in", "out"]
    assert len(p.plan().operator_ids()) == 4


# --- with Spark ---------------------------------------------------------------------------------


def collecting(name: str = "numbers") -> Pipeline:
    p = Pipeline(name)
    rows = p.source("in", DatagenSource({"n": Sequence()}, rows=10_000))
    rows.rebalance().filter(pc.field("n") >= 5_000).sink("out", CollectSink())
    return p


@pytest.mark.spark
def test_run_returns_what_the_pipeline_collected(spark, tmp_path) -> None:
    config = CheckpointConfig(store=str(tmp_path), interval="100 milliseconds")
    result = collecting().run(spark, checkpoint=config, run=RunConfig(workers=2))
    assert (result.outcome, result.rows_in, result.rows_out) == ("finished", 10_000, 5_000)
    assert sorted(result.collected["out"].column("n").to_pylist()) == list(range(5_000, 10_000))
    assert result.collected["out"].schema == pa.schema([("n", pa.int64())])


@pytest.mark.spark
@pytest.mark.parametrize("workers", [0, -1, 129])
def test_a_number_of_workers_that_cannot_be_is_refused(spark, tmp_path, workers: int) -> None:
    config = CheckpointConfig(store=str(tmp_path))
    with pytest.raises(LaminarError, match=r"parallelism must be in 1\.\.128") as caught:
        collecting().run(spark, checkpoint=config, run=RunConfig(workers=workers))
    assert caught.value.code is ErrorCode.UNSUPPORTED_PARALLELISM
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_and_fractions_are_numbers() -> None:
    rows = Pipeline("p").source("in", SOURCE, rows_per_second=Fraction(1, 2))
    best = rows.key_by("key").top("best", np.int64(3), by="at")
    assert json.dumps(best.comes_from.node.operator.describe())
