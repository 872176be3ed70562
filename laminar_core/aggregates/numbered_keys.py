"""Distinct keys, numbered from 0 on, and the number of the key in each row.

Rows can then be reduced in arrays that have a place for each number. Keys that come
dictionary-encoded have numbers already. Integers that lie close together are numbered by their
distance from the least one. Where they do not, and there are many, they are sorted. All other keys
are looked up in a hash table. For 131,072 rows of 100,000 integers the hash table takes seven times
as long as the distance, and for 200,000 rows of 160,000 integers out of ten million twice as long
as sorting.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORD_BITS = 64

ADDRESSES_PER_ROW_MAX = 8
"""Above this, arrays for all integers in the range of the keys cost more than a hash table."""

SORTED_ROWS_MIN = 16_384
"""With fewer rows, what does not depend on their number outweighs the gain of sorting."""

SORTED_KEYS_MIN = 40_000
"""With fewer keys, the hash table fits into the cache. Then it is faster, unless there are at least
half as many keys as rows.
"""

_SAMPLED_SHARE = 64
"""One of so many keys is counted, to estimate how many there are."""
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
"""Multiplied by this, numbers in any regular sequence are spread evenly over 64 bits."""

Numbers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class NumberedKeys:
    """Shapes: ``keys`` has the key of each number, ``of_rows`` the number of each row."""

    keys: pa.Array
    of_rows: Numbers
    index_type: pa.DataType | None = None
    """The type of indices, if the keys were dictionary-encoded; then they come back so."""

    def take(self, numbers: Numbers) -> pa.Array:
        """Return the keys with these numbers, encoded as they were."""
        indices = pa.array(numbers)
        if self.index_type is None:
            return self.keys.take(indices)
        return pa.DictionaryArray.from_arrays(indices.cast(self.index_type), self.keys)


def by_index(key: pa.DictionaryArray) -> NumberedKeys:
    """Number keys by their index, also those of no row; there are no nulls."""
    return NumberedKeys(key.dictionary, key.indices.to_numpy().astype(np.intp), key.type.index_type)


def by_hash(key: pa.ChunkedArray) -> NumberedKeys:
    """Number plain keys in the order in which they appear first; there is at least one."""
    encoded = key.dictionary_encode()
    numbers = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    keys = encoded.chunk(0).dictionary  # All chunks have the same one.
    return NumberedKeys(keys, np.concatenate(numbers).astype(np.intp))


def by_address(key: pa.ChunkedArray) -> NumberedKeys | None:
    """Number integers in ascending order; return None for other types, or too wide a range.

    There is at least one, and there are no nulls.
    """
    if not pa.types.is_integer(key.type):
        return None
    values = key.to_numpy()
    least = int(values.min())
    addresses = int(values.max()) - least + 1
    if addresses > ADDRESSES_PER_ROW_MAX * len(values):
        return None
    at = distances(values, least)
    is_used = np.zeros(addresses, np.bool_)
    is_used[at] = True
    used = np.flatnonzero(is_used)
    kind = wide(values.dtype)
    keys = pa.array(used.astype(kind) + kind(least)).cast(key.type)
    if len(used) == addresses:
        return NumberedKeys(keys, at)
    number_at = np.empty(addresses, np.intp)
    number_at[used] = np.arange(len(used))
    return NumberedKeys(keys, number_at[at])


def by_order(key: pa.ChunkedArray) -> NumberedKeys | None:
    """Number integers in ascending order; return None for other types, few rows, or few keys.

    There are no nulls. The distance of a key from the least one and the position of its row are
    sorted as one integer of 64 bits; None if that is not enough for both. numpy sorts such integers
    several at a time, in registers.
    """
    if not pa.types.is_integer(key.type) or len(key) < SORTED_ROWS_MIN:
        return None
    values = key.to_numpy()
    least = int(values.min())
    position_bits = (len(values) - 1).bit_length()
    if (int(values.max()) - least).bit_length() + position_bits > _WORD_BITS:
        return None
    word = np.uint64
    words = distances(values, least).view(word)
    if estimated_distinct(words) < min(SORTED_KEYS_MIN, len(words) // 2):
        return None
    words = words << word(position_bits)
    words |= np.arange(len(values), dtype=word)
    words.sort()
    rows = (words & word((1 << position_bits) - 1)).view(np.intp)
    words >>= word(position_bits)
    is_new = np.ones(len(words), np.bool_)
    np.not_equal(words[1:], words[:-1], out=is_new[1:])
    numbers = np.cumsum(is_new, dtype=np.intp)
    numbers -= 1
    of_rows = np.empty(len(words), np.intp)
    of_rows[rows] = numbers
    kind = wide(values.dtype)
    keys = words[np.flatnonzero(is_new)].view(kind) + kind(least)
    return NumberedKeys(pa.array(keys).cast(key.type), of_rows)


def estimated_distinct(words: npt.NDArray[np.uint64]) -> int:
    """Estimate the number of different words, by counting those with a small hash.

    It takes 2 ns a word. A sample of the first words would mislead, because partial results come as
    tables that have each key once.
    """
    hash_max = np.uint64((1 << _WORD_BITS) // _SAMPLED_SHARE - 1)
    sample = np.sort(words[words * _GOLDEN_RATIO <= hash_max])
    return _SAMPLED_SHARE * (len(sample) - int(np.count_nonzero(sample[1:] == sample[:-1])))


def distances(values: npt.NDArray[np.integer], least: int, out: Numbers | None = None) -> Numbers:
    """Return how far each value is from the least one; ``out`` may be used for that."""
    kind = wide(values.dtype)
    if least or values.dtype != kind:
        place = None if out is None else out.view(kind)
        values = np.subtract(values, kind(least), dtype=kind, out=place)
    return values.view(np.intp)


def wide(dtype: np.dtype) -> type[np.int64] | type[np.uint64]:
    """Return a type in which distances do not overflow."""
    return np.uint64 if dtype == np.uint64 else np.int64
