"""The sink of the page "Write a sink" keeps the contract of a committer."""

import sqlite3
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laminar_core.connectors import Committable, Committed, Doubtful, Promise
from laminar_core.errors import ConfigurationError, FencedError, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.operators.base import JsonObject, SubtaskContext
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.paths import JobPaths
from laminar_core.store.staging import StagingArea
from tests.spark.guides import blocks

SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.dictionary(pa.int32(), pa.string()))])


@pytest.fixture(name="page")
def _page(monkeypatch: pytest.MonkeyPatch) -> Any:
    (program,) = [b.text for b in blocks("custom-sink.md") if b.title == "sqlite_sink.py"]
    module = types.ModuleType("sqlite_sink")
    monkeypatch.setitem(sys.modules, "sqlite_sink", module)  # Data classes look for it there.
    exec(compile(program, "docs/custom-sink.md", "exec"), module.__dict__)
    return module


class Target:
    """A database, and generations that write to it."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.path = folder / "orders.db"
        self.sink = page.SqliteSink(str(self.path), "orders")
        self.staging = StagingArea(MemoryObjectStore(), JobPaths("shop"), "out")

    def committer(self, generation: int) -> Any:
        committer = self.sink.committer(self.staging)
        committer.take_over(generation)
        committer.discard_uncommitted(generation)
        return committer

    def staged(self, checkpoint_id: int, *ids: int) -> list[JsonObject]:
        context = SubtaskContext("out", 0, 1, 128, Generation(checkpoint_id), staging=self.staging)
        writer = self.sink.open(context, SCHEMA)
        shops = pa.array(["a"] * len(ids)).dictionary_encode()
        writer.write(pa.record_batch([pa.array(ids, pa.int64()), shops], schema=SCHEMA))
        return list(writer.snapshot(CheckpointId(checkpoint_id))().committables)

    def ids(self) -> list[int]:
        with sqlite3.connect(self.path) as db:
            return [row[0] for row in db.execute("SELECT id FROM orders ORDER BY id")]


@pytest.fixture(name="target")
def _target(page: Any, tmp_path: Path) -> Target:
    return Target(page, tmp_path)


def test_rows_are_there_once_however_often_they_are_committed(target: Target) -> None:
    committer = target.committer(1)
    first, second = target.staged(1, 1, 2), target.staged(2, 3)
    assert committer.outlook(1, first) == Committable()
    for _ in range(2):
        committer.commit(1, first)
    committer.commit(2, [*first, *second])
    assert target.ids() == [1, 2, 3]
    assert committer.last_committed() == 2
    assert committer.outlook(2, [*first, *second]) == Committed()


def test_a_commit_that_fails_half_way_leaves_nothing(target: Target) -> None:
    committer = target.committer(1)
    first, second = target.staged(1, 1), target.staged(2, 2)
    committer.commit(1, first)
    file = next(f for f in target.staging.objects.list("") if "0000000002" in f)
    target.staging.objects.delete(file)
    with pytest.raises(Exception, match="is missing"):
        committer.commit(3, [*target.staged(3, 3), *second])
    assert (target.ids(), committer.last_committed()) == ([1], 1)


def test_an_older_generation_is_shut_out(target: Target) -> None:
    old, new = target.committer(1), target.committer(2)
    rows = target.staged(3, 1)
    for write in (lambda: old.commit(3, rows), lambda: old.withdraw_after(0, 1)):
        with pytest.raises(FencedError):
            write()
    old.take_over(1)
    with pytest.raises(FencedError):
        old.commit(3, rows)
    new.commit(3, rows)
    assert target.ids() == [1]


def test_rows_of_later_checkpoints_are_withdrawn(target: Target) -> None:
    committer = target.committer(1)
    committer.withdraw_after(5, 1)
    for n in (1, 2, 3):
        committer.commit(n, target.staged(n, n))
    committer.withdraw_after(1, 1)
    assert (target.ids(), committer.last_committed()) == ([1], 1)


def test_a_marker_without_rows_can_be_withdrawn(target: Target) -> None:
    committer = target.committer(1)
    assert committer.last_committed() is None
    committer.commit(4, [])
    committer.withdraw_after(2, 1)
    assert committer.last_committed() == 2


def test_a_database_that_was_replaced_is_doubtful(target: Target) -> None:
    rows = target.staged(1, 1)
    target.committer(1)
    target.path.unlink()
    successor = target.sink.committer(target.staging)
    assert isinstance(successor.outlook(1, rows), Doubtful)
    assert successor.last_committed() is None
    successor.take_over(2)
    assert isinstance(successor.outlook(1, rows), Doubtful)


def test_output_of_an_earlier_job_of_the_same_name_is_refused(target: Target) -> None:
    target.committer(1)
    with sqlite3.connect(target.path) as db:
        db.execute("UPDATE laminar_commits SET run = 'another'")
    with pytest.raises(ConfigurationError, match="an earlier job"):
        target.committer(2)


def test_a_target_that_does_not_answer_is_tried_again(target: Target) -> None:
    committer = target.committer(1)
    target.path.unlink()
    target.path.mkdir()
    with pytest.raises(StorageUnavailable):
        committer.commit(1, [])


def test_types_without_a_form_in_the_database_are_refused(target: Target) -> None:
    assert target.sink.check(SCHEMA, Promise()) == ()
    with pytest.raises(ConfigurationError, match="paid_at"):
        target.sink.check(pa.schema([("paid_at", pa.timestamp("us"))]), Promise())
