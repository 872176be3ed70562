"""Data sets with several parts; ``test_payments_data.py`` has what holds for one part."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from laminar_core.connectors import DatagenSource, Sequence, ZipfKey
from laminar_core.errors import ConfigurationError
from laminar_core.jobs.data_sets import MICROSECONDS, Part, start_us, write_data_set

KEYS = DatagenSource({"key": ZipfKey(5, 1.0, "k")}, rows=50)
NUMBERS = DatagenSource({"n": Sequence()}, rows=30)
PARTS = [Part("keys/key-", KEYS, ("key",)), Part("n-", NUMBERS, ())]
KEY, NUMBER = "keys/key-001.parquet", "n-000.parquet"


def write(path: Path, **parameters: int) -> bool:
    return write_data_set(path, "small", parameters, PARTS, 2, lambda _: None)


def test_each_part_has_its_files_and_its_encoding(tmp_path: Path) -> None:
    assert write(tmp_path / "x", seed=1)
    assert pq.read_table(tmp_path / "x" / "keys").num_rows == 50
    numbers = [pq.read_table(file)["n"].to_pylist() for file in sorted((tmp_path / "x").glob("n*"))]
    assert numbers == [list(range(15)), list(range(15, 30))]
    chunks = [pq.read_metadata(tmp_path / "x" / name).row_group(0) for name in (KEY, NUMBER)]
    assert [chunk.column(0).has_dictionary_page for chunk in chunks] == [True, False]
    described = json.loads((tmp_path / "x" / "_dataset.json").read_text())
    assert described["parameters"] == {"seed": 1}
    assert {KEY, NUMBER} < described["files"].keys()


@pytest.mark.parametrize("file", [KEY, NUMBER])
def test_a_file_that_is_missing_in_any_part_is_written_again(tmp_path: Path, file: str) -> None:
    write(tmp_path / "x")
    assert not write(tmp_path / "x")
    (tmp_path / "x" / file).unlink()
    assert write(tmp_path / "x")
    assert (tmp_path / "x" / file).exists()


def test_somebody_elses_folder_is_refused_by_the_name_of_the_data_set(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ConfigurationError, match="exists and is not a small data set"):
        write(tmp_path)


def test_a_moment_needs_a_time_zone() -> None:
    assert start_us("1970-01-01T00:00:02Z") == 2 * MICROSECONDS
    for start in ("1970-01-01", "soon"):
        with pytest.raises(ConfigurationError, match="with a time zone"):
            start_us(start)
