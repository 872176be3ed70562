"""Rows of sessions: which of them touch, and which version of a session is the newest.

A row of a session has its key, ``window_start``, and ``_expires``, which is its end: the time of
its last input row plus the gap. Sessions of one key that touch (``start <= end``) are one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from laminar_core.aggregates.group_keys import flat_keys
from laminar_core.aggregates.grouping import comparable, plain_column
from laminar_core.aggregates.row_groups import Integers, as_array
from laminar_core.codec.arrow import empty_table
from laminar_core.codec.key_groups import key_group_order
from laminar_core.codec.stable_hash import UInt64Array
from laminar_core.state.expiry import EXPIRES
from laminar_core.state.window_layout import KEY_GROUP, WINDOW_START

_INT64_MAX = 2**63 - 1

Codes = Integers | UInt64Array
"""A number for each row, equal if and only if the keys of the rows are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """The sessions that rows belong to.

    Shapes: ``order`` has all row numbers, by key and start; ``firsts`` has where each session
    begins in it, and ``ends`` the end of each session.
    """

    order: Integers
    firsts: Integers
    ends: Integers

    def of_rows(self) -> Integers:
        """Return the number of each row's session, in the order of rows."""
        begins = np.zeros(len(self.order), np.int64)
        begins[self.firsts[1:]] = 1
        numbers = np.empty(len(self.order), np.int64)
        numbers[self.order] = np.cumsum(begins)
        return numbers


def find_sessions(codes: Codes, starts_us: Integers, ends_us: Integers) -> Sessions:
    """Find the sessions that rows with these keys, starts and ends make up.

    Shapes: all are equally long.
    """
    if not len(codes):
        return Sessions(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    order = by_key_and_time(codes, starts_us)
    sorted_codes, starts, ends = codes[order], starts_us[order], ends_us[order]
    is_new_key = sorted_codes[1:] != sorted_codes[:-1]
    key_numbers = np.append(0, np.cumsum(is_new_key))
    begins = is_new_key | (starts[1:] > _latest_so_far(key_numbers, ends)[:-1])
    firsts = np.append(0, np.flatnonzero(begins) + 1)
    return Sessions(order, firsts, np.maximum.reduceat(ends, firsts))


def joined_lists(lists: pa.Array, sessions: Sessions) -> pa.Array:
    """Return the lists of the rows of each session, one behind the other, without nulls."""
    taken = lists.take(pa.array(sessions.order))
    lengths = call_function("list_value_length", [taken]).to_numpy()
    bounds = np.append(np.int32(0), np.cumsum(lengths, dtype=np.int32))
    offsets = bounds[np.append(sessions.firsts, len(lists))]
    items = call_function("list_flatten", [taken])
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def key_codes(keys: Iterable[pa.ChunkedArray], row_count: int) -> Integers:
    """Number the distinct combinations of values in ``keys``, each as long as ``row_count``.

    Keys are equal as in grouping: nulls are, and so are NaN, and both zeros.
    """
    codes = np.zeros(row_count, np.int64)
    distinct = 1
    for column in (flat for key in keys for flat in flat_keys(key)):
        plain = as_array(comparable(plain_column(column)))
        encoded = plain.dictionary_encode(null_encoding="encode")
        numbers = encoded.indices.to_numpy().astype(np.int64)
        if distinct == 1:
            codes, distinct = numbers, len(encoded.dictionary)
            continue
        # Row numbers fit into 31 bits, and so the product into 62.
        both = pa.array(codes * len(encoded.dictionary) + numbers).dictionary_encode()
        codes, distinct = both.indices.to_numpy().astype(np.int64), len(both.dictionary)
    return codes


def newest_sessions(tables: Iterable[pa.Table], keys: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the newest version of each session in tables of consecutive cuts, by key group.

    A later version of a session covers all earlier ones: a session only grows.
    Shapes: all tables, and the result, have ``schema``, the schema in a checkpoint.
    """
    rows = pa.concat_tables([empty_table(schema), *tables])
    codes = key_codes([rows.column(key) for key in keys], rows.num_rows)
    sessions = find_sessions(codes, times_of(rows, WINDOW_START), times_of(rows, EXPIRES))
    if len(sessions.firsts) < rows.num_rows:
        newest = np.maximum.reduceat(sessions.order, sessions.firsts)
        rows = rows.take(pa.array(np.sort(newest)))
    order = key_group_order(rows.column(KEY_GROUP).to_numpy())
    return rows.take(pa.array(order)).combine_chunks()


def times_of(rows: pa.Table, column: str) -> Integers:
    """Return a column of times in microseconds."""
    return rows.column(column).cast(pa.int64()).to_numpy()


def by_key_and_time(codes: Codes, times_us: Integers) -> Integers:
    """Return the row numbers by key, and then by time.

    Codes that are sorted for the most part, such as those of a few sorted tables, cost little.
    """
    if codes.dtype == np.int64:
        together = _combined(codes.astype(np.int64, copy=False), times_us)
        if together is not None:
            return np.argsort(together)
    order = np.argsort(codes, kind="stable")
    sorted_codes, times = codes[order], times_us[order]
    is_same_key = sorted_codes[1:] == sorted_codes[:-1]
    if not (is_same_key & (times[1:] < times[:-1])).any():
        return order
    together = _combined(np.append(0, np.cumsum(~is_same_key)), times)
    if together is None:
        return np.lexsort((times_us, codes))
    return order[np.argsort(together, kind="stable")]


def _combined(codes: Integers, times_us: Integers) -> Integers | None:
    """Return numbers in the order of code and time; None: they would need more than 64 bits."""
    first = int(times_us.min(initial=_INT64_MAX))
    span = int(times_us.max(initial=first)) - first + 1
    if (int(codes.max(initial=0)) + 1) * span > _INT64_MAX:
        return None
    return codes * span + (times_us - first)


def _latest_so_far(key_numbers: Integers, ends_us: Integers) -> Integers:
    """Return the latest end up to each row, among rows of its key; rows are sorted by key."""
    together = _combined(key_numbers, ends_us)
    if together is not None:
        first = int(ends_us.min())
        span = int(ends_us.max()) - first + 1
        return np.maximum.accumulate(together) - key_numbers * span + first
    distinct, ranks = np.unique(ends_us, return_inverse=True)
    latest = np.maximum.accumulate(key_numbers * len(distinct) + ranks)
    return distinct[latest % len(distinct)]
