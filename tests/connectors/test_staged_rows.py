"""Rows of an interval are in one snapshot or the next, whatever the store did meanwhile."""

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.connectors.outlook import Committable, Lost
from laminar_core.connectors.staged_rows import StagedPart, StagedRows, outlook_of, parts_after
from laminar_core.errors import CorruptCheckpointError, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.paths import JobPaths
from laminar_core.store.staging import StagingArea
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA)


def writer_on(store=None, file_bytes: int = 1 << 20) -> tuple[StagedRows, StagingArea]:
    staging = StagingArea(store or MemoryObjectStore(), JobPaths("payments"), "out")
    context = SubtaskContext("out", 1, 2, 128, Generation(3), staging=staging)
    return StagedRows(context, SCHEMA, file_bytes), staging


def parts_of(snapshot: Snapshot) -> list[StagedPart]:
    return [StagedPart.from_json(committable) for committable in snapshot.committables]


def ids_of(parts: list[StagedPart], staging: StagingArea) -> list[int]:
    return [n for part in parts for b in part.batches(staging) for n in b.column(0).to_pylist()]


def test_rows_of_an_interval_are_one_file_with_its_checkpoint():
    writer, staging = writer_on()
    writer.write(rows(1, 2))
    writer.write(rows())
    writer.write(rows(3))
    first = writer.snapshot(CheckpointId(12))
    writer.write(rows(4))
    second = writer.snapshot(CheckpointId(13))
    (a,) = parts_of(first())
    again, b = parts_of(second())
    assert again == a, "the first had not finished when the second was taken"
    assert (a.checkpoint_id, a.rows, ids_of([a], staging)) == (12, 3, [1, 2, 3])
    assert (b.checkpoint_id, b.rows, ids_of([b], staging)) == (13, 1, [4])
    assert a.file.path == "staged/out/0000000003-1-00000000.arrow"


@pytest.mark.parametrize(
    "values",
    [pa.array(["a", "b", "c"]), pa.array(np.array([1, 1.5, 2], np.float16))],
    ids=["texts", "half floats"],
)
def test_rows_with_dictionaries_inside_of_structs_are_one_file_too(values):
    places = pa.array([0, 1])
    batches = [
        pa.record_batch(
            {
                "s": pa.StructArray.from_arrays(
                    [pa.DictionaryArray.from_arrays(places, values.slice(start, 2))], ["x"]
                )
            }
        )
        for start in (0, 1)
    ]
    _, staging = writer_on()
    context = SubtaskContext("out", 1, 2, 128, Generation(3), staging=staging)
    writer = StagedRows(context, batches[0].schema)
    for batch in batches:
        writer.write(batch)
    (part,) = parts_of(writer.snapshot(CheckpointId(1))())
    found = [row["s"]["x"] for batch in part.batches(staging) for row in batch.to_pylist()]
    assert found == values.take(pa.array([0, 1, 1, 2])).to_pylist()


def test_the_committer_takes_each_part_once_and_only_newer_ones():
    writer, _ = writer_on()
    pending = []
    for n in (11, 12, 13):
        writer.write(rows(n))
        pending.append(writer.snapshot(CheckpointId(n)))
    offered = [part for snapshot in pending for part in reversed(snapshot().committables)]
    assert len(offered) == 6
    assert [part.checkpoint_id for part in parts_after(CheckpointId(11), offered)] == [12, 13]
    assert [part.checkpoint_id for part in parts_after(None, offered)] == [11, 12, 13]


def test_an_interval_without_rows_stages_nothing():
    writer, staging = writer_on()
    assert writer.snapshot(CheckpointId(12))() == Snapshot()
    assert staging.objects.list("") == []


def test_many_rows_become_files_at_once():
    writer, staging = writer_on(file_bytes=16)
    for n in range(5):
        writer.write(rows(n))
    assert len(staging.objects.list("")) == 2
    parts = parts_of(writer.snapshot(CheckpointId(12))())
    assert [part.rows for part in parts] == [2, 2, 1]
    assert ids_of(parts, staging) == list(range(5))


def test_a_file_that_the_store_refused_comes_with_the_next_snapshot():
    fault = Fault("put_if_absent", Effect.FAIL, key="staged/", last=2)
    writer, staging = writer_on(FaultyStore(MemoryObjectStore(), fault))
    writer.write(rows(1))
    with pytest.raises(StorageUnavailable):
        writer.snapshot(CheckpointId(12))()
    writer.write(rows(2))
    parts = parts_of(writer.snapshot(CheckpointId(13))())
    assert [part.checkpoint_id for part in parts] == [12, 13]
    assert ids_of(parts, staging) == [1, 2]
    assert writer.snapshot(CheckpointId(14))() == Snapshot()


def test_rows_after_the_cut_are_not_in_it():
    writer, staging = writer_on()
    writer.write(rows(1))
    pending = writer.snapshot(CheckpointId(12))
    writer.write(rows(2))
    assert ids_of(parts_of(pending()), staging) == [1]


def test_what_is_gone_is_counted():
    writer, staging = writer_on(file_bytes=8)
    for n in range(3):
        writer.write(rows(n))
    parts = parts_of(writer.snapshot(CheckpointId(12))())
    assert outlook_of(parts, staging) == Committable()
    staging.delete([parts[0].file, parts[2].file])
    lost = outlook_of(parts, staging)
    assert isinstance(lost, Lost)
    assert (lost.rows, lost.gone) == (2, [parts[0].to_json(), parts[2].to_json()])
    assert "2 of 3 files" in lost.why


@pytest.mark.parametrize("committable", [{}, {"rows": 1}, {"checkpoint_id": 1, "rows": 1}])
def test_other_committables_are_refused(committable):
    with pytest.raises(CorruptCheckpointError, match="not a record of staged rows"):
        StagedPart.from_json(committable)


def test_dictionaries_become_plain_columns():
    staging = StagingArea(MemoryObjectStore(), JobPaths("payments"), "out")
    context = SubtaskContext("out", 0, 1, 128, Generation(3), staging=staging)
    schema = pa.schema([("shop", pa.dictionary(pa.int32(), pa.string()))])
    writer = StagedRows(context, schema)
    for shop in ("a", "b"):
        shops = pa.array([shop]).dictionary_encode()
        writer.write(pa.record_batch([shops], schema=schema))
    (part,) = parts_of(writer.snapshot(CheckpointId(12))())
    (first, second) = part.batches(staging)
    assert [*first.column(0).to_pylist(), *second.column(0).to_pylist()] == ["a", "b"]
    assert first.schema == pa.schema([("shop", pa.string())])
