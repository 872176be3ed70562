"""Group rows with pyarrow's hash aggregation, with Spark's answers where the two differ.

They differ in three places. pyarrow lets an integer sum wrap; here it is exact or an error. pyarrow
skips NaN in a maximum; Spark takes it for the largest number, so one NaN makes the maximum NaN.
(Minima agree: NaN only if there is no other value.) Both checks cost one cheap scan of the column;
only a column that fails it takes the slow path. And keys are compared as ``group_keys`` says.

The aggregation runs in the calling thread, because in a job every core already runs a task.
"""

# An empty list of columns has no type of its own.
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.group_keys import flat_keys, restored_key
from laminar_core.aggregates.row_groups import RowGroups, listed_groups, one_group
from laminar_core.errors import DataError, ErrorCode

INT64_MAX = 2**63 - 1
_WIDE = pa.decimal128(38, 0)  # Holds 10**19 of the largest 64-bit integers.
_SPARE_DIGITS = 10  # A sum has so many more digits than its values, as in Spark.

_Answer = Callable[[pa.Table], pa.ChunkedArray | pa.Array]

Fold = Callable[[RowGroups], pa.Array]
"""Reduces what it has of the rows to one value per group, where no call of pyarrow does."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """Reduce ``column`` of each group by ``function`` and call the result ``name``.

    A count without a column counts rows. ``first_row`` is the number of the first row of the group,
    and has no column. ``sum_type``: the type of a sum, if it is not to follow from the type of the
    column.
    """

    name: str
    function: Literal["count", "sum", "min", "max", "first_row"] | Fold
    column: str | None
    sum_type: pa.DataType | None = None


def group(
    keys: Mapping[str, pa.ChunkedArray], rows: pa.Table, reductions: Sequence[Reduction]
) -> pa.Table:
    """Reduce ``rows`` to one row for each distinct combination of values in ``keys``.

    Shapes: ``keys`` are as long as ``rows``, by their name in the result; without any, all rows are
    one group. Returns the keys, then one column per reduction; rows in an order that the input
    determines. It is often the order of first appearance, but pyarrow does not promise it.
    Nulls are skipped; a group without values reduces to null (a count to 0). Null keys are equal,
    and so are NaN, and both zeros. Dictionary-encoded keys are compared by their index, so they
    repeat if the dictionary does; those of floats or structs come back as plain values.

    Raises:
        DataError: an integer sum leaves 64 bits (ARITHMETIC_OVERFLOW).
    """
    flat = [column for key in keys.values() for column in flat_keys(key)]
    one_pass = _OnePass(flat, rows)
    answers = [_plan(one_pass, reduction) for reduction in reductions]
    grouped = one_pass.run()
    found = iter(grouped.columns[: len(flat)])
    columns = [restored_key(key.type, found) for key in keys.values()]
    columns += [answer(grouped) for answer in answers]
    return pa.Table.from_arrays(columns, [*keys, *(reduction.name for reduction in reductions)])


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values, without a dictionary encoding."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the column without a dictionary encoding."""
    if not pa.types.is_dictionary(column.type):
        return column
    chunks = [chunk.dictionary_decode() for chunk in column.chunks]  # Structs cannot be cast.
    return pa.chunked_array(chunks, column.type.value_type)


def has_nulls(column: pa.ChunkedArray) -> bool:
    """Return whether a value is null, be it an index or what an index stands for."""
    if column.null_count:
        return True
    is_encoded = pa.types.is_dictionary(column.type)
    return is_encoded and any(chunk.dictionary.null_count for chunk in column.chunks)


