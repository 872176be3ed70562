"""A commit publishes what was offered, once, and refuses what it cannot vouch for (ADR-0009)."""

import errno
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laminar_core.connectors import output_directory
from laminar_core.connectors.outlook import Committable, Committed, Lost
from laminar_core.connectors.output_place import StagedOutput, Withdrawal
from laminar_core.connectors.parquet_commit import committed_files, listed_files, read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    StorageUnavailable,
)
from laminar_core.operators.base import SubtaskContext
from laminar_core.worker.sinks import CommittingSink
from tests.connectors.output_runs import SCHEMA, batch, committed, open_writer, stage, visible


@pytest.fixture
def sink(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    sink.check(SCHEMA)
    return sink


def test_nothing_is_visible_before_the_commit(sink):
    stage(sink, 0, 5)
    assert committed(sink.path) == visible(sink.path) == []


def test_a_commit_makes_all_subtasks_visible_and_lists_them(sink):
    outputs = stage(sink, 0, 5) + stage(sink, 5, 7, subtask=1)
    sink.committer().commit(1, outputs)
    assert committed(sink.path) == visible(sink.path) == list(range(7))
    content = json.loads(sink.directory.manifest_path(1).read_text())
    assert (content["format_version"], content["checkpoint_id"], content["row_count"]) == (1, 1, 7)
    assert [file.name for file in committed_files(sink.path)] == [
        "part-0000000001-00000-000000-g1.parquet",
        "part-0000000001-00001-000000-g1.parquet",
    ]


def test_a_commit_may_come_any_number_of_times(sink):
    outputs = stage(sink, 0, 5)
    for _ in range(3):
        sink.committer().commit(1, outputs)
    assert committed(sink.path) == list(range(5))


def test_a_column_that_came_later_is_null_in_older_rows(sink):
    sink.committer().commit(1, stage(sink, 0, 2))
    wider = SCHEMA.append(pa.field("tip", pa.int64()))
    writer = CommittingSink(sink.open(SubtaskContext("sink", 0, 2, 128, 2), wider))
    writer.write(pa.record_batch({"n": [2], "tip": [7]}, schema=wider))
    sink.committer().commit(2, writer.snapshot(2)().committables)
    assert read_committed(sink.path).to_pylist() == [
        {"n": 0, "tip": None},
        {"n": 1, "tip": None},
        {"n": 2, "tip": 7},
    ]


def test_a_checkpoint_without_rows_leaves_nothing_behind(sink):
    sink.committer().commit(1, ())
    assert sink.committer().last_committed() is None
    assert committed_files(sink.path) == []
    assert read_committed(sink.path) == pa.table({})


def test_rows_of_a_declined_checkpoint_are_committed_by_the_next(sink):
    writer = open_writer(sink, generation=1)
    writer.write(batch(0, 5))
    writer.snapshot(1)()
    writer.write(batch(5, 9))
    sink.committer().commit(2, writer.snapshot(2)().committables)
    assert committed(sink.path) == list(range(9))
    assert len(listed_files(sink.directory, 2)) == 2


def test_a_file_that_two_checkpoints_offer_is_listed_once(sink):
    """Goal: I4 when checkpoint 2 is taken before the commit of checkpoint 1 has happened."""
    writer, committer = open_writer(sink, generation=1), sink.committer()
    writer.write(batch(0, 5))
    first = writer.snapshot(1)().committables
    writer.write(batch(5, 9))
    second = writer.snapshot(2)().committables
    committer.commit(1, first)
    committer.commit(2, second)
    committer.commit(2, second)
    assert len(second) == 2
    assert committed(sink.path) == list(range(9))
    assert sum(len(listed_files(sink.directory, at)) for at in (1, 2)) == 2


def test_a_committable_that_is_offered_twice_is_listed_once(sink):
    outputs = stage(sink, 0, 5)
    sink.committer().commit(1, outputs + outputs)
    assert committed(sink.path) == list(range(5))
    assert len(listed_files(sink.directory, 1)) == 1


def test_a_restore_of_a_savepoint_keeps_its_rows_and_takes_back_later_ones(sink):
    """Goal: a savepoint commits nothing, yet its rows are output once it is restored."""
    writer, committer = open_writer(sink, generation=1), sink.committer()
    writer.write(batch(0, 5))
    savepoint = writer.snapshot(1)().committables
    writer.write(batch(5, 9))
    committer.commit(2, writer.snapshot(2)().committables)
    committer.commit(1, savepoint)
    committer.withdraw_after(1, 2)
    committer.discard_uncommitted(2)
    assert committed(sink.path) == visible(sink.path) == list(range(5))


@pytest.mark.parametrize("fallback", [0, 1, 2, 3])
def test_output_behind_the_restored_checkpoint_is_taken_back(sink, fallback):
    committer = sink.committer()
    for checkpoint_id in (1, 2, 3):
        rows = stage(sink, checkpoint_id * 10, checkpoint_id * 10 + 1, checkpoint_id=checkpoint_id,
                     generation=checkpoint_id)  # fmt: skip
        committer.commit(checkpoint_id, rows)
    assert committer.last_committed() == 3
    for _ in range(2):
        committer.withdraw_after(fallback, 4)
        assert committed(sink.path) == [10, 20, 30][:fallback]
        assert visible(sink.path) == [10, 20, 30][:fallback]
        assert committer.last_committed() == (fallback or None)


def test_rows_of_an_interrupted_commit_are_output_although_no_manifest_lists_them(sink):
    """A reader of the plain directory sees them, so a fallback takes them back."""
    committer = sink.committer()
    committer.commit(1, stage(sink, 0, 5))
    (unlisted,) = stage(sink, 5, 7, checkpoint_id=2)
    committer.commit(2, (unlisted,))
    sink.directory.manifest_path(2).unlink()  # As if the driver had died before it was created.
    assert (committed(sink.path), visible(sink.path)) == (list(range(5)), list(range(7)))
    assert committer.last_committed() == 2
    committer.withdraw_after(1, 2)
    assert committed(sink.path) == visible(sink.path) == list(range(5))
    assert committer.last_committed() == 1


def test_files_that_are_taken_back_do_not_come_back_after_a_power_failure(sink, monkeypatch):
    committer = sink.committer()
    committer.commit(1, stage(sink, 0, 5))
    synced = []
    monkeypatch.setattr(
        output_directory, "sync_directory", lambda path: synced.append((path, visible(sink.path)))
    )
    committer.withdraw_after(0, 2)
    assert synced[0] == (sink.directory.withdrawn, list(range(5))), "recorded before"
    assert synced[-1] == (sink.directory.path, []), "synced after the last deletion"


def test_a_commit_that_fails_leaves_no_temporary_file(sink, monkeypatch):
    outputs = stage(sink, 0, 5)
    fail_call(monkeypatch, 4, OSError(errno.EIO, "no"))  # A rename, two syncs, one of the file.
    with pytest.raises(StorageUnavailable):
        sink.committer().commit(1, outputs)
    assert list(sink.directory.commits.iterdir()) == []


def test_output_may_be_on_a_file_system_without_hard_links(sink, monkeypatch):
    outputs = stage(sink, 0, 5)

    def refused(*_arguments):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refused)
    sink.committer().commit(1, outputs)
    assert not sink.directory.write_manifest(1, b"{}")
    assert committed(sink.path) == list(range(5))
    assert list(sink.directory.commits.iterdir()) == [sink.directory.manifest_path(1)]


