"""Connectors: replayable sources and two-phase-commit sinks."""

from laminar_core.connectors.base import (
    Committer,
    Discovery,
    Found,
    Gap,
    Headroom,
    Sink,
    SinkWriter,
    Source,
    SourceBatch,
    SourceReader,
    SplitStatus,
    StatesStart,
    Withdrawing,
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
from laminar_core.connectors.discovery import first_splits, fixed_list
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.files.lookup_table import LookupTable
from laminar_core.connectors.files.parquet_rows import ParquetFormat
from laminar_core.connectors.formats.avro_format import AvroFormat
from laminar_core.connectors.formats.csv_lines import CsvFormat
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.connectors.formats.raw import RawFormat
from laminar_core.connectors.formats.schema_registry import KnownSchemas, SchemaRegistry
from laminar_core.connectors.kafka import KafkaConnection, KafkaSink, KafkaSource
from laminar_core.connectors.outlook import (
    Committable,
    Committed,
    Doubtful,
    Lost,
    Outlook,
    Promise,
)
from laminar_core.connectors.parquet_commit import (
    committed_files,
    committed_objects,
    read_committed,
)
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.connectors.parquet_source import ParquetSource
from laminar_core.connectors.staged_rows import StagedPart, StagedRows, outlook_of, parts_after
from laminar_core.state.splits import split_columns, split_table
from laminar_core.store.staging import StagingArea

__all__ = [
    "AvroFormat",
    "CollectSink",
    "Committable",
    "Committed",
    "Committer",
    "Constant",
    "CsvFormat",
    "DatagenSource",
    "Discovery",
    "Doubtful",
    "EventTime",
    "FileSource",
    "Found",
    "Gap",
    "Headroom",
    "JsonFormat",
    "KafkaConnection",
    "KafkaSink",
    "KafkaSource",
    "KnownSchemas",
    "LookupTable",
    "Lost",
    "Outlook",
    "ParquetFormat",
    "ParquetSink",
    "ParquetSource",
    "Promise",
    "RawFormat",
    "SchemaRegistry",
    "Sequence",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceBatch",
    "SourceReader",
    "SplitStatus",
    "StagedPart",
    "StagedRows",
    "StagingArea",
    "StatesStart",
    "UniformInt",
    "Withdrawing",
    "ZipfKey",
    "committed_files",
    "committed_objects",
    "first_splits",
    "fixed_list",
    "outlook_of",
    "parts_after",
    "read_committed",
    "split_columns",
    "split_table",
]
