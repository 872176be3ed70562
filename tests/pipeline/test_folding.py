"""Before a sink that deletes by key, rows that come and go become the row of each key."""

import json

import pyarrow as pa
import pytest

from laminar_core.connectors import CollectSink, KafkaSink, ParquetSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg
from laminar_core.operators.materialize import Materialize
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.pipeline.folding import folded
from laminar_core.plan.updates import Updates
from laminar_core.testing import MemorySource

TOPIC = KafkaSink("b:1", "t", key="k")


def totals(p: Pipeline, emit: str = "retract") -> Stream:
    rows = p.source("in", MemorySource([pa.table({"k": ["a"], "n": [1]})]))
    return rows.key_by("k").aggregate("totals", agg.count(), emit=emit)  # type: ignore[arg-type]


def test_a_topic_with_keys_gets_rows_by_key() -> None:
    p = Pipeline("p")
    totals(p).sink("out", TOPIC)
    plan = p.plan()
    (operator,) = [o for v in plan.vertices for o in v.operators if isinstance(o, Materialize)]
    assert operator == Materialize("out-rows", ("k",), ("k", "count"))
    (sink,) = plan.sinks()
    assert sink.updates == Updates("upsert", ("k",))
    assert sink.sink.deletes
    assert sink.sink.describe() == TOPIC.describe()
    json.dumps(plan.descriptions())


@pytest.mark.parametrize("sink", [CollectSink(), ParquetSink("build/x"), KafkaSink("b:1", "t")])
def test_other_sinks_stay_as_they_are(sink) -> None:
    rows = totals(Pipeline("p"))
    assert folded(rows, "out", sink) == (rows, sink)


def test_other_streams_stay_as_they_are() -> None:
    p, q = Pipeline("p"), Pipeline("q")
    for rows in (totals(p, "upsert"), totals(q).changes()):
        assert folded(rows, "out", TOPIC) == (rows, TOPIC)


def test_a_key_has_to_be_a_column() -> None:
    with pytest.raises(ConfigurationError, match="no column 'merchant'") as refused:
        totals(Pipeline("p")).sink("out", KafkaSink("b:1", "t", key="merchant"))
    assert refused.value.code is ErrorCode.WRONG_SCHEMA