class _OnePass:
    """The calls one aggregation makes; equal calls are made once.

    Columns get names of our own, so that no name of the user's is ambiguous.
    """

    def __init__(self, keys: Iterable[pa.ChunkedArray], rows: pa.Table) -> None:
        self.rows = rows
        self._inputs = {f"key {i}": key for i, key in enumerate(keys)}
        self._keys = list(self._inputs)
        self._positions: dict[tuple[str | None, str], int] = {}
        self._groups: RowGroups | None = None

    def column(self, name: str) -> pa.ChunkedArray:
        return plain_column(self.rows.column(name))

    def call(self, function: str, label: str | None, values: pa.ChunkedArray | None = None) -> int:
        """Ask for ``function`` over ``values``, which ``label`` stands for; return its position."""
        if label is not None:
            self._inputs[label] = values
        return self._positions.setdefault((label, function), len(self._keys) + len(self._positions))

    def list_rows(self) -> int | None:
        """Request the row numbers of each group.

        Return None without keys, where all are one group.
        """
        if not self._keys:
            return None
        return self.call("list", "row", pa.chunked_array([pa.array(np.arange(self.rows.num_rows))]))

    def groups(self, grouped: pa.Table, position: int | None) -> RowGroups:
        """Read the rows of each group; once for all that ask."""
        if self._groups is None:
            self._groups = (
                one_group(self.rows.num_rows)
                if position is None
                else listed_groups(grouped.column(position))
            )
        return self._groups

    def run(self) -> pa.Table:
        if not self._keys and not self._positions:
            return pa.table({})
        calls = [([] if label is None else label, name) for label, name in self._positions]
        # Without keys and columns, something has to say how many rows there are.
        inputs = self._inputs or {"row": np.zeros(self.rows.num_rows, np.bool_)}
        table = pa.table(inputs)
        return table.group_by(self._keys, use_threads=False).aggregate(calls)


def _plan(one_pass: _OnePass, reduction: Reduction) -> _Answer:
    """Make the calls of one reduction; return how to read its result from the outcome."""
    function, column = reduction.function, reduction.column
    if callable(function):
        position = one_pass.list_rows()
        return lambda grouped: function(one_pass.groups(grouped, position))
    if function == "first_row":
        numbers = pa.chunked_array([pa.array(np.arange(one_pass.rows.num_rows))])
        return _column_at(one_pass.call("min", "row number", numbers))
    if column is None:
        return _column_at(one_pass.call("count_all", None))
    match function:
        case "count":
            return _plan_count(one_pass, column)
        case "sum":
            return _plan_sum(one_pass, reduction, column)
        case "min":
            return _plan_min(one_pass, column)
        case "max":
            return _plan_max(one_pass, column)


def _column_at(position: int) -> _Answer:
    return lambda grouped: grouped.column(position)


def _plan_count(one_pass: _OnePass, name: str) -> _Answer:
    if not has_nulls(one_pass.rows.column(name)):
        return _column_at(one_pass.call("count_all", None))
    return _column_at(one_pass.call("count", f"rows {name}", one_pass.column(name)))


# --- sums -------------------------------------------------------------------------------------


def sum_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of a sum of values of ``data_type``; None if they cannot be added."""
    types = pa.types
    if types.is_integer(data_type):
        return pa.int64()
    if types.is_floating(data_type):
        return pa.float64()
    if types.is_decimal256(data_type):
        return pa.decimal256(min(76, data_type.precision + _SPARE_DIGITS), data_type.scale)
    if types.is_decimal(data_type):
        return pa.decimal128(min(38, data_type.precision + _SPARE_DIGITS), data_type.scale)
    return data_type if types.is_duration(data_type) else None


def _plan_sum(one_pass: _OnePass, reduction: Reduction, name: str) -> _Answer:
    values = one_pass.column(name)
    target = reduction.sum_type or sum_type(values.type)
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    if pa.types.is_floating(values.type):
        return _column_at(one_pass.call("sum", f"values {name}", values))
    values = _addable(values)
    position = one_pass.call("sum", f"sum {name}", values)
    return lambda grouped: _narrow(grouped.column(position), target, reduction.name)


def _addable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Make sure that no sum wraps: most often it is known not to, else it gets more digits."""
    if pa.types.is_decimal(values.type):
        values = comparable(values)
        if every_decimal_sum_fits(values):
            return values
        if pa.types.is_decimal256(values.type):
            raise _overflow("a sum", "76 digits")
        return values.cast(pa.decimal256(76, values.type.scale))
    if pa.types.is_duration(values.type):
        values = values.cast(pa.int64())
    return values if every_sum_fits(values) else values.cast(_WIDE)


def every_sum_fits(values: pa.ChunkedArray) -> bool:
    """Return whether no subset of these integers can have a sum beyond 64 bits."""
    extremes = call_function("min_max", [values])
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    return low is None or max(-low, high) * len(values) <= INT64_MAX


