"""One pass of pyarrow's hash aggregation, with Spark's answers where the two differ.

They differ in two places. pyarrow lets an integer sum wrap; here it is exact or an error. pyarrow
skips NaN in a maximum; Spark takes it for the largest number, so one NaN makes the maximum NaN.
(Minima agree: NaN only if there is nothing else.) Both checks cost one cheap scan of the column;
only a column that fails it takes the slow path.

The pass runs in the calling thread: in a job all cores already have a task of their own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.errors import DataError, ErrorCode

_INT64_MAX = 2**63 - 1
_WIDE = pa.decimal128(38, 0)  # Holds 10**19 of the largest 64-bit integers.

_Answer = Callable[[pa.Table], pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class Reduction:
    """Reduce ``column`` of each group by ``function`` and call the result ``name``.

    A count without a column counts rows.
    """

    name: str
    function: Literal["count", "sum", "min", "max"]
    column: str | None


def group(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, reductions: Sequence[Reduction]
) -> pa.Table:
    """Reduce ``rows`` to one row for each distinct combination of values in ``keys``.

    Shapes: ``keys`` are at least one column, as long as ``rows``, by their name in the result.
    Returns the keys, then one column per reduction; rows in order of first appearance.
    Nulls are skipped, a group without values reduces to null (a count to 0). Null keys are equal.
    Dictionary-encoded keys are told apart by their index, so they repeat if the dictionary does.

    Raises:
        DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
    """
    one_pass = _OnePass(keys.values(), rows)
    answers = [_plan(one_pass, reduction) for reduction in reductions]
    grouped = one_pass.run()
    columns = grouped.columns[: len(keys)] + [answer(grouped) for answer in answers]
    return pa.Table.from_arrays(columns, [*keys, *(reduction.name for reduction in reductions)])


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Type of the values, whether they are dictionary-encoded or not."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values themselves, without a dictionary."""
    return column.cast(plain_type(column.type)) if pa.types.is_dictionary(column.type) else column


class _OnePass:
    """The calls one aggregation makes; equal calls are made once.

    Columns get names of our own, so that no name of the user's is ambiguous.
    """

    def __init__(self, keys: Iterable[pa.ChunkedArray], rows: pa.Table) -> None:
        self.rows = rows
        self._inputs = {f"key {i}": key for i, key in enumerate(keys)}
        self._keys = list(self._inputs)
        self._positions: dict[tuple[str | None, str], int] = {}

    def column(self, name: str) -> pa.ChunkedArray:
        return plain_column(self.rows.column(name))

    def call(self, function: str, label: str | None, values: pa.ChunkedArray | None = None) -> int:
        """Ask for ``function`` over ``values``, which ``label`` stands for; return its position."""
        if label is not None:
            self._inputs[label] = values
        return self._positions.setdefault((label, function), len(self._keys) + len(self._positions))

    def run(self) -> pa.Table:
        calls = [([] if label is None else label, name) for label, name in self._positions]
        table = pa.table(self._inputs)
        return table.group_by(self._keys, use_threads=False).aggregate(calls)


def _plan(one_pass: _OnePass, reduction: Reduction) -> _Answer:
    """Make the calls of one reduction; return how to read its result from the outcome."""
    column = reduction.column
    if column is None:
        return _column_at(one_pass.call("count_all", None))
    match reduction.function:
        case "count":
            return _plan_count(one_pass, column)
        case "sum":
            return _plan_sum(one_pass, column, reduction.name)
        case "min":
            return _plan_min(one_pass, column)
        case "max":
            return _plan_max(one_pass, column)


def _column_at(position: int) -> _Answer:
    return lambda grouped: grouped.column(position)


def _plan_count(one_pass: _OnePass, name: str) -> _Answer:
    values = one_pass.rows.column(name)
    if not values.null_count:
        return _column_at(one_pass.call("count_all", None))
    return _column_at(one_pass.call("count", f"rows {name}", values))


def _plan_sum(one_pass: _OnePass, name: str, result: str) -> _Answer:
    values = one_pass.column(name)
    if not pa.types.is_integer(values.type):
        return _column_at(one_pass.call("sum", f"values {name}", values))
    if not every_sum_fits(values):
        values = values.cast(_WIDE)
    position = one_pass.call("sum", f"sum {name}", values)
    return lambda grouped: _narrow(grouped.column(position), result)


def every_sum_fits(values: pa.ChunkedArray) -> bool:
    """Tell whether no subset of these integers can have a sum beyond 64 bits."""
    extremes = call_function("min_max", [values])
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    return low is None or max(-low, high) * len(values) <= _INT64_MAX


def _narrow(sums: pa.ChunkedArray, result: str) -> pa.ChunkedArray:
    try:
        return sums.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(
            ErrorCode.ARITHMETIC_OVERFLOW,
            f"{result} leaves 64 bits; cast the column to float64 before it is summed",
        ) from error


def _plan_min(one_pass: _OnePass, name: str) -> _Answer:
    position = _plan_extremes(one_pass, name)
    return lambda grouped: grouped.column(position).flatten()[0]


def _plan_extremes(one_pass: _OnePass, name: str) -> int:
    """Minimum and maximum are one call: pyarrow computes both whichever is wanted."""
    return one_pass.call("min_max", f"values {name}", one_pass.column(name))


def _plan_max(one_pass: _OnePass, name: str) -> _Answer:
    position = _plan_extremes(one_pass, name)
    nan_position = _plan_any_nan(one_pass, name)

    def answer(grouped: pa.Table) -> pa.ChunkedArray:
        highest = grouped.column(position).flatten()[1]
        if nan_position is None:
            return highest
        nan = pa.scalar(float("nan"), highest.type)
        # A group of nulls cannot tell whether any is NaN: the fallback keeps its maximum null.
        any_nan = grouped.column(nan_position).fill_null(pa.scalar(value=False))
        return call_function("if_else", [any_nan, nan, highest])

    return answer


def _plan_any_nan(one_pass: _OnePass, name: str) -> int | None:
    values = one_pass.column(name)
    if not pa.types.is_floating(values.type):
        return None
    is_nan = call_function("is_nan", [values])
    if not call_function("any", [is_nan]).as_py():
        return None
    return one_pass.call("any", f"nan {name}", is_nan)