def test_a_withdrawal_is_recorded_once_and_only_if_there_is_something_to_take_back(sink):
    committer = sink.committer()
    for checkpoint_id in (1, 2, 3):
        committer.commit(checkpoint_id, stage(sink, 0, 5, checkpoint_id=checkpoint_id))
    committer.withdraw_after(3, 2)
    assert sink.directory.withdrawals() == []
    for _ in range(2):
        committer.withdraw_after(2, 2)
        assert sink.directory.withdrawals() == [Withdrawal(2, 2, 3)]
    committer.commit(4, stage(sink, 0, 5, checkpoint_id=4, generation=2))
    committer.withdraw_after(1, 3)
    committer.withdraw_after(0, 2)  # A driver that slept.
    assert sorted(each.name for each in sink.directory.withdrawals()) == [
        "0000000002-0000000000-0000000001",
        "0000000003-0000000001-0000000004",
    ]


def test_a_withdrawal_that_another_one_implies_is_as_good(sink):
    committer = sink.committer()
    committer.commit(3, stage(sink, 0, 5, checkpoint_id=3))
    sink.directory.add_withdrawal(Withdrawal(7, 1, 9))
    committer.withdraw_after(2, 2)
    assert sink.directory.withdrawals() == [Withdrawal(7, 1, 9)]
    assert visible(sink.path) == []


