"""The frozen 64-bit hash of key columns: it decides which subtask owns a key, for ever.

State is written by key group, and a key's group follows from this hash alone, so changing one bit
of it would strand the state of every checkpoint (ADR-0007). The whole definition, modulo 2**64:

    mix(x)          x ^= x >> 30;  x *= 0xBF58476D1CE4E5B9
                    x ^= x >> 27;  x *= 0x94D049BB133111EB;  x ^= x >> 31
    fold(a, b)      mix(a * G + b)                      G = 0x9E3779B97F4A7C15
    integer v       fold(1, v)                          sign-extended to 64 bits
    text, n bytes   fold(1 + n, sum over k of fold(k + 1, lane[k]))
    float v         fold(1, bits of v as a 64-bit float), with one zero and one NaN
    null            mix(1)
    struct          fold(2, its fields as several columns, in their order)
    several         h = hash of the first column;  h = fold(h, hash of the next column) ...
    no column       0

``lane[k]`` is bytes 8k to 8k+8 of the value, little-endian, padded with zeros. All integer widths
hash as their 64-bit value (uint64 by its bits), booleans as 0 and 1, dates as days and timestamps
as whole microseconds since 1970, times of day and durations in microseconds, so widening a column
or changing its time unit moves no key. A decimal hashes as the text of 32 bytes that are its digits
without the point, a little-endian number: changing the precision moves no key, changing the scale
does. The zero of floats is 0 and their NaN 0x7FF8000000000000; wider floats move no key. The fields
of a struct count without their names. A dictionary-encoded column hashes like its plain values, and
a slice like a fresh array.

Source: the mixer is the finaliser of splitmix64 (Steele, Lea & Flood, OOPSLA 2014).
Tests: ``tests/golden/stable_hash.json`` freezes values; a plain Python reference checks the rest.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.codec.canonical import canonical_floats
from laminar_core.errors import ConfigurationError, ErrorCode

UInt64Array = npt.NDArray[np.uint64]

_G = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_NULL = np.uint64(0x5692161D100B05E5)  # mix(1)
_LANE_BYTES = 8
_LANE_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(_LANE_BYTES + 1)], dtype=np.uint64)

# Below this many values left, their rest at once is cheaper than one lane of all at a time. It
# bounds the work: a single key of a megabyte costs a megabyte, not 131,072 passes over the batch.
_VALUES_PER_PASS_MIN = 64

# Values with more bytes left than this are hashed one by one, which bounds the memory.
_REST_BYTES_MAX = 4_096


def hash_columns(columns: Sequence[pa.Array], rows: int) -> UInt64Array:
    """Hash every row over ``columns``, in their order.

    Shapes: each column has ``rows`` values; returns ``rows`` unsigned 64-bit integers.

    Raises:
        ConfigurationError: a column's type cannot be a key; see ``require_key_type``.
    """
    if not columns:
        return np.zeros(rows, dtype=np.uint64)
    hashes = hash_array(columns[0])
    for column in columns[1:]:
        hashes *= _G
        hashes += hash_array(column)
        _mix(hashes)
    return hashes


def hash_array(array: pa.Array) -> UInt64Array:
    """Hash every value of one column; the result is fresh and may be written to."""
    require_key_type(array.type)
    if pa.types.is_dictionary(array.type):
        return _hash_dictionary(array)
    if pa.types.is_struct(array.type):
        hashes = _hash_struct(array)
    else:
        array = _common(array)
        hashes = _hash_text(array) if _is_text(array.type) else _hash_integers(_as_uint64(array))
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def require_key_type(data_type: pa.DataType) -> None:
    """Check that ``data_type`` can be the type of a key column.

    Raises:
        ConfigurationError: it cannot be a key (UNSUPPORTED_TYPE); the message names a remedy.
    """
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if not _can_be_key(data_type):
        raise ConfigurationError(
            ErrorCode.UNSUPPORTED_TYPE,
            f"a {data_type} column cannot be a key; keys are integers, floats, booleans, decimals,"
            " strings, binary, dates, times, timestamps, durations, or structs of these",
        )


def _can_be_key(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return data_type.num_fields > 0 and all(_can_be_key(field.type) for field in data_type)
    return _is_text(data_type) or _is_integral(data_type) or _has_common_form(data_type)


def key_form(data_type: pa.DataType) -> str:
    """Name the form in which keys of this type hash: equal values of one form have one hash.

    Raises:
        ConfigurationError: it cannot be a key; see ``require_key_type``.
    """
    require_key_type(data_type)
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_struct(data_type):
        return f"structs of ({', '.join(key_form(field.type) for field in data_type)})"
    if pa.types.is_decimal(data_type):
        return f"decimals with {data_type.scale} digits behind the point"
    return next(form for is_form, form in _FORMS if is_form(data_type))


_FORMS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "booleans"),
    (pa.types.is_integer, "integers"),
    (pa.types.is_floating, "floats"),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t), "strings"),
    (lambda t: _is_text(t) or pa.types.is_fixed_size_binary(t), "binary values"),
    (pa.types.is_date, "dates"),
    (pa.types.is_timestamp, "timestamps"),
    (pa.types.is_time, "times"),
    (pa.types.is_duration, "durations"),
    (pa.types.is_null, "nulls"),
)


def _is_text(data_type: pa.DataType) -> bool:
    is_large = pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type)
    return is_large or pa.types.is_string(data_type) or pa.types.is_binary(data_type)


def _is_integral(data_type: pa.DataType) -> bool:
    is_time = pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)
    return is_time or pa.types.is_integer(data_type) or pa.types.is_boolean(data_type)


def _has_common_form(data_type: pa.DataType) -> bool:
    types = pa.types
    is_time = types.is_time(data_type) or types.is_date64(data_type) or types.is_duration(data_type)
    is_fixed = types.is_fixed_size_binary(data_type) or types.is_decimal(data_type)
    return is_time or is_fixed or types.is_floating(data_type) or types.is_null(data_type)


def _common(array: pa.Array) -> pa.Array:
    """Return the values as text or numbers; such columns are returned unchanged."""
    types = pa.types
    if types.is_floating(array.type):
        return canonical_floats(array.cast(pa.float64())).view(pa.int64())
    if types.is_decimal(array.type):
        wide = array.cast(pa.decimal256(76, array.type.scale))
        return wide.view(pa.binary(32)).cast(pa.binary())
    if types.is_fixed_size_binary(array.type):
        return array.cast(pa.binary())
    if types.is_date64(array.type):
        return array.cast(pa.date32(), safe=False)
    if types.is_time(array.type):
        return array.cast(pa.time64("us"), safe=False).cast(pa.int64())
    if types.is_duration(array.type):
        return array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    return array.cast(pa.int64()) if types.is_null(array.type) else array


def _mix(lanes: UInt64Array) -> UInt64Array:
    """Apply the finaliser in place. Array arithmetic wraps silently, which is what it needs."""
    shifted = lanes >> _S30
    lanes ^= shifted
    lanes *= _M1
    lanes ^= np.right_shift(lanes, _S27, out=shifted)
    lanes *= _M2
    lanes ^= np.right_shift(lanes, _S31, out=shifted)
    return lanes


def _hash_integers(values: UInt64Array) -> UInt64Array:
    return _mix(values + _G)


def _hash_struct(array: pa.Array) -> UInt64Array:
    hashes = hash_columns(array.flatten(), len(array))
    hashes += np.uint64(2 * int(_G) % 2**64)
    return _mix(hashes)


def _hash_dictionary(array: pa.DictionaryArray) -> UInt64Array:
    if len(array.dictionary) > len(array):
        return hash_array(array.dictionary_decode())
    per_value = np.append(hash_array(array.dictionary), _NULL)
    null_index = len(array.dictionary)
    indices = array.indices
    if indices.null_count:
        # The widening keeps a full int8 dictionary from running out of indices for null.
        indices = indices.cast(pa.int64()).fill_null(null_index)
    return per_value[indices.to_numpy()]


def _as_uint64(array: pa.Array) -> UInt64Array:
    """View the 64-bit values; those under nulls are arbitrary."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)
    elif pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    if array.type.bit_width < pa.int64().bit_width:
        array = array.cast(pa.int64())
    return _values(array, np.dtype(np.uint64))


