"""A reader takes more files between two polls, and its positions do not grow with them."""

from contextlib import closing
from pathlib import Path

import psutil
import pyarrow as pa

from laminar_core.connectors.discovery import first_splits
from laminar_core.connectors.files.file_reader import READ_FILES
from laminar_core.connectors.files.file_source import FileSource
from laminar_core.connectors.formats.json_format import JsonFormat
from laminar_core.state.splits import rows_read

COLUMNS = pa.schema([("n", pa.int64())])


def source_of(folder: Path, files: int, lines: int = 3) -> FileSource:
    for at in range(files):
        data = b"".join(b'{"n":%d}\n' % (at * lines + n) for n in range(lines))
        (folder / f"{at:03}.json").write_bytes(data)
    return FileSource(folder, JsonFormat(), COLUMNS)


def test_files_that_are_added_are_read_after_those_before_them(tmp_path: Path) -> None:
    source = source_of(tmp_path, 6)
    splits = first_splits(source)
    with closing(source.open(splits.slice(0, 2))) as reader:
        seen = []
        for at in range(2, 7):
            for _ in range(2):
                batch = reader.poll(2)
                seen += [] if batch is None else batch.rows.column("n").to_pylist()
            if at < 6:
                reader.add(splits.slice(at, 1))
        while not reader.finished:
            batch = reader.poll(2)
            seen += [] if batch is None else batch.rows.column("n").to_pylist()
        assert seen == list(range(18))


def test_all_files_that_were_read_are_one_row_with_the_sum_of_their_lines(tmp_path: Path) -> None:
    source = source_of(tmp_path, 30)
    with closing(source.open(first_splits(source))) as reader:
        while not reader.finished:
            reader.poll(2)
        (row,) = reader.position().to_pylist()
    assert (row["split_id"], row["split"], row["rows_read"]) == (29, READ_FILES, 90)
    assert (row["done"], row["rows_total"]) == (True, 90)


def test_rows_of_files_that_several_workers_have_read_are_added_up(tmp_path: Path) -> None:
    """After a change of parallelism one worker has the rows of two."""
    source = source_of(tmp_path, 4)
    splits = first_splits(source)
    positions = []
    for part in (splits.slice(0, 2), splits.slice(2, 1)):
        with closing(source.open(part)) as reader:
            while not reader.finished:
                reader.poll(10)
            positions.append(reader.position())
    with closing(source.open(pa.concat_tables([*positions, splits.slice(3)]))) as reader:
        position = reader.position()
        assert position["split"].to_pylist() == [READ_FILES, "003.json"]
        assert rows_read(position) == 9


def test_no_more_than_one_file_is_open_and_none_after_the_end(tmp_path: Path) -> None:
    source = source_of(tmp_path, 5)

    def open_files() -> list[str]:
        handles = [Path(handle.path) for handle in psutil.Process().open_files()]
        return [handle.name for handle in handles if handle.parent == tmp_path]

    with closing(source.open(first_splits(source))) as reader:
        while not reader.finished:
            reader.poll(2)
            assert len(open_files()) <= 1
        assert open_files() == []
        reader.add(first_splits(source))
        reader.poll(1)
        assert len(open_files()) == 1
    assert open_files() == []
