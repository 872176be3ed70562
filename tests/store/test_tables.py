"""Parts of a table, read in any process, are together what the checkpoint has."""

import pyarrow as pa
import pytest

from laminar_core.codec.inflight import InflightEncoder
from laminar_core.errors import ConfigurationError, CorruptCheckpointError
from laminar_core.protocol.types import Batch, CheckpointId
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.state_reading import read_operator
from laminar_core.store.tables import (
    InflightTable,
    OffsetsTable,
    Selection,
    StateTable,
    StoredTable,
)
from laminar_core.testing.faulty_store import FaultyStore
from tests.codec.inflight_files import SCHEMA
from tests.store.checkpoints_to_read import ROWS, write_job
from tests.store.join_states import LEFT, write_join
from tests.store.stores import JOB, damage, open_job


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> CheckpointStore:
    return write_job(tmp_path_factory.mktemp("checkpoints"))


def state(store: CheckpointStore, number: int, *selected: object) -> StateTable:
    selection = Selection(*selected)  # pyright: ignore[reportArgumentType]
    return StateTable(store.parts, store.manifests.read(CheckpointId(number)), selection)


def rows_of(table: StoredTable) -> pa.Table:
    """Every part, as who reads it makes it of the schema."""
    empty = table.schema().empty_table()
    parts = [rows for part in table.parts() for rows in table.read(part)]
    return pa.concat_tables([empty, *parts], promote_options="default")


class TestState:
    def test_one_part_per_subtask_and_one_row_per_key(self, store):
        table = state(store, 2, "totals")
        assert len(table.parts()) == 2
        rows = rows_of(table)
        assert rows.schema.names[:2] == ["subtask_index", "key_group"]
        assert rows.num_rows == len(ROWS)
        whole = read_operator(store.parts, store.manifests.read(CheckpointId(2)), "totals")
        assert rows.drop_columns(["subtask_index"]).equals(whole)

    def test_one_subtask_alone(self, store):
        table = state(store, 2, "totals", 1)
        assert len(table.parts()) == 1
        assert set(rows_of(table).column("subtask_index").to_pylist()) == {1}

    def test_the_schema_costs_the_smallest_file(self, store):
        counting = FaultyStore(store.objects)
        manifest = store.manifests.read(CheckpointId(2))
        table = StateTable(CheckpointStore(counting, JOB).parts, manifest, Selection("totals"))
        assert not counting.calls
        table.schema()
        segments = [s for e in manifest.subtasks if e.operator_id == "totals" for s in e.segments]
        smallest = min(segments, key=lambda segment: segment.size_bytes)
        assert counting.calls == [("get", store.paths.absolute(smallest.path))]

    def test_a_column_of_the_users_stays_what_it_is(self, tmp_path):
        store = write_job(tmp_path)
        manifest = store.manifests.read(CheckpointId(2))
        entry = manifest.subtasks[2]
        rows = pa.table({"subtask_index": ["mine"]})
        segment = store.parts.write_state(CheckpointId(2), "out", 0, rows)
        changed = entry.model_copy(update={"segments": (segment,)})
        other = manifest.model_copy(update={"subtasks": (changed,)})
        assert rows_of(StateTable(store.parts, other, Selection("out"))).equals(rows)

    @pytest.mark.parametrize(
        ("selection", "message"),
        [
            (Selection(), "operators in, totals: choose one with option"),
            (Selection("sum"), "has no operator sum; its operators: in, totals, out"),
        ],
    )
    def test_an_operator_has_to_be_one(self, store, selection, message):
        with pytest.raises(ConfigurationError, match=message):
            StateTable(store.parts, store.manifests.read(CheckpointId(1)), selection)

    def test_without_rows_nobody_knows_the_columns(self, store):
        table = state(store, 1, "out")
        assert table.parts() == []
        with pytest.raises(ConfigurationError, match="out kept no rows in checkpoint 1 of paym"):
            table.schema()

    def test_damage_is_found(self, tmp_path):
        store = write_job(tmp_path)
        segment = store.manifests.read(CheckpointId(1)).subtasks[1].segments[0]
        damage(store, store.paths.absolute(segment.path), "rotten")
        with pytest.raises(CorruptCheckpointError, match=segment.path):
            list(state(store, 1, "totals").read((0,)))


