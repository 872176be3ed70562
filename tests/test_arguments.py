"""Whatever is passed where a pipeline is built: it is taken, or refused in one line."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from laminar_core.arguments import is_names, other_argument, require_number, require_whole
from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.pipeline.enrich import EnrichOptions
from laminar_core.testing.memory_source import MemorySource
from tests.others import OTHERS, refusal

TABLE = pa.table({"k": ["a"], "v": [1], "ts": pa.array([0], pa.timestamp("us"))})
USUAL = {"name": "n", "function": lambda batch: batch, "column": "ts"}
NOT_FOR_PIPELINES = {"add", "name_for", "divided", "timed", "then", "run", "start", "explain"}
"""Methods between the parts of the builder, and those that run what was built."""


def stream() -> Stream:
    return Pipeline("p").source("in", MemorySource([TABLE])).watermark("ts")


def builders() -> dict[str, Any]:
    rows = stream()
    keyed = rows.key_by("k")
    window = keyed.window(windows.tumbling("1 minute"))
    session = keyed.session("1 minute")
    return {"Pipeline": Pipeline("p"), "Stream": rows, "KeyedStream": keyed,
            "WindowedStream": window, "SessionStream": session}  # fmt: skip


METHODS = [
    (kind, name)
    for kind, builder in builders().items()
    for name, method in inspect.getmembers(type(builder), inspect.isfunction)
    if not name.startswith("_") and name not in {*NOT_FOR_PIPELINES, "preview", "show"}
]


async def ask(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def calls(method: Callable[..., object]) -> Iterator[tuple[list[object], dict[str, object]]]:
    """Yield arguments for a method: one of another type at a time, and all of one other type."""
    parameters = list(inspect.signature(method).parameters.values())
    keywords = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]
    positional = [p for p in parameters if p.kind not in {p.KEYWORD_ONLY, p.VAR_KEYWORD}]
    usual: list[object] = [USUAL.get(p.name, "v") for p in positional]
    options: dict[str, object] = {}
    if any(p.kind == p.VAR_KEYWORD for p in parameters):
        keywords = list(EnrichOptions.__annotations__)
        usual, options = ["n", ask], {"schema": pa.schema([("w", pa.int64())])}
    schema = {"schema": pa.schema([("w", pa.int64())])} if "schema" in keywords else {}
    for other in OTHERS:
        yield [other] * len(usual), options
        yield from (([*usual[:n], other, *usual[n + 1 :]], schema) for n in range(len(usual)))
        yield from ((usual, {**schema, name: other}) for name in keywords)
        yield from (([*usual[:n], other, *usual[n + 1 :]], options) for n in range(len(usual)))
        yield from ((usual, {**options, name: other}) for name in keywords)


@pytest.mark.parametrize(("kind", "name"), METHODS, ids=[f"{k}.{n}" for k, n in METHODS])
def test_any_other_argument_is_taken_or_refused_in_one_line(kind: str, name: str) -> None:
    needs = inspect.signature(getattr(builders()[kind], name)).parameters.values()
    needed = {p.name: None for p in needs if p.kind == p.KEYWORD_ONLY and p.default is p.empty}
    for arguments, keywords in calls(getattr(builders()[kind], name)):
        method = getattr(builders()[kind], name)
        assert "\n" not in refusal(method, *arguments, **{**needed, **keywords})


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda _: Pipeline("p").source("in", "payments.parquet"),
         "source in: give it a source, such as ParquetSource(\"folder\"), not 'payments.parquet'"),
        (lambda s: s.sink("out", "folder"),
         "sink out: give it a sink, such as ParquetSink(\"folder\"), not 'folder'"),
        (lambda s: s.sink("out", CollectSink), "sink out: give it a sink, such as ParquetSink"),
        (lambda s: s.key_by("k").aggregate(agg.sum("v")),
         "the operator id comes first and is text, not Aggregate"),
        (lambda s: s.key_by("k").aggregate("n", "sum"),
         "n takes aggregates, such as agg.sum(\"amount\"), not 'sum'"),
        (lambda s: s.key_by("nope"), "no column 'nope'; there are: k, v, ts"),
        (lambda s: s.key_by(["k"]), "no column ['k']; there are: k, v, ts"),
        (lambda s: s.union(s.key_by("k")), "a union takes streams, not <"),
        (lambda s: s.join("other", on="k", within=("0 s", "1 s")),
         "join-1: the other one must be a stream, not 'other'"),
        (lambda s: s.map(lambda b: b, schema={"v": "int64"}),
         "the schema of map-1 must be made as in pa.schema("),
        (lambda s: s.key_by("k").top("n", 1, by=None), "n: by must be columns, as in ("),
        (lambda s: s.enrich("n", len), "the schema of n must be made as in pa.schema("),
    ],
)  # fmt: skip
def test_a_frequent_mistake_is_refused_where_it_is_made(
    build: Callable[[Stream], object], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        build(stream())
    assert str(refused.value).startswith(problem)


def test_a_large_argument_is_not_shown_whole() -> None:
    table = pa.table({f"column_{n}": [n] for n in range(100)})
    said = str(other_argument(table, "a sink"))
    assert len(said) < 100
    assert "\n" not in said


@pytest.mark.parametrize("other", [True, 1.0, float("nan"), "1", None, 0])
def test_a_number_of_rows_is_whole_and_large_enough(other: object) -> None:
    with pytest.raises(ConfigurationError, match=r"rows must be (a whole number|at least 1), not"):
        require_whole(other, 1, "rows")


@pytest.mark.parametrize("other", [float("nan"), -0.5, "1", None])
def test_a_number_is_large_enough(other: object) -> None:
    with pytest.raises(ConfigurationError, match="pause_ms must be at least 0, not"):
        require_number(other, 0, "pause_ms")


def test_names_are_several_texts() -> None:
    assert is_names(["a", "b"])
    assert not any(map(is_names, ("ab", b"ab", [], [1], {"a"}, None)))