def test_discarding_spares_this_generation_and_everything_committed(sink):
    committer = sink.committer()
    committer.commit(1, stage(sink, 0, 5))
    stage(sink, 5, 6, generation=1, subtask=1)
    stage(sink, 6, 7, generation=2)
    stage(sink, 7, 8, generation=3)
    (sink.directory.staging / "somebody's notes.parquet").touch()
    committer.discard_uncommitted(3)
    assert sorted(file.name for file in sink.directory.staging.iterdir()) == [
        "0000000003-00000-000000.parquet",
        "somebody's notes.parquet",
    ]
    assert committed(sink.path) == list(range(5))


def test_a_zombie_that_stages_after_its_files_were_discarded_does_no_harm(sink):
    committer = sink.committer()
    zombie = open_writer(sink, generation=1)
    zombie.write(batch(0, 5))
    offered = zombie.snapshot(1)
    committer.discard_uncommitted(2)
    committer.commit(2, stage(sink, 0, 5, checkpoint_id=2, generation=2))
    offered()
    zombie.write(batch(5, 9))
    zombie.snapshot(3)()
    assert committed(sink.path) == visible(sink.path) == list(range(5))
    committer.discard_uncommitted(3)
    assert list(sink.directory.staging.iterdir()) == []


# --- Damage --------------------------------------------------------------------------------------


def expect(kind, code, said, act, *args):
    with pytest.raises(kind, match=said) as caught:
        act(*args)
    assert caught.value.code is code
    assert "\n" not in str(caught.value)


def test_a_staged_file_that_is_gone_cannot_be_committed(sink):
    outputs = stage(sink, 0, 5)
    (sink.directory.staging / outputs[0]["staged"]).unlink()
    expect(CorruptCheckpointError, ErrorCode.OBJECT_MISSING, "both gone: 5 rows of checkpoint 1",
           sink.committer().commit, 1, outputs)  # fmt: skip
    assert committed(sink.path) == []


def test_a_file_that_was_damaged_between_rename_and_manifest_is_not_listed(sink):
    (output,) = stage(sink, 0, 5)
    final = sink.directory.path / output["final"]
    (sink.directory.staging / output["staged"]).rename(final)
    os.truncate(final, 100)
    expect(CorruptCheckpointError, ErrorCode.LENGTH_DIFFERS, "100 bytes",
           sink.committer().commit, 1, [output])  # fmt: skip
    assert committed(sink.path) == []


def test_a_visible_file_is_never_overwritten(sink):
    (output,) = stage(sink, 0, 5)
    (sink.directory.path / output["final"]).write_text("of another run, before its manifest")
    expect(ConfigurationError, ErrorCode.INVALID_OPTION, "checkpoint 1 of another run",
           sink.committer().commit, 1, [output])  # fmt: skip
    assert "before its manifest" in (sink.directory.path / output["final"]).read_text()


def test_a_staged_file_of_another_length_is_not_committed(sink):
    outputs = stage(sink, 0, 5)
    os.truncate(sink.directory.staging / outputs[0]["staged"], 100)
    expect(CorruptCheckpointError, ErrorCode.LENGTH_DIFFERS, "100 bytes",
           sink.committer().commit, 1, outputs)  # fmt: skip
    assert visible(sink.path) == []


