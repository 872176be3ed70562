"""Places for the keys of many batches: a key has the same place in each of them.

Rows of many batches can then be reduced in the same arrays. ``numbered_keys`` numbers the keys of
one batch, and numbers those of the next one differently.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.compute import SetLookupOptions, call_function

from laminar_core.aggregates.dense import can_be_listed
from laminar_core.aggregates.grouping import is_short_decimal
from laminar_core.aggregates.numbered_keys import ADDRESSES_PER_ROW_MAX, Numbers, distances, wide

KEYS_PER_ROW_MAX = 0.5
"""Distinct keys for each row of a batch; with more, looking them up costs more than it saves."""

SPARE = 16
"""A range of integers gets room for one part in so many on each side.

The next batch nearly always has an integer a little beyond those of the first one, and then all
results would have to leave the bundle before the range can grow.
"""


@dataclass(frozen=True, slots=True, eq=False)
class IntegerPlaces:
    """Integers that lie close together: their distance from ``least`` is the place."""

    data_type: pa.DataType
    least: int
    count: int

    @classmethod
    def of(cls, key: pa.ChunkedArray, known: Self | None, row_count: int) -> Self | None:
        """Return places for these keys, ``known`` if it has them; None: the range is too wide.

        There is at least one key, and there are no nulls. ``row_count`` is the number of rows that
        share the cost of the places.
        """
        values: npt.NDArray[np.integer] = key.to_numpy()
        least, most = int(values.min()), int(values.max())
        count_max = ADDRESSES_PER_ROW_MAX * row_count
        if known is not None:
            known_most = known.least + known.count - 1
            if known.least <= least and most <= known_most:
                return known if known.count <= count_max else None
            both = min(least, known.least), max(most, known_most)
            if both[1] - both[0] < count_max:
                least, most = both
        spare = count_max - (most - least + 1)
        if spare < 0:
            return None
        spare = min(spare // 2, (most - least) // SPARE)
        limits = np.iinfo(values.dtype)
        least, most = max(least - spare, limits.min), min(most + spare, limits.max)
        return cls(key.type, least, most - least + 1)

    def keeps(self, known: "Places") -> bool:
        """Return whether all keys of ``known`` have the places that they have there."""
        return self is known

    def of_rows(self, key: pa.ChunkedArray, out: Numbers) -> Numbers:
        """Return the place of each row; ``out``, which is as long, may be used for that."""
        return distances(key.to_numpy(), self.least, out)

    def keys(self, places: Numbers) -> pa.Array:
        """Return the keys at these places."""
        kind = wide(self.data_type.to_pandas_dtype())
        return pa.array(places.astype(kind) + kind(self.least)).cast(self.data_type)


@dataclass(frozen=True, slots=True, eq=False)
class ListedPlaces:
    """Keys of a dictionary, in the order in which dictionaries had them first."""

    first: pa.Array
    """The dictionary that the list began with."""
    listed: pa.Array
    count: int
    """Number of places; the last ones may have no key yet."""
    dictionary: pa.Array
    """The last one that was looked up."""
    of_dictionary: Numbers

    @classmethod
    def of(cls, key: pa.ChunkedArray, known: Self | None) -> Self | None:
        """Return places for these keys, ``known`` if it has them; None: the keys are too many.

        There is at least one key, and there are no nulls.
        """
        dictionary = key.chunk(0).dictionary
        if known is not None and dictionary.equals(known.dictionary):
            return known
        keys_max = KEYS_PER_ROW_MAX * len(key)
        if dictionary.null_count or len(dictionary) > keys_max:
            return None
        if known is None or len(known.listed) > keys_max:
            listed = dictionary.unique()
            places = _places(dictionary, listed)
            return cls(dictionary, listed, 2 * len(listed), dictionary, places)
        places = _looked_up(dictionary, known.listed)
        if places.null_count:
            new = dictionary.filter(places.is_null()).unique()
            listed = pa.concat_arrays([known.listed, new])
            count = known.count if len(listed) <= known.count else 2 * len(listed)
            return cls(known.first, listed, count, dictionary, _places(dictionary, listed))
        return replace(
            known, dictionary=dictionary, of_dictionary=places.to_numpy().astype(np.intp)
        )

    def keeps(self, known: "Places") -> bool:
        """Return whether all keys of ``known`` have the places that they have there."""
        is_same_list = isinstance(known, ListedPlaces) and self.first is known.first
        return is_same_list and self.count == known.count

    def of_rows(self, key: pa.ChunkedArray, out: Numbers) -> Numbers:
        """Return the place of each row in ``out``, which is as long."""
        indices = key.chunk(0).indices.to_numpy()
        # With mode="clip" numpy checks no index, which halves the time; so this checks them all.
        if indices.min() < 0 or indices.max() >= len(self.of_dictionary):
            raise IndexError("a dictionary has no value for an index")
        return np.take(self.of_dictionary, indices, out=out, mode="clip")

    def keys(self, places: Numbers) -> pa.Array:
        """Return the keys at these places."""
        return self.listed.take(pa.array(places))


Places = IntegerPlaces | ListedPlaces


@dataclass(frozen=True, slots=True, eq=False)
class KeyPlaces:
    """A place for each combination of values of the key columns."""

    columns: Sequence[Places]
    count: int

    @classmethod
    def of(cls, keys: Sequence[pa.ChunkedArray], known: Self | None, row_count: int) -> Self | None:
        """Return places for these keys, ``known`` if it has them; None: there would be too many.

        There is at least one row and one column. ``row_count`` is the number of rows that share the
        cost of the places.
        """
        columns: list[Places] = []
        for number, key in enumerate(keys):
            places = _places_of(key, known and known.columns[number], row_count)
            if places is None:
                return None
            columns.append(places)
        count = math.prod(places.count for places in columns)
        if count > ADDRESSES_PER_ROW_MAX * row_count:
            return None
        if known is not None and columns == [*known.columns]:
            return known
        return cls(columns, count)

    def keeps(self, known: Self) -> bool:
        """Return whether all keys of ``known`` have the places that they have there."""
        pairs = zip(self.columns, known.columns, strict=True)
        return all(places.keeps(before) for places, before in pairs)

    def of_rows(self, keys: Sequence[pa.ChunkedArray], out: Numbers) -> Numbers:
        """Return the place of each row; ``out``, which is as long, may be used for that."""
        [(first, key), *others] = zip(self.columns, keys, strict=True)
        at = first.of_rows(key, out)
        for places, other in others:
            at = at * places.count + places.of_rows(other, out)
        return at

    def keys(self, at: Numbers) -> list[pa.Array]:
        """Return the keys at these places, by column."""
        keys: list[pa.Array] = []
        for places in reversed(self.columns[1:]):
            at, here = np.divmod(at, places.count)
            keys.insert(0, places.keys(here))
        return [self.columns[0].keys(at), *keys]


def _places_of(key: pa.ChunkedArray, known: Places | None, row_count: int) -> Places | None:
    if pa.types.is_integer(key.type):
        integers = known if isinstance(known, IntegerPlaces) else None
        return None if key.null_count else IntegerPlaces.of(key, integers, row_count)
    if can_be_listed(key) and not is_short_decimal(key.type.value_type):
        return ListedPlaces.of(key, known if isinstance(known, ListedPlaces) else None)
    return None


def _looked_up(dictionary: pa.Array, listed: pa.Array) -> pa.Array:
    return call_function("index_in", [dictionary], SetLookupOptions(listed))


def _places(dictionary: pa.Array, listed: pa.Array) -> npt.NDArray[np.intp]:
    return _looked_up(dictionary, listed).to_numpy().astype(np.intp)
