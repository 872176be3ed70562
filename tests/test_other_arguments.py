"""Whatever is passed to what users import is taken, or refused in one line."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from laminar_core import connectors, operators, pipeline
from laminar_core.connectors import (
    AvroFormat,
    Constant,
    CsvFormat,
    FileSource,
    JsonFormat,
    KafkaConnection,
    KafkaSink,
    KafkaSource,
    KnownSchemas,
    LookupTable,
)
from laminar_core.errors import ConfigurationError
from laminar_core.operators import agg, windows
from laminar_core.options import Options
from laminar_core.spark import OwnSession, open_session
from laminar_core.store import open_job
from tests.others import OTHERS, parameters, refusal

COLUMNS = pa.schema([("v", pa.int64())])
OF_LAMINAR = {
    "ConnectedStreams", "JobResult", "KeyedLists", "KeyedMaps", "KeyedStream", "KeyedValues",
    "SavepointWriter", "SessionStream", "StagedRows", "StagingArea", "Stream", "StreamingJob",
    "WindowedStream", "first_splits", "hash_columns", "key_groups_of", "outlook_of",
    "owned_key_groups", "parts_after", "split_table",
}  # fmt: skip
"""Laminar makes them; or a connector, an operator or its test calls them with Laminar's objects."""
USUAL = {
    "connection": "broker:9092", "bootstrap": "broker:9092", "topic": "t", "topics": "t",
    "columns": COLUMNS, "format": JsonFormat(), "url": "http://registry",
    "schemas": KnownSchemas({}), "fields": {"k": Constant(1)}, "find": lambda: pa.table({}),
    "source": FileSource("folder", JsonFormat(), COLUMNS), "fraction": 0.5,
    "type": pa.int64(), "key_type": pa.int64(), "size": "1 minute", "slide": "1 minute",
    "step": "1 minute", "start_us": 0, "low": 0, "high": 1, "count": 1, "attempts": 1,
    "failures_max": 1, "interval_ms": 1,
}  # fmt: skip
"""Values of arguments without a default; ``v`` for all others."""


def is_called(thing: object) -> bool:
    is_protocol = getattr(thing, "_is_protocol", False)
    return inspect.isfunction(thing) or (inspect.isclass(thing) and not is_protocol)


def public(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    names = getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    for name in names:
        thing = getattr(module, name)
        if is_called(thing) and name not in OF_LAMINAR:
            yield name, thing


CALLED = dict(
    (*public(connectors), *public(pipeline), *public(operators), *public(agg)),
    **{name: getattr(windows, name) for name in ("tumbling", "sliding", "cumulative")},
    **{"LookupTable.parquet": LookupTable.parquet},
)


@pytest.mark.parametrize("name", CALLED)
def test_any_other_argument_is_taken_or_refused_in_one_line(name: str) -> None:
    function = CALLED[name]
    if isinstance(function, type) and issubclass(function, Options):
        fields = function.model_fields
        needed = [each for each, info in fields.items() if info.is_required()]
    else:
        fields = parameters(function)
        needed = [each for each, info in fields.items() if info.default is info.empty]
    usual = {each: USUAL.get(each, "v") for each in needed}
    for other in OTHERS:
        for each in fields:
            assert "\n" not in refusal(function, **{**usual, each: other})
        assert "\n" not in refusal(function, **dict.fromkeys(needed, other))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: KafkaSource("b:1", "t", COLUMNS, format=JsonFormat),
         "format must be json, arrow, raw or an object such as JsonFormat(), not <class"),
        (lambda: KafkaSource("b:1", "t", COLUMNS, format=None), "format must be json, arrow, raw"),
        (lambda: KafkaSource(None, "t", COLUMNS),
         "connection must be text such as broker:9092, or a KafkaConnection, not NoneType"),
        (lambda: KafkaSource("b:1", "t", COLUMNS, start={5: 1}),
         'start must be earliest, latest, a time or offsets such as {"payments/0": 5}, not {5: 1}'),
        (lambda: KafkaSource("b:1", "t", COLUMNS, metadata=5),
         'metadata must be names, as in ("key", "offset"), not 5'),
        (lambda: KafkaSink("b:1", "t", key=5), "key must be one or more names of columns, not 5"),
        (lambda: KafkaSink("b:1", "t", JsonFormat), "format must be json, arrow, raw or an object"),
        (lambda: KafkaConnection(5), "bootstrap must be text such as broker:9092, not 5"),
        (lambda: KafkaConnection("b:1", settings=None),
         "settings must be texts by name, as in {"),
        (lambda: JsonFormat(unknown_fields="skip"),
         "unknown_fields must be one of ignore, refuse, not 'skip'"),
        (lambda: JsonFormat(message_bytes_max="1MiB"), "message_bytes_max must be a whole number"),
        (lambda: AvroFormat("http://registry"), "schemas must be a SchemaRegistry(url) or Known"),
        (lambda: CsvFormat("id,amount"), 'columns must be names, as in ["id", "amount"], not'),
        (lambda: open_session(5, "job"), "master must be text, such as local[2], not 5"),
        (lambda: open_session("local[1]", None), "app_name must be text, not None"),
        (lambda: open_session("local[1]", "job", ["a=b"]), "conf must be settings, as in {"),
        (lambda: OwnSession(None), "OwnSession takes a function that opens a session, not None"),
        (lambda: open_job(Path("store"), "job"), "a store must be text, such as checkpoints or"),
        (lambda: CsvFormat(delimiter=None), "a delimiter is one ASCII character"),
        (lambda: pipeline.FixedDelay("3"), "attempts must be at least 0, not '3'"),
        (lambda: agg.sum("v", name=5), "the name of a result must be text, not 5"),
    ],
)  # fmt: skip
def test_a_frequent_mistake_is_refused_where_it_is_made(
    make: Callable[[], object], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert str(refused.value).startswith(problem)