class TestOffsets:
    def test_one_row_per_split(self, store):
        manifest = store.manifests.read(CheckpointId(2))
        rows = rows_of(OffsetsTable(store.parts, manifest, Selection()))
        assert rows.to_pylist() == [
            {
                "operator_id": "in",
                "subtask_index": index,
                "split_id": index,
                "split": f"split {index}",
                "offset": "9",
                "rows_read": 9,
                "rows_total": 100,
                "done": False,
                "newest_us": None,
            }
            for index in (0, 1)
        ]

    def test_rows_of_a_sink_are_no_positions_whatever_their_columns_are_called(self, tmp_path):
        store = write_job(tmp_path)
        manifest = store.manifests.read(CheckpointId(2))
        rows = pa.table({"split_id": ["mine"]})
        segment = store.parts.write_state(CheckpointId(2), "out", 0, rows, is_keyed=False)
        entry = manifest.subtasks[2].model_copy(
            update={"operator_id": "out", "segments": (segment,), "properties": {}}
        )
        more = manifest.model_copy(update={"subtasks": (*manifest.subtasks, entry)})
        found = rows_of(OffsetsTable(store.parts, more, Selection()))
        assert found.column("operator_id").unique().to_pylist() == ["in"]

    def test_sources_with_other_columns_are_put_together(self, tmp_path):
        store = write_job(tmp_path)
        manifest = store.manifests.read(CheckpointId(1))
        first, *rest = manifest.subtasks
        files = pa.table(
            {"split_id": [7], "path": ["a.parquet"], "next_row": [3], "row_count": [5]}
        )
        segment = store.parts.write_state(CheckpointId(1), "files", 0, files)
        entry = first.model_copy(update={"operator_id": "files", "segments": (segment,)})
        both = manifest.model_copy(
            update={
                "subtasks": (first, entry, *rest),
                "parallelism": {**manifest.parallelism, "files": 1},
                "operators_description": {**manifest.operators_description, "files": {}},
            }
        )
        rows = rows_of(OffsetsTable(store.parts, both, Selection()))
        assert rows.column("path").to_pylist() == [None, "a.parquet", None]
        assert rows.column("offset").to_pylist()[1] == "3"  # As older Laminars wrote it.
        only = rows_of(OffsetsTable(store.parts, both, Selection("files")))
        assert only.column("split_id").to_pylist() == [7]

    def test_without_sources_there_are_no_positions(self, store):
        manifest = store.manifests.read(CheckpointId(2))
        with pytest.raises(ConfigurationError, match="has no positions"):
            OffsetsTable(store.parts, manifest, Selection("totals")).schema()


class TestInflight:
    def test_elements_of_every_queue_in_their_order(self, store):
        manifest = store.manifests.read(CheckpointId(5))
        table = InflightTable(store.parts, manifest, Selection())
        assert len(table.parts()) == 2
        rows = rows_of(table)
        assert rows.column("element").to_pylist().count("row") == manifest.inflight_rows
        first = [row for row in rows.to_pylist() if row["subtask_index"] == 0]
        assert [row["position"] for row in first] == sorted(row["position"] for row in first)
        assert {row["element"] for row in first} == {"row", "watermark", "idle"}
        for row in first:
            assert (row["row"] is None) == (row["element"] != "row")
            assert (row["watermark_us"] is None) == (row["element"] != "watermark")
            assert (row["operator_id"], row["direction"], row["input_id"]) == ("totals", "input", 3)
            assert (row["upstream"], row["sender"], row["receiver"]) == ("source", 0, 0)

    def test_one_subtask_alone(self, store):
        manifest = store.manifests.read(CheckpointId(5))
        assert len(InflightTable(store.parts, manifest, Selection("totals", 1)).parts()) == 1

    def test_of_an_aligned_checkpoint_nothing_was(self, store):
        table = InflightTable(store.parts, store.manifests.read(CheckpointId(1)), Selection())
        assert table.parts() == []
        assert "row" not in table.schema().names

    def test_rows_of_different_kinds_need_a_choice(self, tmp_path):
        store = write_job(tmp_path)
        manifest = store.manifests.read(CheckpointId(5))
        one, two = manifest.inflight_data
        schema = pa.schema([(name, pa.bool_()) for name in SCHEMA.names])
        encoder = InflightEncoder(schema, 9)
        encoder.add(Batch(pa.RecordBatch.from_pylist([{}], schema=schema)))
        ref = store.parts.write_inflight(CheckpointId(5), 2, encoder.finish())
        edge = two.edge.model_copy(update={"input_index": 1})
        counts = {"event_count": 1, "row_count": 1, "input_id": 9, "operator_id": "out"}
        other = two.model_copy(update={**dict(ref), **counts, "edge": edge, "subtask_index": 0})
        files = (*manifest.inflight_files, ref)
        both = manifest.model_copy(update={"inflight_data": (one, other), "inflight_files": files})
        with pytest.raises(ConfigurationError, match="queues with rows of different kinds"):
            InflightTable(store.parts, both, Selection()).schema()
        assert rows_of(InflightTable(store.parts, both, Selection("out"))).num_rows == 1


class TestNamedTables:
    @pytest.fixture
    def join(self):
        store = open_job()
        manifest = write_join(store, 1, {"a": (1, 5), "b": (2, 9)}, {"a": "x"}, expired_us=5)
        return lambda *selected: StateTable(store.parts, manifest, Selection("join", *selected))

    def test_one_of_them_is_chosen(self, join):
        left = rows_of(join(None, "left"))
        assert left.schema.names == ["subtask_index", *LEFT.schema.names]
        assert left.column("key").to_pylist() == ["b"]
        assert rows_of(join(0, "right")).column("said").to_pylist() == ["x"]

    @pytest.mark.parametrize(
        ("chosen", "problem"),
        [
            (None, "has several tables of state in checkpoint 1 of payments: choose one"),
            ("up", r"has no table of state 'up' .*there are left, right"),
            ("", "has no table of state ''"),
        ],
    )
    def test_a_choice_that_is_missing_or_wrong_is_refused(self, join, chosen, problem):
        with pytest.raises(ConfigurationError, match=problem):
            join(None, chosen)

    def test_positions_of_sources_have_none_of_them(self):
        store = open_job()
        manifest = write_join(store, 1, {"a": (1, 5)}, {}, expired_us=0)
        assert OffsetsTable(store.parts, manifest, Selection()).parts() == []
