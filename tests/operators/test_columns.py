"""Column names are checked before anything starts, and the message helps."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.columns import require_columns, require_distinct

SCHEMA = pa.schema([("amount", pa.int64()), ("ts", pa.int64()), ("merchant", pa.string())])


def test_columns_that_are_there_are_accepted() -> None:
    require_columns(SCHEMA, ["merchant", "amount"])
    require_columns(SCHEMA, [])


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA, "no column 'amont'; there are: amount, ts, merchant"),
        (pa.schema([]), "no column 'amont'; there are: none"),
        (
            pa.schema([("amont", pa.int8()), ("amont", pa.int8())]),
            "2 columns called 'amont'; there are: amont, amont",
        ),
    ],
)
def test_a_wrong_name_is_refused_with_the_names_there_are(schema: pa.Schema, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        require_columns(schema, ["amont"])
    assert caught.value.code is ErrorCode.WRONG_SCHEMA
    assert str(caught.value) == message


def test_names_that_clash_are_refused_with_advice() -> None:
    require_distinct(["a", "b"], "rename one")
    with pytest.raises(
        ConfigurationError, match="two columns would be called 'a'; rename"
    ) as caught:
        require_distinct(["a", "b", "a"], "rename one")
    assert caught.value.code is ErrorCode.INVALID_PIPELINE
