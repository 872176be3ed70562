"""Checkpoints are DataFrames: what Spark reads is what the store has, or an error that says why."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DoubleType, StringType, StructType

import laminar_core
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.spark.data_source import LaminarDataSource, LaminarReader, Request
from laminar_core.spark.types import arrow_schema
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoints import write_savepoint
from laminar_core.store.state_reading import read_operator
from tests.store.checkpoints_to_read import ROWS, write_job
from tests.store.join_states import write_join
from tests.store.stores import JOB, claim, damage


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> CheckpointStore:
    return write_job(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="session")
def read(spark: SparkSession, store: CheckpointStore):
    laminar_core.register(spark)

    def load(**options: object) -> DataFrame:
        reader = spark.read.format("laminar").option("store", store.objects.uri)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return load


@pytest.mark.spark
class TestSpark:
    """Few, because each query starts processes; what tables contain is tested without Spark."""

    def test_the_state_of_an_operator_is_grouped_like_any_table(self, read):
        state = read(job=JOB, operator="totals", checkpoint=2)
        assert state.columns == [
            *("subtask_index", "key_group", "merchant", "window_start"),
            *("count(*)", "sum(amount)"),
        ]
        assert state.rdd.getNumPartitions() == 2
        found = state.groupBy("merchant").agg(F.sum("`sum(amount)`").alias("total"))
        totals = {row["merchant"]: row["total"] for row in found.collect()}
        assert totals == {f"m{n}": n * 20 + (n == 1) for n in range(6)}

    def test_executors_read_what_the_library_reads(self, read, store):
        wanted = read_operator(store.parts, store.manifests.read(CheckpointId(2)), "totals")
        assert wanted is not None
        order = [("merchant", "ascending"), ("window_start", "ascending")]
        found = read(operator="totals", checkpoint=2).drop("subtask_index").toArrow()
        assert found.sort_by(order).equals(wanted.sort_by(order))

    def test_rows_in_flight_are_structs(self, read, store):
        rows = read(table="inflight").where("element = 'row'").select("row.*", "sender").toArrow()
        assert rows.num_rows == store.manifests.read(CheckpointId(5)).inflight_rows
        assert set(rows.column("sender").to_pylist()) == {0, 1}

    def test_damage_fails_the_query_before_anything_is_decoded(self, spark, tmp_path):
        laminar_core.register(spark)
        store = write_job(tmp_path)
        segment = store.manifests.read(CheckpointId(1)).subtasks[1].segments[0]
        damage(store, store.paths.absolute(segment.path), "rotten")
        options = {"operator": "totals", "checkpoint": "1"}
        state = spark.read.format("laminar").schema("merchant string").options(**options)
        with pytest.raises(PySparkException, match="is not what was written"):
            state.load(str(tmp_path)).collect()

    def test_a_mistake_in_the_options_is_said_when_it_is_loaded(self, read):
        with pytest.raises(PySparkException, match="has no operator sum; its operators: in, total"):
            read(operator="sum")


def collect(store: CheckpointStore, schema: StructType | None = None, **options: str) -> pa.Table:
    """Read the parts in this process, as Spark would."""
    source = LaminarDataSource({"store": store.objects.uri, **options})
    columns = schema or source.schema()
    reader = source.reader(columns)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, arrow_schema(columns))


class TestTables:
    @pytest.mark.parametrize(
        ("options", "count"),
        [
            ({"operator": "totals"}, len(ROWS)),
            ({"operator": "totals", "checkpoint": "2"}, len(ROWS)),
            ({"table": "state", "operator": "in"}, 2),
            ({"table": "offsets"}, 2),
            ({"table": "manifests"}, 4),
            ({"table": "manifests", "checkpoint": "2"}, 1),
            ({"table": "manifests", "checkpoint": "latest"}, 1),
            ({"table": "history"}, 2),
            ({"table": "audit"}, 2),
            ({"table": "inflight", "checkpoint": "2"}, 0),
        ],
    )
    def test_every_table_is_read_as_its_schema_says(self, store, options, count):
        assert collect(store, **options).num_rows == count

    def test_columns_that_are_named_are_the_only_ones(self, store):
        wanted = StructType().add("merchant", StringType()).add("sum(amount)", DoubleType())
        rows = collect(store, wanted, operator="totals", checkpoint="1")
        assert rows.schema.names == ["merchant", "sum(amount)"]
        assert 50.0 in rows.column("sum(amount)").to_pylist()

    def test_one_subtask(self, store):
        both = collect(store, operator="totals").column("subtask_index").to_pylist()
        one = collect(store, operator="totals", subtask="1")
        assert one.column("subtask_index").to_pylist() == [1] * both.count(1)

    def test_a_savepoint_wherever_it_is(self, store, tmp_path):
        manifest = store.manifests.read(CheckpointId(2))
        write_savepoint(store, manifest, LocalObjectStore(tmp_path), Actor("ann"), 1)

        def read(**options: str) -> pa.Table:
            source = LaminarDataSource({"savepoint": str(tmp_path), **options})
            reader = source.reader(source.schema())
            batches = [b for part in reader.partitions() for b in reader.read(part)]
            return pa.Table.from_batches(batches)

        assert read(operator="totals").num_rows == len(ROWS)
        assert read(table="offsets").column("offset").to_pylist() == ["9", "9"]

    def test_a_checkpoint_that_retention_deletes_is_not_called_damaged(self, tmp_path):
        store = write_job(tmp_path)
        options = {"store": str(tmp_path), "operator": "totals", "checkpoint": "1"}
        source = LaminarDataSource(options)
        reader = source.reader(source.schema())
        manifest = store.manifests.read(CheckpointId(1))
        store.objects.put(store.paths.deletion(CheckpointId(1)), b"{}")
        for entry in manifest.subtasks:
            for segment in entry.segments:
                store.objects.delete(store.paths.absolute(segment.path))
        for read in (source.schema, lambda: [list(reader.read(p)) for p in reader.partitions()]):
            with pytest.raises(ConfigurationError, match="is being deleted by retention"):
                read()

    def test_one_of_several_tables_of_state(self, tmp_path):
        store = CheckpointStore(LocalObjectStore(tmp_path), JOB)
        write_join(store, 1, {"a": (1, 5), "b": (2, 9)}, {"a": "x"}, expired_us=5)
        left = collect(store, operator="join", state_table="left")
        assert left.column("key").to_pylist() == ["b"]
        assert collect(store, operator="join", state_table="right").num_rows == 1
        with pytest.raises(ConfigurationError, match="several tables of state"):
            collect(store, operator="join")

    def test_no_parts_are_one_without_rows(self, store):
        """Spark asks for one partition where there is none."""
        reader = LaminarReader(
            Request.of({"store": store.objects.uri, "table": "audit"}), StructType()
        )
        assert list(reader.read(InputPartition(None))) == []

    def test_it_is_called_laminar(self):
        assert LaminarDataSource.name() == "laminar"


class TestOptions:
    """Without Spark."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"opertor": "totals"}, "no option 'opertor'; there are store, job, table"),
            ({"store": ""}, "which store?"),
            ({"table": "states"}, "no table 'states'; there are state, inflight"),
            ({"table": "audit", "operator": "totals"}, "table audit has no option operator"),
            (
                {"table": "offsets", "state_table": "left"},
                "table offsets has no option state_table",
            ),
            ({"table": "history", "checkpoint": "1"}, "is of all checkpoints: filter its rows"),
            ({"checkpoint": "first"}, "option checkpoint is a number, not 'first'"),
            ({"subtask": "x"}, "option subtask is a number, not 'x'"),
            ({"job": "payment"}, "has no job payment; its jobs: payments"),
            ({"savepoint": "/sp"}, "option savepoint cannot be combined with store"),
        ],
    )
    def test_a_mistake_is_one_clear_line(self, store, options, message):
        with pytest.raises(ConfigurationError, match=message) as caught:
            Request.of({"store": store.objects.uri, **options})
        assert caught.value.code is ErrorCode.INVALID_OPTION

    def test_a_savepoint_has_no_records(self):
        with pytest.raises(
            ConfigurationError, match="a savepoint has only the tables state and offsets"
        ):
            Request.of({"savepoint": "/sp", "table": "audit"})

    def test_latest_becomes_a_number(self, store):
        request = Request.of(
            {"Path": store.objects.uri, "Operator": "totals", "checkpoint": "latest"}
        )
        assert (request.checkpoint_id, request.job, request.table) == (5, JOB, "state")

    def test_an_operator_must_be_chosen(self, store):
        with pytest.raises(ConfigurationError, match="state of the operators in, totals: choose"):
            Request.of({"store": store.objects.uri}).open()

    def test_a_job_without_checkpoints(self, tmp_path):
        claim(CheckpointStore(LocalObjectStore(tmp_path), "new"))
        with pytest.raises(ConfigurationError, match="has no completed checkpoint"):
            Request.of({"store": str(tmp_path), "operator": "x"})
        assert Request.of({"store": str(tmp_path), "table": "history"}).open().parts() == []
