"""Lookups in the builder: what is added, modes and event time behind them, and what is refused."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.operators.lookups.table import LookupRows
from laminar_core.operators.lookups.versions import Life, VersionLookup
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Keyed
from laminar_core.testing.lookup_jobs import MemoryTable
from laminar_core.testing.memory_source import MemorySource

TIME = pa.timestamp("us")
TABLE = MemoryTable(pa.table({"code": ["EUR"], "rate": [1.0], "ts": [0]}))
ROWS = pa.table({"id": [1], "currency": ["EUR"], "ts": pa.array([0], TIME)})
VERSIONS = pa.table(
    {"code": ["EUR"], "rate": [1.0], "at": pa.array([0], TIME), "gone": [False], "n": [1]}
)


def streams() -> tuple[Pipeline, Stream, Stream]:
    p = Pipeline("p")
    rows = p.source("rows", MemorySource([ROWS])).watermark("ts")
    return p, rows, p.source("versions", MemorySource([VERSIONS])).watermark("at")


def operator_of(stream: Stream) -> LookupRows | VersionLookup:
    return stream._from.node.operator


ON = {"currency": "code"}


def test_a_lookup_in_a_table_needs_no_exchange_and_keeps_event_time() -> None:
    p = Pipeline("p")
    rows = p.source("rows", MemorySource([ROWS])).watermark("ts")
    found = rows.lookup(TABLE, "rates", on=ON)
    assert found.schema.names == ["id", "currency", "ts", "code", "rate", "ts_right"]
    assert found.event_time is not None
    assert found.event_time.default == "ts"
    chosen = found.lookup(TABLE, "again", on=ON, columns=["rate"], suffix="_2", how="inner")
    assert chosen.schema.names[-1] == "rate_2"
    chosen.sink("out", CollectSink())
    plan = p.plan()
    assert plan.edges == ()
    assert plan.descriptions()["rates"]["table"] == {"rows": 1}


def test_one_column_can_be_named_as_it_is() -> None:
    _, rows, _ = streams()
    assert rows.lookup(TABLE, "rates", on=ON, columns="rate").schema.names[3:] == ["rate"]


def test_a_lookup_in_versions_is_keyed_on_both_inputs() -> None:
    p, rows, versions = streams()
    found = rows.lookup(versions, "rates", on=ON, deleted="gone", ttl="1 minute")
    assert found.schema.names == ["id", "currency", "ts", "code", "rate", "at", "n"]
    operator = operator_of(found)
    assert isinstance(operator, VersionLookup)
    assert operator.life == Life(60_000_000, "ts", "at")
    counted = found.key_by("id").window(windows.tumbling("1 minute")).aggregate("n", agg.count())
    counted.sink("out", CollectSink())
    plan = p.plan()
    assert [edge.partitioning for edge in plan.inputs_of("rates")] == [
        Keyed(("currency",)),
        Keyed(("code",)),
    ]


def test_without_a_watermark_of_versions_no_window_is_behind_them() -> None:
    p = Pipeline("p")
    rows = p.source("rows", MemorySource([ROWS])).watermark("ts")
    versions = p.source("versions", MemorySource([VERSIONS]))
    found = rows.lookup(versions, "rates", on=ON, columns=["rate"])
    found.key_by("id").window(windows.tumbling("1 minute")).aggregate("n", agg.count()).sink(
        "out", CollectSink()
    )
    with pytest.raises(ConfigurationError, match="rows of versions come to it without a watermark"):
        p.plan()


def totals(p: Pipeline) -> Stream:
    rows = p.source("totals", MemorySource([ROWS, ROWS]))
    return rows.key_by("currency").aggregate("sums", agg.sum("id", name="total"))


def test_updates_stay_updates_if_each_row_has_one_result() -> None:
    p = Pipeline("p")
    updating = totals(p)
    for how in ("left", "inner"):
        found = updating.lookup(TABLE, f"rates-{how}", on=ON, how=how)
        assert found.updates == updating.updates
        assert found.updates.key == ("currency",)
    with pytest.raises(ConfigurationError, match="rates would leave rows behind"):
        updating.lookup(TABLE, "rates", on=ON, matches="all")
    by_total = MemoryTable(pa.table({"total": [1], "size": ["s"]}))
    assert updating.lookup(by_total, "sizes", on="total").updates == updating.updates
    with pytest.raises(ConfigurationError, match="sizes would leave rows behind"):
        updating.lookup(by_total, "sizes", on="total", how="inner")


def test_totals_are_versions_of_their_key_and_of_no_other() -> None:
    p = Pipeline("p")
    updating, rows = totals(p), p.source("rows", MemorySource([ROWS]))
    found = rows.lookup(updating, "sums-so-far", on="currency")
    assert found.schema.names == ["id", "currency", "ts", "total"]
    assert found.updates.mode == "append"
    with pytest.raises(
        ConfigurationError, match="replace earlier ones of currency, and are looked"
    ):
        rows.lookup(updating, "other", on={"id": "total"})
    with pytest.raises(ConfigurationError, match=r"call \.changes\(\) on the stream of totals"):
        updating.lookup(rows, "back", on="currency")


@pytest.mark.parametrize(
    ("describe", "problem"),
    [
        (lambda a, _: a.lookup(TABLE, "r", on="code"), "no column 'code'; there are: id"),
        (lambda a, _: a.lookup(TABLE, "r", on={"id": "code"}), "'id' is int64 on the left"),
        (lambda a, _: a.lookup(TABLE, "r", on=ON, ttl="1s"), "a table, which has no ttl"),
        (lambda a, _: a.lookup(TABLE, "r", on=ON, deleted="x"), "a table, which has no deleted"),
        (lambda a, _: a.lookup(TABLE, "r", on=ON, time="ts"), "a table, which has no time"),
        (lambda a, _: a.lookup(TABLE, "r", on=ON, columns=["x"]), "no column 'x'"),
        (lambda a, _: a.lookup(TABLE, "r", on=ON, suffix=""), "two columns would be called 'ts'"),
        (lambda a, _: a.lookup(TABLE, "no name", on=ON), "no name"),
        (lambda a, _: a.lookup("rates/", "r", on=ON), "r looks up in a table, such as"),
        (lambda a, b: a.lookup(b, "r", on=ON, matches="all"), "a stream, which has no matches"),
        (lambda a, b: a.lookup(b, "r", on=ON, time=("ts", "at")), "pass a ttl, or no time"),
        (lambda a, b: a.lookup(b, "r", on=ON, deleted="n"), "so it is bool, not int64"),
        (
            lambda a, b: a.lookup(b.select("code", "n"), "r", on=ON, ttl="1s"),
            "the right input of r",
        ),
        (lambda a, _: a.lookup(streams()[2], "r", on=ON), "streams of one pipeline"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    describe: Callable[[Stream, Stream], Stream], problem: str
) -> None:
    _, rows, versions = streams()
    with pytest.raises(ConfigurationError) as caught:
        describe(rows, versions)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
