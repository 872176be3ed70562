"""Drivers that slept within a commit, and woke up beside their successors (ADR-0009)."""

from pathlib import Path

import pytest

from laminar_core.connectors import output_directory
from laminar_core.connectors.outlook import Lost
from laminar_core.connectors.output_directory import OutputDirectory
from laminar_core.connectors.parquet_commit import committed_files, listed_files
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from tests.connectors.output_runs import (
    SCHEMA,
    Death,
    batch,
    committed,
    open_writer,
    stage,
    visible,
)


@pytest.fixture
def sink(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    sink.check(SCHEMA)
    return sink


def expect(kind, code, said, act, *args):
    with pytest.raises(kind, match=said) as caught:
        act(*args)
    assert caught.value.code is code
    assert "\n" not in str(caught.value)


def test_a_driver_that_slept_takes_back_nothing_of_its_successor(sink):
    committer = sink.committer()
    committer.commit(1, stage(sink, 0, 5, generation=1))
    committer.commit(2, stage(sink, 5, 7, checkpoint_id=2, generation=1))
    committer.withdraw_after(1, 3)  # Generation 3, while generation 2 sleeps before the same call.
    committer.commit(3, stage(sink, 5, 9, checkpoint_id=3, generation=3))
    committer.withdraw_after(1, 2)
    assert committed(sink.path) == visible(sink.path) == list(range(9))


@pytest.mark.parametrize("before", ["publish", "write_manifest"])
def test_files_that_a_driver_lists_after_its_successor_count_once(sink, monkeypatch, before):
    """It falls asleep within the commit of a checkpoint, and later ones have carried its files."""
    writer, committer = open_writer(sink, 1), sink.committer()
    writer.write(batch(0, 5))
    first = writer.snapshot(1)().committables
    writer.write(batch(5, 9))
    second = writer.snapshot(2)().committables
    go_on = getattr(OutputDirectory, before)

    def succeeded(*arguments):
        monkeypatch.undo()
        committer.commit(2, second)
        committer.withdraw_after(2, 2)
        committer.discard_uncommitted(2)
        assert committed(sink.path) == list(range(9))
        return go_on(*arguments)

    monkeypatch.setattr(OutputDirectory, before, succeeded)
    sink.committer().commit(1, first)
    assert committed(sink.path) == visible(sink.path) == list(range(9))
    assert len(committed_files(sink.path)) == 2
    committer.commit(2, second)
    assert committed(sink.path) == list(range(9))


def test_files_that_a_driver_lists_after_their_withdrawal_stay_withdrawn(sink, monkeypatch):
    """It falls asleep between the renames and the manifest, and its successor falls back."""
    committer, go_on = sink.committer(), OutputDirectory.write_manifest
    before = stage(sink, 0, 5)
    committer.commit(1, before)
    lost = stage(sink, 5, 9, checkpoint_id=2)

    def succeeded(*arguments):
        monkeypatch.undo()
        restart(committer, 1, before, generation=2)
        assert go_on(*arguments)
        assert listed_files(sink.directory, 2)
        assert committer.last_committed() == 1
        committer.commit(3, stage(sink, 5, 12, checkpoint_id=3, generation=2))
        return True

    monkeypatch.setattr(OutputDirectory, "write_manifest", succeeded)
    committer.commit(2, lost)
    restart(committer, 3, (), generation=3)
    assert committed(sink.path) == visible(sink.path) == list(range(12))
    assert committer.last_committed() == 3
    expect(CorruptCheckpointError, ErrorCode.OBJECT_MISSING, "withdrawn by a newer generation",
           committer.commit, 2, lost)  # fmt: skip
    outlook = committer.outlook(2, [*before, *lost])
    assert isinstance(outlook, Lost)
    assert (outlook.rows, outlook.gone) == (4, list(lost))


def restart(committer, checkpoint_id, committables, generation):
    committer.commit(checkpoint_id, committables)
    committer.discard_uncommitted(generation)
    committer.withdraw_after(checkpoint_id, generation)


def test_two_drivers_that_write_one_manifest_do_not_harm_each_other(sink, monkeypatch):
    """The other one is killed right after it opened its file."""
    outputs, directory = stage(sink, 0, 5), sink.directory
    link, opened = Path.hardlink_to, Path.open

    def killed(path, *arguments):
        opened(path, *arguments).close()
        raise Death

    def linked(*arguments):
        monkeypatch.setattr(Path, "open", killed)
        with pytest.raises(Death):
            directory.write_manifest(1, b"{}")
        monkeypatch.undo()
        link(*arguments)

    monkeypatch.setattr(Path, "hardlink_to", linked)
    sink.committer().commit(1, outputs)
    assert committed(sink.path) == list(range(5))
    assert len(list(directory.commits.iterdir())) == 2, "what was opened is still there"
    sink.committer().discard_uncommitted(2)
    assert list(directory.commits.iterdir()) == [directory.manifest_path(1)]


def test_a_driver_that_renames_a_file_for_its_successor_is_no_other_run(sink, monkeypatch):
    outputs, size_of = stage(sink, 0, 5), output_directory._size_of

    def faster(path):
        found = size_of(path)
        monkeypatch.undo()
        sink.committer().commit(1, outputs)
        return found

    monkeypatch.setattr(output_directory, "_size_of", faster)
    sink.committer().commit(1, outputs)
    assert committed(sink.path) == list(range(5))


def test_a_file_that_vanishes_before_its_rename_may_have_its_final_name(sink, monkeypatch):
    outputs, rename = stage(sink, 0, 5), Path.rename

    def faster(*arguments):
        monkeypatch.undo()
        sink.committer().commit(1, outputs)
        rename(*arguments)

    monkeypatch.setattr(Path, "rename", faster)
    sink.committer().commit(1, outputs)
    assert committed(sink.path) == list(range(5))


@pytest.mark.parametrize("asleep", ["manifest", "write_manifest"])
def test_a_manifest_with_a_part_of_the_files_is_completed_by_older_ones(sink, monkeypatch, asleep):
    """The other driver listed the first file with the checkpoint that staged it."""
    first = stage(sink, 0, 5)
    both = first + stage(sink, 5, 9, checkpoint_id=2, subtask=1)
    go_on = getattr(OutputDirectory, asleep)

    def faster(*arguments):
        if arguments[1] == 2:
            monkeypatch.undo()
            sink.committer().commit(1, first)
            sink.committer().commit(2, both)
        return go_on(*arguments)

    monkeypatch.setattr(OutputDirectory, asleep, faster)
    sink.committer().commit(2, both)
    assert committed(sink.path) == list(range(9))
    assert [len(listed_files(sink.directory, at)) for at in (1, 2)] == [1, 1]


def test_a_manifest_of_another_run_that_comes_first_is_refused(sink, monkeypatch):
    outputs = stage(sink, 0, 5)
    other = stage(sink, 5, 9, subtask=1)
    go_on = OutputDirectory.write_manifest

    def faster(*arguments):
        monkeypatch.undo()
        sink.committer().commit(1, other)
        return go_on(*arguments)

    monkeypatch.setattr(OutputDirectory, "write_manifest", faster)
    expect(ConfigurationError, ErrorCode.INVALID_OPTION, "checkpoint 1 of another run",
           sink.committer().commit, 1, outputs)  # fmt: skip
    assert committed(sink.path) == list(range(5, 9))
