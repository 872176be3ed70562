"""A pipeline that Spark cannot send is refused before anything is written."""

import threading

import pyarrow as pa
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.pipeline import Pipeline
from laminar_core.spark.sending import refuse_unsendable
from laminar_core.testing.memory_source import MemorySource


def mapped(function) -> Pipeline:
    p = Pipeline("p")
    source = MemorySource([pa.table({"n": [1]})])
    p.source("in", source).map(function, name="priced").sink("out", CollectSink())
    return p


def test_a_function_that_holds_a_lock_is_named() -> None:
    lock = threading.Lock()

    def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    said = "priced cannot be sent to the workers: cannot pickle '_thread.lock' object; make what"
    with pytest.raises(ConfigurationError, match=said) as caught:
        refuse_unsendable(mapped(locked).plan())
    assert caught.value.code is ErrorCode.INVALID_PIPELINE


def test_functions_and_what_they_hold_are_sent() -> None:
    factor = 3
    refuse_unsendable(mapped(lambda batch: batch.slice(factor)).plan())