def test_output_of_another_run_is_never_overwritten(sink):
    """Goal: a second job, whose ids begin at 1 again, cannot replace what is there."""
    committer = sink.committer()
    committer.commit(1, stage(sink, 0, 5))
    again = stage(sink, 100, 105)
    for checkpoint_id in (1, 2):
        expect(ConfigurationError, ErrorCode.INVALID_OPTION, "checkpoint 1 of another run",
               committer.commit, checkpoint_id, again)  # fmt: skip
    other = stage(sink, 200, 205, generation=2)
    expect(ConfigurationError, ErrorCode.INVALID_OPTION, "checkpoint 1 of another run",
           committer.commit, 1, other)  # fmt: skip
    assert committed(sink.path) == list(range(5))


@pytest.mark.parametrize(
    "change",
    [
        {"staged": "../../etc/passwd"},
        {"final": "part-0000000001-00000-000000-g1.parquet/../x"},
        {"final": None},
        {"row_count": -1},
        {"size_bytes": "many"},
        {"checkpoint_id": None},
    ],
    ids=str,
)
def test_a_committable_that_no_writer_produced_is_refused(sink, change):
    (output,) = stage(sink, 0, 5)
    assert StagedOutput.from_json(output).to_json() == output
    expect(CorruptCheckpointError, ErrorCode.MANIFEST_UNREADABLE, "not a committable",
           sink.committer().commit, 1, [output | change])  # fmt: skip
    assert visible(sink.path) == []


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format_version": 1}', '{"format_version": 2, "files": []}',
     '{"format_version": 1, "files": [{"name": "x"}]}',
     '{"format_version": 1, "files": [{"name": [], "row_count": 1, "size_bytes": 1}]}',
     '{"format_version": 1, "files": [{"name": "x", "row_count": "1", "size_bytes": 1}]}',
     "[" * 100_000],
    ids=lambda content: content[:80],
)  # fmt: skip
def test_an_unreadable_commit_manifest_is_named(sink, content):
    sink.directory.manifest_path(7).write_text(content)
    expect(CorruptCheckpointError, ErrorCode.MANIFEST_UNREADABLE, r"0000000007\.json",
           committed_files, sink.path)  # fmt: skip


def test_a_committed_file_that_is_gone_is_named(sink):
    sink.committer().commit(1, stage(sink, 0, 5))
    committed_files(sink.path)[0].unlink()
    expect(CorruptCheckpointError, ErrorCode.OBJECT_MISSING, r"lacks part-.*\.parquet",
           read_committed, sink.path)  # fmt: skip


def test_a_committed_file_that_is_damaged_is_not_read(sink):
    sink.committer().commit(1, stage(sink, 0, 5))
    committed_files(sink.path)[0].write_bytes(b"damaged")
    with pytest.raises(CorruptCheckpointError):
        read_committed(sink.path)


def test_a_directory_of_something_else_has_no_committed_output(tmp_path):
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    expect(ConfigurationError, ErrorCode.NO_SUCH_PATH, "not the output directory",
           read_committed, tmp_path)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ErrorCode.STORE_FULL),
        (errno.EROFS, ErrorCode.STORE_READ_ONLY),
        (errno.EIO, ErrorCode.STORE_IO),
    ],
)
def test_a_commit_that_the_disk_refuses_is_repeated_until_it_succeeds(
    sink, monkeypatch, number, code
):
    outputs, codes = stage(sink, 0, 5) + stage(sink, 5, 9, subtask=1), []
    for attempt in range(5):
        with monkeypatch.context() as patch:
            fail_call(patch, attempt, OSError(number, os.strerror(number)))
            with pytest.raises(StorageUnavailable) as caught:
                sink.committer().commit(1, outputs)
        codes.append(caught.value.code)
    with monkeypatch.context() as patch:  # The manifest is there; is it durable?
        fail_call(patch, 0, OSError(number, os.strerror(number)))
        with pytest.raises(StorageUnavailable):
            sink.committer().commit(1, outputs)
    sink.committer().commit(1, outputs)
    assert set(codes) == {code}
    assert committed(sink.path) == list(range(9))


