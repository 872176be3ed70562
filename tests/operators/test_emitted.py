"""Results of a user's function have the declared columns and outputs, or one line says so."""

import pyarrow as pa
import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.operators.base import Side
from laminar_core.operators.emitted import require_emitted, require_side

SCHEMA = pa.schema([("n", pa.int64())])
ROWS = pa.record_batch([pa.array([1])], schema=SCHEMA)
OTHER = pa.record_batch({"s": ["a"]})


def test_declared_rows_pass() -> None:
    assert require_emitted(ROWS, SCHEMA, "it emitted") is ROWS
    assert require_side(Side("a", ROWS), {"a": SCHEMA}, "it emitted") is ROWS


@pytest.mark.parametrize(("given", "said"), [(OTHER, r"\(s string\)"), (7, "int"), (None, "None")])
def test_others_are_refused(given: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"it emitted {said}.* instead of \(n int64\)"):
        require_emitted(given, SCHEMA, "it emitted")


def test_an_unknown_side_output_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"output 'c', which is not declared.*: a, b"):
        require_side(Side("c", ROWS), {"b": SCHEMA, "a": SCHEMA}, "it emitted")


def test_a_side_output_has_its_own_columns() -> None:
    with pytest.raises(ConfigurationError, match=r"emitted to side 'a' \(s string\) instead of"):
        require_side(Side("a", OTHER), {"a": SCHEMA}, "it emitted")
