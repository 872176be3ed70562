"""Updates are not appended in silence, and a key is replaced by that key only."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors import CollectSink, KafkaSink, ParquetSink
from laminar_core.connectors.base import Sink, accepted_by
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.operators.base import OutputMode
from laminar_core.operators.stateless import SelectColumns
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.updates import Updates
from laminar_core.testing import Ledger, LedgerSink, MemorySource

ROWS = pa.table({"k": ["a"], "n": [1], "ts": pa.array([0], pa.timestamp("us"))})
PARQUET = ParquetSink("build/never-opened")
BY_K = Updates("upsert", ("k",))


@dataclass(frozen=True)
class Table(ParquetSink):
    """A sink that replaces rows by a key."""

    accepts: frozenset[OutputMode] = frozenset({"upsert"})
    updates_by: tuple[str, ...] = ("k",)


def totals(p: Pipeline, name: str = "totals", keys: tuple[str, ...] = ("k",)) -> Stream:
    rows = p.source(f"{name}-in", MemorySource([ROWS])).watermark("ts", name=f"{name}-time")
    return rows.key_by(*keys).aggregate(name, agg.count())


def problem(stream: Stream, p: Pipeline, sink: Sink) -> str | None:
    stream.sink("out", sink)
    try:
        p.plan()
    except ConfigurationError as error:
        return str(error)
    return None


def test_totals_are_not_appended_in_silence() -> None:
    p = Pipeline("p")
    assert problem(totals(p), p, PARQUET) == (
        "sink out only appends, and rows of this stream replace earlier rows of their k: call"
        " .changes() before .sink() to append each change as a row of its own, use windows, or a"
        " sink that replaces rows by key"
    )


@pytest.mark.parametrize("sink", [CollectSink(), LedgerSink(Ledger()), Table("build/x")])
def test_a_sink_that_takes_updates_gets_them(sink: Sink) -> None:
    p = Pipeline("p")
    assert problem(totals(p), p, sink) is None


def test_changes_are_appended_on_request() -> None:
    p = Pipeline("p")
    assert problem(totals(p).changes().filter(pc.field("count") > 1), p, PARQUET) is None


def test_asking_for_changes_adds_no_operator() -> None:
    """Goal: a job that appended totals so far continues from its checkpoints."""
    plans = []
    for ask in (lambda s: s, lambda s: s.changes().changes()):
        p = Pipeline("p")
        ask(totals(p)).sink("out", CollectSink())
        plans.append(p.plan().descriptions())
    assert plans[0] == plans[1]


@pytest.mark.parametrize("how", [Stream.rebalance, Stream.broadcast, lambda s: s.select("k")])
def test_the_mode_is_followed_through_stateless_operators(how) -> None:
    for ask, refused in ((lambda s: s, True), (Stream.changes, False)):
        p = Pipeline("p")
        assert (problem(how(ask(totals(p))), p, PARQUET) is not None) is refused


def test_windows_over_totals_are_final() -> None:
    p = Pipeline("p")
    rows = totals(p, keys=("k", "ts"))
    window = rows.key_by("k").window(windows.tumbling("1 minute"), time="ts")
    assert problem(window.aggregate("w", agg.count()), p, PARQUET) is None


def test_a_sink_replaces_rows_by_the_key_of_the_stream() -> None:
    p = Pipeline("p")
    message = problem(totals(p, keys=("k", "n")), p, Table("build/x"))
    assert message is not None
    assert (
        "replaces rows by k, and rows of this stream replace earlier rows of their k, n" in message
    )


def test_a_topic_takes_updates_if_its_messages_have_a_key() -> None:
    assert accepted_by(KafkaSink("b:1", "t")) == {"append"}
    keyed = KafkaSink("b:1", "t", key=["k", "n"])
    assert accepted_by(keyed) == {"append", "upsert"}
    BY_K.check("out", KafkaSink("b:1", "t", key="k"))
    with pytest.raises(ConfigurationError, match="give the sink the same key"):
        BY_K.check("out", keyed)


def plain(p: Pipeline) -> Stream:
    return p.source("in", MemorySource([pa.table({"k": ["a"], "count": [1]})]))


def test_a_union_mixes_no_updates_with_rows() -> None:
    p = Pipeline("p")
    with pytest.raises(ConfigurationError, match=r"call \.changes\(\) on the stream") as caught:
        totals(p).union(plain(p))
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_a_union_of_changes_is_appended_and_one_of_updates_is_not() -> None:
    p, q = Pipeline("p"), Pipeline("q")
    assert problem(totals(p).changes().union(plain(p)), p, PARQUET) is None
    assert problem(totals(q, "a").union(totals(q, "b")), q, PARQUET) is not None


def test_updates_do_not_go_back_into_a_loop_of_rows() -> None:
    def body(again: Stream) -> tuple[Stream, Stream]:
        counts = again.key_by("k").aggregate("n", agg.sum("count", name="count"))
        return counts, counts

    with pytest.raises(ConfigurationError, match="loop retry cannot mix"):
        plain(Pipeline("p")).iterate(body, name="retry")


def test_a_key_whose_columns_have_gone_is_unknown() -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    keep = SelectColumns("s", ("k",))
    assert BY_K.behind(keep, schema, schema.remove(1)) == BY_K
    assert BY_K.behind(keep, schema, schema.remove(0)) == Updates("upsert")
    Updates("upsert").check("out", Table("build/x"))


# --- rows that come and go ------------------------------------------------------------------------


def changing(p: Pipeline, name: str = "totals", keys: tuple[str, ...] = ("k",)) -> Stream:
    rows = p.source(f"{name}-in", MemorySource([ROWS])).watermark("ts", name=f"{name}-time")
    return rows.key_by(*keys).aggregate(
        name, agg.count(), agg.max("ts", name="ts"), agg.max("n", name="n"), emit="retract"
    )


def test_a_row_that_goes_is_not_appended_in_silence() -> None:
    p, q = Pipeline("p"), Pipeline("q")
    message = problem(changing(p), p, PARQUET)
    assert message is not None
    assert "sink out takes no row away" in message
    assert problem(changing(q).changes(), q, PARQUET) is None


@pytest.mark.parametrize("sink", [CollectSink(), LedgerSink(Ledger())])
def test_a_sink_that_takes_all_gets_the_weights(sink: Sink) -> None:
    p = Pipeline("p")
    assert problem(changing(p), p, sink) is None
    (node,) = p.plan().sinks()
    assert node.updates == Updates("retract", ("k",))


def timed(stream: Stream) -> Stream:
    return stream.watermark("ts")


WINDOW = windows.tumbling("1 minute")
TAKES_NONE: dict[str, Callable[[Stream], object]] = {
    "windows": lambda s: s.key_by("k").window(WINDOW, time="ts").aggregate("w", agg.count()),
    "sessions": lambda s: s.key_by("k").session("1 s", time="ts").aggregate("w", agg.count()),
    "deduplicate": lambda s: s.deduplicate(producer="k", generation="count", sequence="n"),
    "join": lambda s: s.join(timed(changing(s._pipeline, "b")), on="k", within=("0 s", "1 s")),
    "loop": lambda s: s.iterate(lambda again: (again, again)),
    "process": lambda s: s.key_by("k").process("f", lambda *_: [], schema=s.schema),
}


@pytest.mark.parametrize("name", TAKES_NONE)
def test_an_operator_that_would_count_a_row_that_goes_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"a row that goes .* call \.changes\(\)") as said:
        TAKES_NONE[name](timed(changing(Pipeline("p"))))
    assert said.value.code is ErrorCode.INVALID_PIPELINE


KEEPS: dict[str, tuple[Callable[[Stream], Stream], tuple[str, ...]]] = {
    "filter": (lambda s: s.filter(pc.field("count") > 1), ("k",)),
    "select": (lambda s: s.select("count", "k"), ("k",)),
    "select-others": (lambda s: s.select("count"), ()),
    "map": (lambda s: s.map(lambda batch: batch), ()),
    "flat-map": (lambda s: s.flat_map(lambda batch: [batch]), ()),
    "map-rows": (lambda s: s.map_rows(lambda row: row, pa.schema([("k", pa.string())])), ()),
    "rebalance": (lambda s: s.rebalance(), ("k",)),
    "watermark": (lambda s: s.watermark("ts", name="again"), ("k",)),
    "union": (lambda s: s.union(changing(s._pipeline, "b")), ()),
}


@pytest.mark.parametrize("name", KEEPS)
def test_weights_pass_operators_without_state(name: str) -> None:
    """A key is known as long as nothing can repeat or change it."""
    ask, key = KEEPS[name]
    behind = ask(changing(Pipeline("p")))
    assert behind.updates == Updates("retract", key)
    assert behind.schema.names[-1] == "_weight"


def test_a_function_that_loses_the_weights_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lost loses the column _weight"):
        changing(Pipeline("p")).map(lambda batch: batch.select(["k"]), name="lost")


def test_rows_of_other_modes_are_not_mixed() -> None:
    p = Pipeline("p")
    rows = changing(p)
    with pytest.raises(ConfigurationError, match="cannot mix"):
        rows.union(rows.changes())


def test_totals_over_rows_that_come_and_go_come_and_go() -> None:
    counts = changing(Pipeline("p")).key_by("count").aggregate("n", agg.count(name="n"))
    assert counts.updates == Updates("retract", ("count",))
    with pytest.raises(ConfigurationError, match="leave out emit"):
        changing(Pipeline("p")).key_by("count").aggregate("n", agg.count(name="n"), emit="upsert")


@pytest.mark.parametrize(
    ("aggregate", "instead"),
    [
        (agg.approx_count_distinct("k"), "use count_distinct"),
        (agg.approx_percentile("count", 0.5), "use percentile"),
    ],
)
def test_an_aggregate_that_takes_nothing_back_is_refused(aggregate, instead: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot take back .* {instead}"):
        changing(Pipeline("p")).key_by("count").aggregate("n", aggregate)


def test_totals_that_nobody_takes_back_are_what_they_were() -> None:
    """Goal: jobs of before continue from their checkpoints."""
    p = Pipeline("p")
    totals(p).sink("out", CollectSink())
    (merge,) = [o for v in p.plan().vertices for o in v.operators if o.operator_id == "totals"]
    assert merge.describe() == {
        "kind": "running-aggregate",
        "keys": ["k"],
        "aggregates": [{"function": "count", "column": None, "name": "count"}],
    }
