"""Groups of row numbers, for functions that need all rows of a group at once.

pyarrow hashes the keys once and lists the row numbers of each group; all later steps are arithmetic
on arrays of numbers. No function reads a key, and none loops over rows in Python.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import call_function

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RowGroups:
    """The rows of a table by group.

    Shapes: ``order`` has all row numbers, grouped, and in order of arrival within a group;
    ``starts`` has where each group begins in ``order``, and the end of the last one.
    """

    order: Integers
    starts: Integers

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.starts) - 1

    def numbers(self) -> Integers:
        """Return the group number of each row, in the order of rows."""
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.repeat(np.arange(self.count), np.diff(self.starts))
        return numbers


def one_group(row_count: int) -> RowGroups:
    """Return a single group of all rows, even if there are none."""
    return RowGroups(np.arange(row_count), np.array([0, row_count]))


def listed_groups(row_numbers: pa.ChunkedArray) -> RowGroups:
    """Read the lists of row numbers that pyarrow's ``hash_list`` gave for each group."""
    lists = row_numbers.combine_chunks()
    if not len(lists):
        return RowGroups(np.empty(0, np.int64), np.zeros(1, np.int64))
    starts = lists.offsets.to_numpy().astype(np.int64)
    return RowGroups(lists.flatten().to_numpy(), starts - starts[0])


class StateFunction(Protocol):
    """Partial state of one function over all groups at once: how it begins and how it merges.

    The state of a group is one value of ``state_type``, often a struct or a list. Both verbs give
    one value per group. They are pure, and merging is associative, so that it does not matter
    where rows were cut into batches; within the stated tolerance for floats and sketches.
    """

    @property
    def label(self) -> str:
        """The name in state columns."""
        ...

    @property
    def version(self) -> int:
        """The version of the state's meaning.

        Partial state is a format and must stay readable for ever (ERRATA 1.10).
        """
        ...

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the type of the state over columns of these types; None if unsupported."""
        ...

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Return the state of each group, computed from input rows."""
        ...

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Return the state of each group, merged from rows of state."""
        ...


def as_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return the column as one contiguous array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # pyarrow cannot combine no chunks of a dictionary, whose values may be of any type.
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def known_rows(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are not null."""
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()  # pyarrow 21 looks at the indices only.
    return call_function("is_valid", [column]).to_numpy(zero_copy_only=False)


def sums(numbers: Integers, values: npt.NDArray[Any], group_count: int) -> npt.NDArray[np.float64]:
    """Add up the values of each group; also of none, which numpy would make integers."""
    return np.bincount(numbers, values, group_count).astype(np.float64)


def listed(group_numbers: Integers, values: pa.Array, group_count: int) -> pa.ListArray:
    """Return one list of ``values`` per group; they come sorted by ``group_numbers``."""
    ends = np.cumsum(np.bincount(group_numbers, minlength=group_count))
    offsets = pa.array(np.append(0, ends).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values)


def unlisted(lists: pa.Array, group_numbers: Integers) -> tuple[Integers, pa.Array]:
    """Group number and value of every item of a column of lists without nulls."""
    lengths = call_function("list_value_length", [lists]).to_numpy(zero_copy_only=False)
    return np.repeat(group_numbers, lengths), lists.flatten()