def every_decimal_sum_fits(values: pa.ChunkedArray) -> bool:
    """Return whether no sum over a subset of these decimals can exceed Arrow's digits."""
    digits = 38 if pa.types.is_decimal128(values.type) else 76
    extremes = call_function("min_max", [values])
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    if low is None:
        return True
    # As integers: arithmetic on decimals rounds to 28 digits.
    unscaled = [int("".join(map(str, extreme.as_tuple().digits))) for extreme in (low, high)]
    return max(unscaled) * len(values) < 10**digits


def _narrow(sums: pa.ChunkedArray, target: pa.DataType, result: str) -> pa.ChunkedArray:
    try:
        whole = sums.cast(pa.int64()) if pa.types.is_duration(target) else sums
        return whole.cast(target)
    except pa.ArrowInvalid as error:
        limit = "64 bits" if not pa.types.is_decimal(target) else f"{target.precision} digits"
        raise _overflow(result, limit) from error


def _overflow(result: str, limit: str) -> DataError:
    return DataError(
        ErrorCode.ARITHMETIC_OVERFLOW,
        f"{result} leaves {limit}; cast the column to float64 before it is summed",
    )


# --- extremes ---------------------------------------------------------------------------------


def is_ordered(data_type: pa.DataType) -> bool:
    """Return whether values of this type have a smallest and a largest one."""
    types = pa.types
    is_text = types.is_string(data_type) or types.is_large_string(data_type)
    is_bytes = types.is_binary(data_type) or types.is_large_binary(data_type)
    is_time = types.is_temporal(data_type) and not types.is_interval(data_type)
    is_number = types.is_integer(data_type) or types.is_floating(data_type)
    is_other = types.is_boolean(data_type) or types.is_null(data_type)
    is_fixed = types.is_fixed_size_binary(data_type) or types.is_decimal(data_type)
    return is_text or is_bytes or is_time or is_number or is_fixed or is_other


def is_short_decimal(data_type: pa.DataType) -> bool:
    """Return whether these are decimals for which pyarrow lacks most functions."""
    return pa.types.is_decimal(data_type) and data_type.bit_width < pa.decimal128(1).bit_width


def comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values, in the same order, in a type that pyarrow can compare."""
    types = pa.types
    if types.is_float16(values.type):
        return values.cast(pa.float32())
    if types.is_duration(values.type):
        return values.cast(pa.int64())
    if is_short_decimal(values.type):
        return values.cast(pa.decimal128(values.type.precision, values.type.scale))
    return values


def _plan_min(one_pass: _OnePass, name: str) -> _Answer:
    position, data_type = _plan_extremes(one_pass, name)
    return lambda grouped: _extreme(grouped.column(position), 0, data_type)


def _plan_extremes(one_pass: _OnePass, name: str) -> tuple[int, pa.DataType]:
    """Request minimum and maximum together, because pyarrow always computes both."""
    values = one_pass.column(name)
    return one_pass.call("min_max", f"extremes {name}", comparable(values)), values.type


def _extreme(pairs: pa.ChunkedArray, which: int, data_type: pa.DataType) -> pa.ChunkedArray:
    lowest, highest = pairs.flatten()
    found = (lowest, highest)[which]
    if pa.types.is_floating(found.type):
        # pyarrow 21 has infinities in the wrong order for a group that has NaN only.
        nan = pa.scalar(float("nan"), found.type)
        found = call_function("if_else", [call_function("greater", [lowest, highest]), nan, found])
    return found if found.type == data_type else found.cast(data_type)


def _plan_max(one_pass: _OnePass, name: str) -> _Answer:
    position, data_type = _plan_extremes(one_pass, name)
    nan_position = _plan_any_nan(one_pass, name)

    def answer(grouped: pa.Table) -> pa.ChunkedArray:
        highest = _extreme(grouped.column(position), 1, data_type)
        if nan_position is None:
            return highest
        nan = pa.scalar(float("nan"), highest.type)
        # A group of nulls cannot tell whether any is NaN: the fallback keeps its maximum null.
        any_nan = grouped.column(nan_position).fill_null(pa.scalar(value=False))
        return call_function("if_else", [any_nan, nan, highest])

    return answer


def _plan_any_nan(one_pass: _OnePass, name: str) -> int | None:
    values = comparable(one_pass.column(name))
    if not pa.types.is_floating(values.type):
        return None
    is_nan = call_function("is_nan", [values])
    if not call_function("any", [is_nan]).as_py():
        return None
    return one_pass.call("max", f"nan {name}", is_nan)  # "any" of pyarrow 21 mixes rows up.
