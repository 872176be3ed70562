"""Columns with dictionaries, at any depth, put together where pyarrow cannot, or does it wrongly.

pyarrow makes other numbers of half floats when it unites dictionaries, and unites none of nested
values, of identifiers, or with null among the values.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.errors import DataError, ErrorCode


def has_dictionary(of: pa.DataType) -> bool:
    """Return whether values of this type, or parts of them, are encoded as a dictionary."""
    return pa.types.is_dictionary(of) or any(map(has_dictionary, _parts_of(of)))


def require_readable(column: str, of: pa.DataType) -> None:
    """Refuse what pyarrow writes into a file and then does not read: a dictionary of identifiers.

    Raises:
        DataError: it is, or has within it, a dictionary of an extension type (NOT_ENCODABLE).
    """
    if pa.types.is_dictionary(of) and isinstance(of.value_type, pa.BaseExtensionType):
        raise DataError(
            ErrorCode.NOT_ENCODABLE,
            f"column {column!r} has a dictionary of {of.value_type}, which no Arrow file can hold:"
            " leave out the encoding as a dictionary",
        )
    for part in _parts_of(of):
        require_readable(column, part)


def can_be_joined(of: pa.DataType) -> bool:
    """Return whether pyarrow makes the right column of several, or refuses them."""
    if pa.types.is_dictionary(of):
        values = of.value_type
        is_extension = isinstance(values, pa.BaseExtensionType)
        return not (is_extension or pa.types.is_float16(values) or pa.types.is_nested(values))
    return all(map(can_be_joined, _parts_of(of)))


def _parts_of(of: pa.DataType) -> list[pa.DataType]:
    if isinstance(of, pa.BaseExtensionType):
        return [of.storage_type]
    if pa.types.is_dictionary(of):
        return [of.value_type]
    return [of.field(number).type for number in range(of.num_fields)]


def joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return arrays of one type as one, with one dictionary wherever there are some.

    Raises:
        DataError: there are more values than an index can name, or dictionaries in a type in which
            they cannot be united (NOT_ENCODABLE).
    """
    arrays = [array for array in arrays if len(array)] or arrays[:1]
    of = arrays[0].type
    if len(arrays) == 1:
        return arrays[0]
    if can_be_joined(of):
        try:
            return pa.concat_arrays(arrays)
        except pa.ArrowInvalid:
            if not has_dictionary(of):
                raise
    if pa.types.is_dictionary(of):
        return _one_dictionary(arrays)
    return _nested(of, arrays)


def encoded(values: pa.Array) -> pa.DictionaryArray:
    """Return values with a dictionary of those that are not null.

    Equal ones are in it several times if they are of a type that pyarrow does not compare.
    """
    if pa.types.is_float16(values.type):
        bits = values.view(pa.uint16()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(bits.indices, bits.dictionary.view(values.type))
    try:
        return values.dictionary_encode()
    except pa.ArrowNotImplementedError:
        known = values.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(known) - 1, mask=~known)
        return pa.DictionaryArray.from_arrays(places, values.filter(pa.array(known)))


def _one_dictionary(arrays: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    of = arrays[0].type
    found: list[pa.Array] = []
    indices: list[pa.Array] = []
    start = 0
    for array in arrays:
        if not found or not array.dictionary.equals(found[-1]):
            start += len(found[-1]) if found else 0
            found.append(array.dictionary)
        indices.append(call_function("add", [array.indices.cast(pa.int64()), pa.scalar(start)]))
    values = encoded(joined(found))
    if len(values.dictionary) - 1 > np.iinfo(of.index_type.to_pandas_dtype()).max:
        raise _not_joined(of, "have more values together than an index can name: widen its type")
    places = values.indices.take(pa.concat_arrays(indices)).cast(of.index_type)
    return pa.DictionaryArray.from_arrays(places, values.dictionary, ordered=of.ordered)


def _nested(of: pa.DataType, arrays: Sequence[pa.Array]) -> pa.Array:
    types = pa.types
    nulls = pa.concat_arrays([array.is_null() for array in arrays])
    if types.is_struct(of):
        columns = [joined([a.field(number) for a in arrays]) for number in range(of.num_fields)]
        return pa.StructArray.from_arrays(columns, fields=list(of), mask=nulls)
    if types.is_list(of) or types.is_large_list(of):
        values = joined([_behind_offsets(array, array.values) for array in arrays])
        made = pa.ListArray if types.is_list(of) else pa.LargeListArray
        return made.from_arrays(_offsets(arrays), values, type=of, mask=nulls)
    if types.is_fixed_size_list(of):
        size = of.list_size
        values = joined([a.values.slice(a.offset * size, len(a) * size) for a in arrays])
        return pa.FixedSizeListArray.from_arrays(values, type=of, mask=nulls)
    if types.is_map(of):
        keys = joined([_behind_offsets(array, array.keys) for array in arrays])
        items = joined([_behind_offsets(array, array.items) for array in arrays])
        return pa.MapArray.from_arrays(_offsets(arrays), keys, items, type=of, mask=nulls)
    raise _not_joined(of, "cannot be united in this type: leave out the encoding as a dictionary")


def _behind_offsets(array: pa.Array, values: pa.Array) -> pa.Array:
    """Return the values of the lists of an array, which may be a slice."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, last - first)


def _offsets(arrays: Sequence[pa.Array]) -> pa.Array:
    lengths = [np.diff(array.offsets.to_numpy()) for array in arrays]
    return pa.array(np.append(0, np.cumsum(np.concatenate(lengths))), arrays[0].offsets.type)


def _not_joined(of: pa.DataType, why: str) -> DataError:
    return DataError(ErrorCode.NOT_ENCODABLE, f"dictionaries of a column of type {of} {why}")