def fail_call(patch, at, error):
    """Let the ``at``-th rename, link or sync fail, counted from zero."""
    calls = iter(range(1_000))

    def watch(real):
        def call(*args):
            if next(calls) == at:
                raise error
            return real(*args)

        return call

    patch.setattr(Path, "rename", watch(Path.rename))
    patch.setattr(Path, "hardlink_to", watch(Path.hardlink_to))
    patch.setattr(os, "fsync", watch(os.fsync))


class TestOutlook:
    """Whether a commit would succeed is known before anything is restored."""

    def test_what_is_staged_published_or_listed_can_be_committed(self, sink):
        outputs = stage(sink, 0, 5) + stage(sink, 5, 7, subtask=1)
        committer = sink.committer()
        assert committer.outlook(1, outputs) == Committable()
        first = StagedOutput.from_json(outputs[0])  # A commit that died between two renames.
        (sink.directory.staging / first.staged).rename(sink.directory.path / first.final)
        assert committer.outlook(1, outputs) == Committable()
        committer.commit(1, outputs)
        assert committer.outlook(1, outputs) == Committed()
        assert committer.outlook(2, outputs) == Committed()  # Carried by a later checkpoint.
        assert committed(sink.path) == list(range(7))

    @pytest.mark.parametrize("how", ["gone", "torn"])
    def test_all_lost_files_are_counted_and_nothing_is_changed(self, sink, how):
        outputs = stage(sink, 0, 5) + stage(sink, 5, 7, subtask=1) + stage(sink, 7, 8, generation=2)
        for output in outputs[:2]:
            path = sink.directory.staging / StagedOutput.from_json(output).staged
            path.unlink() if how == "gone" else path.write_bytes(b"PAR1")
        before = sorted(sink.directory.path.rglob("*"))
        lost = sink.committer().outlook(1, outputs)
        assert isinstance(lost, Lost)
        assert (lost.rows, lost.gone) == (7, list(outputs[:2]))
        assert re.search(r"2 of 3 files .* \(7 rows,", lost.why)
        assert sorted(sink.directory.path.rglob("*")) == before

    def test_committed_files_that_somebody_took_away_are_no_loss(self, sink):
        outputs = stage(sink, 0, 5)
        sink.committer().commit(1, outputs)
        for file in committed_files(sink.path):
            file.unlink()
        assert sink.committer().outlook(1, outputs) == Committed()


class TestReading:
    """Committed rows are read as they were written, or not at all."""

    def test_a_page_that_changed_is_noticed(self, sink):
        rows = pa.record_batch({"n": pa.array(range(0, 7_919_000, 7_919), pa.int64())})
        sink = ParquetSink(sink.path, compression="none")
        writer = CommittingSink(open_writer(sink, 1))
        writer.write(rows)
        sink.committer().commit(1, writer.snapshot(1)().committables)
        (file,) = committed_files(sink.path)
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 1
        file.write_bytes(data)
        expect(CorruptCheckpointError, ErrorCode.OBJECT_MISSING, "cannot read the committed output",
               read_committed, sink.path)  # fmt: skip

    def test_another_file_under_a_listed_name_is_noticed(self, sink):
        sink.committer().commit(1, stage(sink, 0, 5))
        (file,) = committed_files(sink.path)
        pq.write_table(pq.read_table(file).slice(0, 3), file)
        expect(CorruptCheckpointError, ErrorCode.OBJECT_MISSING, "3 rows, and 5 were committed",
               read_committed, sink.path)  # fmt: skip

    def test_types_that_do_not_fit_together_are_one_line(self, sink):
        sink.committer().commit(1, stage(sink, 0, 2))
        other = pa.schema([("n", pa.string())])
        writer = CommittingSink(sink.open(SubtaskContext("sink", 0, 2, 128, 2), other))
        writer.write(pa.record_batch({"n": ["a"]}, schema=other))
        sink.committer().commit(2, writer.snapshot(2)().committables)
        expect(ConfigurationError, ErrorCode.WRONG_SCHEMA, "do not have the same columns",
               read_committed, sink.path)  # fmt: skip
