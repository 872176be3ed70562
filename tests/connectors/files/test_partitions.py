"""Values in names of directories become columns of their type."""

from datetime import date

import pyarrow as pa
import pytest

from laminar_core.connectors.files.partitions import (
    PartitionError,
    partition_values,
    with_partitions,
)

COLUMNS = pa.schema([("day", pa.date32()), ("country", pa.string()), ("hour", pa.int32())])


def values(name: str, columns: pa.Schema = COLUMNS) -> list:
    return [value.as_py() for value in partition_values(name, columns)]


def test_values_have_the_types_of_their_columns_in_the_order_of_the_columns() -> None:
    found = values("hour=07/day=2026-01-31/other=1/country=C%C3%B4te/a.json")
    assert found == [date(2026, 1, 31), "Côte", 7]


def test_the_name_that_hive_gives_to_a_null_is_one() -> None:
    name = "day=2026-01-31/hour=1/country=__HIVE_DEFAULT_PARTITION__/a.json"
    assert values(name)[1] is None
    required = pa.schema([pa.field("country", pa.string(), nullable=False)])
    with pytest.raises(PartitionError, match="country is null and must not be"):
        values(name, required)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("country=x/hour=1/a.json", "in no directory day="),
        ("country=x/hour=1/day=2026-02-30/a.json", "'2026-02-30' does not fit date32"),
        ("day=2026-02-03/country=x/hour=one/a.json", "'one' does not fit int32"),
        ("day=2026-02-03/country=x/hour=1.json", "in no directory hour="),
    ],
)
def test_a_directory_that_is_missing_or_does_not_fit_is_named(name: str, problem: str) -> None:
    with pytest.raises(PartitionError, match=problem):
        values(name)


def test_each_row_of_a_file_has_the_values_of_its_directories() -> None:
    rows = pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})
    columns = pa.schema([("hour", pa.int32())])
    schema = pa.schema([*rows.schema, *columns])
    found = with_partitions(rows, partition_values("hour=5/a", columns), schema)
    assert found.to_pylist() == [{"n": n, "hour": 5} for n in (1, 2, 3)]
    assert (
        with_partitions(rows.slice(0, 0), partition_values("hour=5/a", columns), schema).schema
        == schema
    )
