"""Connectors: replayable sources and two-phase-commit sinks."""

from laminar_core.connectors.base import (
    Committer,
    Sink,
    SinkWriter,
    Source,
    SourceBatch,
    SourceReader,
)
from laminar_core.connectors.collect import CollectSink
from laminar_core.connectors.datagen import (
    Constant,
    DatagenSource,
    EventTime,
    Sequence,
    UniformInt,
    ZipfKey,
)
from laminar_core.connectors.parquet_commit import committed_files, read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.state.splits import split_columns, split_table

__all__ = [
    "CollectSink",
    "Committer",
    "Constant",
    "DatagenSource",
    "EventTime",
    "ParquetSink",
    "ParquetSource",
    "Sequence",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceReader",
    "UniformInt",
    "ZipfKey",
    "committed_files",
    "read_committed",
    "split_columns",
    "split_table",
]
