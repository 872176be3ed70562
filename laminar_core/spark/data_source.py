"""``spark.read.format("laminar")``: checkpoints as DataFrames, read by Spark's executors.

    laminar_core.register(spark)
    totals = (
        spark.read.format("laminar")
        .option("store", "/mnt/checkpoints")
        .option("job", "payments")
        .option("operator", "totals")
        .load()
    )

Each executor reads what one worker wrote: it verifies the files, puts the rows together and hands
them to Spark as Arrow batches. Only the columns that the schema names are converted.
"""

# pyarrow and PySpark's data source interface are only partly typed.
# pyright: standard

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.opening import open_object_store
from laminar_core.protocol.types import CheckpointId
from laminar_core.spark.types import spark_batches, spark_schema
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.jobs import newest_manifest, open_job
from laminar_core.store.record_tables import audit_table, history_table, manifest_table
from laminar_core.store.savepoints import read_savepoint
from laminar_core.store.state_reading import SavepointFiles
from laminar_core.store.tables import (
    InflightTable,
    OffsetsTable,
    Part,
    Selection,
    StateTable,
    StoredTable,
)

LATEST = "latest"
_OF_A_CHECKPOINT = {"state": StateTable, "inflight": InflightTable, "offsets": OffsetsTable}
_RECORDS = ("manifests", "history", "audit")
_TABLES = (*_OF_A_CHECKPOINT, *_RECORDS)
_OPTIONS = (
    "store", "job", "table", "checkpoint", "savepoint", "operator", "subtask", "state_table",
)  # fmt: skip
_OF_A_SAVEPOINT = {"state": StateTable, "offsets": OffsetsTable}


def register(spark: SparkSession) -> None:
    """Register the format ``laminar``, by which ``spark.read`` reads checkpoints.

    Once per session.
    """
    spark.dataSource.register(LaminarDataSource)


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request, the same on all executors.

    "latest" has been replaced by a number.
    """

    store: str
    job: str
    table: str
    checkpoint_id: CheckpointId | None
    selection: Selection
    savepoint: str | None = None
    """URI of the savepoint to read; it belongs to no store and no job."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Request":
        """Read the options of a user.

        Raises:
            ConfigurationError: one is unknown, missing, or does not go with another; or there is no
                such job or checkpoint.
        """
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - {*_OPTIONS, "path"}):
            raise _invalid(f"no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
        table = given.get("table", "state")
        if table not in _TABLES:
            raise _invalid(f"no table {table!r}; there are {', '.join(_TABLES)}")
        if "savepoint" in given:
            return cls._of_savepoint(given, table)
        given["store"] = given.get("store") or given.pop("path", "")
        if not given["store"]:
            raise _invalid("which store? Give option store, or a path to load()")
        if "state_table" in given and table != "state":
            raise _invalid(f"table {table} has no option state_table: leave it out")
        if table in _RECORDS and (extra := sorted(given.keys() & {"operator", "subtask"})):
            raise _invalid(f"table {table} has no option {extra[0]}: filter its rows")
        store = open_job(given["store"], given.get("job"), how="option job")
        return cls(
            store=given["store"],
            job=store.job,
            table=table,
            checkpoint_id=_checkpoint_id(store, table, given.get("checkpoint")),
            selection=_selection(given),
        )

    @classmethod
    def _of_savepoint(cls, given: Mapping[str, str], table: str) -> "Request":
        if extra := sorted(given.keys() & {"store", "path", "job", "checkpoint"}):
            raise _invalid(
                f"option savepoint cannot be combined with {extra[0]}: leave {extra[0]} out"
            )
        if table not in _OF_A_SAVEPOINT:
            raise _invalid(
                f"a savepoint has only the tables {' and '.join(_OF_A_SAVEPOINT)}: choose one with "
                'option("table", …)'
            )
        return cls("", "", table, None, _selection(given), given["savepoint"])

    def open(self) -> StoredTable:
        """Open the table, in any process.

        Raises:
            ConfigurationError: the checkpoint has no such operator, or does not exist any more.
            CorruptCheckpointError: its manifest is not what was written.
        """
        if self.savepoint is not None:
            found = read_savepoint(open_object_store(self.savepoint))
            table = _OF_A_SAVEPOINT[self.table]
            return table(SavepointFiles(found), found.record.cut(), self.selection)
        store = CheckpointStore.open(self.store, self.job)
        match self.table:
            case "manifests":
                return manifest_table(store, self.checkpoint_id)
            case "history":
                return history_table(store)
            case "audit":
                return audit_table(store)
            case _:
                assert self.checkpoint_id is not None
                manifest = store.manifests.read(self.checkpoint_id)
                return _OF_A_CHECKPOINT[self.table](store.parts, manifest, self.selection)

    def reading(self) -> AbstractContextManager[None]:
        """Read files of the checkpoint inside; see ``CheckpointStore.reading``."""
        if self.checkpoint_id is None:
            return nullcontext()
        return CheckpointStore.open(self.store, self.job).reading(self.checkpoint_id)


class LaminarDataSource(DataSource):
    """A job's checkpoints; see the options in ``docs/reading.md``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self.request = Request.of(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "laminar"

    def schema(self) -> StructType:
        """Return the columns of the table, read from the smallest file that has them."""
        with self.request.reading():
            return spark_schema(self.request.open().schema())

    def reader(self, schema: StructType) -> "LaminarReader":
        """Read the columns of ``schema``: all, or those that the user named."""
        return LaminarReader(self.request, schema)


class LaminarReader(DataSourceReader):
    """Plans the parts in one process, and reads them in others."""

    def __init__(self, request: Request, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the partitions: one per subtask, per queue, or per group of records."""
        return [InputPartition(part) for part in self._request.open().parts()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        part: Part | None = partition.value
        if part is not None:  # Spark makes one of none.
            with self._request.reading():
                for rows in self._request.open().read(part):
                    yield from spark_batches(rows, self._schema)


def _checkpoint_id(store: CheckpointStore, table: str, said: str | None) -> CheckpointId | None:
    if said not in (None, LATEST):
        if table in ("history", "audit"):
            raise _invalid(f"table {table} is of all checkpoints: filter its rows")
        return CheckpointId(_number("checkpoint", said))
    if table in _RECORDS and said is None:
        return None
    return newest_manifest(store).checkpoint_id


def _selection(given: Mapping[str, str]) -> Selection:
    subtask = given.get("subtask")
    index = None if subtask is None else _number("subtask", subtask)
    return Selection(given.get("operator"), index, given.get("state_table"))


def _number(name: str, said: str) -> int:
    if not said.isdecimal():
        raise _invalid(f"option {name} is a number, not {said!r}")
    return int(said)


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
