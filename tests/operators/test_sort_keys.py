"""Columns to order by are read as a user writes them."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.sort_keys import SortKey

SCHEMA = pa.schema([("price", pa.int64()), ("paid at", pa.int64()), ("odd desc", pa.int64())])


@pytest.mark.parametrize(
    ("text", "column", "descending"),
    [
        ("price", "price", False),
        ("price desc", "price", True),
        ("price DESC", "price", True),
        ("price asc", "price", False),
        ("paid at", "paid at", False),
        ("paid at desc", "paid at", True),
        ("odd desc", "odd desc", False),
        ("odd desc desc", "odd desc", True),
    ],
)
def test_a_column_and_its_direction(text: str, column: str, *, descending: bool) -> None:
    assert SortKey.read(text, SCHEMA) == SortKey(column, descending)


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no column 'cost'"):
        SortKey.read("cost desc", SCHEMA)
    assert str(SortKey("price", descending=True)) == "price desc"
    assert str(SortKey("price")) == "price"


def test_ranks_follow_the_direction() -> None:
    rows = pa.table({"price": [3, 1, 2]})
    assert SortKey("price").ranks(rows)[0].argsort().tolist() == [1, 2, 0]
    assert SortKey("price", descending=True).ranks(rows)[0].argsort().tolist() == [0, 2, 1]