def _values(array: pa.Array, dtype: np.dtype) -> np.ndarray:
    """View the value buffer of a fixed-width array as numpy, ignoring validity."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)


def _hash_text(array: pa.Array) -> UInt64Array:
    starts, lengths, data = _text_parts(array)
    sums = np.zeros(len(array), dtype=np.uint64)
    rows, at, left, lane = np.arange(len(array)), starts, lengths, 0
    while True:
        if left.min(initial=1) <= 0:  # Only then: indexing costs more than hashing.
            longer = np.flatnonzero(left > 0)
            rows, at, left = rows[longer], at[longer], left[longer]
        if len(rows) < _VALUES_PER_PASS_MIN:
            break
        lanes = _hash_lanes(data[at], left, lane)
        if len(rows) == len(sums):
            sums += lanes
        else:
            sums[rows] += lanes
        at, left, lane = at + _LANE_BYTES, left - _LANE_BYTES, lane + 1
    is_long = left > _REST_BYTES_MAX
    for row in rows[is_long]:  # Every lane of one value at once.
        sums[row : row + 1] += _hash_rest(data, int(starts[row]), int(lengths[row]), lane)
    if not is_long.all():
        sums[rows[~is_long]] += _hash_rests(data, at[~is_long], left[~is_long], lane)
    sums += (lengths.astype(np.uint64) + np.uint64(1)) * _G
    return _mix(sums)


def _text_parts(array: pa.Array) -> tuple[np.ndarray, np.ndarray, UInt64Array]:
    """Split into (start of each value, its length in bytes, the 8 bytes that begin at each byte).

    The third is an unaligned view of a copy with a lane of zeros behind it: Arrow promises no
    readable byte after the last value.
    """
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    offset_dtype = np.dtype(np.int64 if is_large else np.int32)
    _, offset_buffer, data_buffer = array.buffers()
    if not len(array):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64)
    offsets = np.frombuffer(
        offset_buffer, offset_dtype, len(array) + 1, array.offset * offset_dtype.itemsize
    )
    lengths = np.diff(offsets)
    if array.null_count:
        # A null may span bytes; the lanes of nobody's value are not worth reading.
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _LANE_BYTES, dtype=np.uint8)
    if data_buffer is not None:
        padded[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
    view = np.ndarray((last - first + 1,), "<u8", padded, strides=(1,))
    return offsets[:-1] - np.int64(first), lengths, view


def _hash_lanes(lanes: UInt64Array, left: np.ndarray, lane: int) -> UInt64Array:
    """Hash, in place, lane number ``lane`` of values that have ``left`` bytes from there on."""
    if left.min() < _LANE_BYTES:
        lanes &= _LANE_MASKS[np.minimum(left, _LANE_BYTES)]
    lanes += np.uint64((lane + 1) * int(_G) % 2**64)
    return _mix(lanes)


def _hash_rest(data: UInt64Array, start: int, length: int, lane: int) -> UInt64Array:
    """Sum the hashes of one value's lanes from number ``lane`` on; one number."""
    lanes = data[start + lane * _LANE_BYTES : start + length : _LANE_BYTES].copy()
    lanes[-1] &= _LANE_MASKS[(length - 1) % _LANE_BYTES + 1]
    lanes += np.arange(lane + 1, lane + 1 + len(lanes), dtype=np.uint64) * _G
    return _mix(lanes).sum(keepdims=True)


def _hash_rests(data: UInt64Array, at: np.ndarray, left: np.ndarray, lane: int) -> UInt64Array:
    """Sum the hashes of each value's lanes from number ``lane`` on; no value has ended there."""
    counts = -(-left // _LANE_BYTES)
    ends = np.cumsum(counts)
    firsts = ends - counts
    numbers = np.arange(int(ends[-1])) - np.repeat(firsts, counts)
    lanes = data[np.repeat(at, counts) + numbers * _LANE_BYTES]
    lanes[ends - 1] &= _LANE_MASKS[(left - 1) % _LANE_BYTES + 1]
    lanes += np.asarray(numbers + (lane + 1), np.uint64) * _G
    return np.add.reduceat(_mix(lanes), firsts)
