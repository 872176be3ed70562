"""Generated rows: deterministic, seekable, and independent of how they are read.

Row *g* of the whole sequence is a pure function of the seed, the names of the fields and *g*. With
S splits, split *s* holds rows *s*, *s + S*, *s + 2S* ..., so all splits advance through event time
together, and the same rows result whatever the number of splits, readers or batches.

Randomness is SplitMix64 used as a counter: the generator's state after *g* steps is its seed plus
*g* times a constant, so row *g* needs no row before it.
Source: Steele, Lea & Flood 2014, "Fast Splittable Pseudorandom Number Generators".
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_core.arguments import require_instance, require_methods, require_number
from laminar_core.connectors.base import Discovery, Source, SourceBatch, SourceReader
from laminar_core.connectors.discovery import fixed_list
from laminar_core.errors import ConfigurationError, DataError, ErrorCode, IncompatibleStateError
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.state.splits import at_rows, numbered_splits, row_offsets

Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_ZIPF_KEYS_MAX = 10_000_000
_TIME_TYPE = pa.timestamp("us", tz="UTC")


def random_bits(rows: Rows, key: int) -> Bits:
    """Return 64 random bits per row: output number ``rows`` of SplitMix64 seeded with ``key``."""
    bits = rows.astype(np.uint64)
    bits += np.uint64(1)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits += np.uint64(key)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits


class Field(Protocol):
    """The generator of one column: its values follow from the row number. A frozen dataclass."""

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        ...

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``; ``key`` seeds the randomness of this column."""
        ...


@dataclass(frozen=True, slots=True)
class Sequence:
    """The row number, plus ``start``."""

    start: int = 0

    def __post_init__(self) -> None:
        _check_whole("start", self.start)

    @property
    def type(self) -> pa.DataType:
        """Always int64."""
        return pa.int64()

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``."""
        del key
        return pa.array(_counted(rows, self.start))


@dataclass(frozen=True, slots=True)
class UniformInt:
    """Integers with ``low <= value < high``, all equally likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_whole("low", self.low)
        _check_whole("high", self.high)
        if not -_INT64_MAX <= self.low < self.high <= _INT64_MAX:
            raise _invalid(f"UniformInt needs low < high within int64: {self.low}, {self.high}")

    @property
    def type(self) -> pa.DataType:
        """Always int64."""
        return pa.int64()

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``."""
        offsets = random_bits(rows, key) % np.uint64(self.high - self.low)
        return pa.array(offsets.view(np.int64) + np.int64(self.low))


@dataclass(frozen=True, slots=True)
class ZipfKey:
    """Skewed keys: rank r in [0, count) has a probability proportional to (r + 1) ** -exponent.

    With a ``prefix`` keys are strings of equal length (``m-00042``), dictionary-encoded; without,
    they are the ranks.
    """

    count: int
    exponent: float = 1.0
    prefix: str | None = None

    def __post_init__(self) -> None:
        _check_whole("count", self.count)
        _check_text("prefix", "" if self.prefix is None else self.prefix)
        if not 1 <= self.count <= _ZIPF_KEYS_MAX:
            raise _invalid(f"ZipfKey needs 1 to {_ZIPF_KEYS_MAX:,} keys, not {self.count}")
        require_number(self.exponent, 0, "exponent")
        if not self.exponent <= sys.float_info.max:
            raise _invalid(f"ZipfKey needs a finite exponent of at least 0, not {self.exponent}")

    @property
    def type(self) -> pa.DataType:
        """The type: int64, or dictionary<int32, string> with a prefix."""
        return pa.int64() if self.prefix is None else pa.dictionary(pa.int32(), pa.string())

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``, by the alias method: one table look-up for any skew."""
        threshold, alias = _alias_table(self.count, self.exponent)
        bits = random_bits(rows, key)
        low = np.uint64(0xFFFFFFFF)
        slot = (((bits >> np.uint64(32)) * np.uint64(self.count)) >> np.uint64(32)).view(np.int64)
        rank = np.where((bits & low) < threshold[slot], slot, alias[slot])
        if self.prefix is None:
            return pa.array(rank)
        names = _key_names(self.count, self.prefix)
        return pa.DictionaryArray.from_arrays(pa.array(rank.astype(np.int32)), names)


@dataclass(frozen=True, slots=True)
class EventTime:
    """Event time that advances by ``step_us`` per row, each row late by up to ``jitter_us``.

    No row is more than ``jitter_us`` behind any row before it.
    """

    start_us: int
    step_us: int = 1
    jitter_us: int = 0

    def __post_init__(self) -> None:
        _check_whole("start_us", self.start_us)
        _check_whole("step_us", self.step_us)
        _check_whole("jitter_us", self.jitter_us)
        if self.step_us < 0 or self.jitter_us < 0:
            raise _invalid("EventTime needs a step and a jitter of at least 0 microseconds")

    @property
    def type(self) -> pa.DataType:
        """Always timestamp[us, UTC]."""
        return _TIME_TYPE

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``."""
        time_us = _counted(rows, self.start_us, self.step_us, self.jitter_us)
        if self.jitter_us:
            time_us -= (random_bits(rows, key) % np.uint64(self.jitter_us + 1)).view(np.int64)
        return pa.array(time_us).cast(_TIME_TYPE)


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for all rows."""

    value: bool | float | str

    def __post_init__(self) -> None:
        match self.value:
            case str():
                _check_text("value", self.value)
            case float() if not math.isfinite(self.value):
                raise _invalid(f"value must be a finite number, not {self.value}")
            case int():
                _check_whole("value", self.value)
            case _:
                pass

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the value."""
        return pa.scalar(self.value).type

    def column(self, rows: Rows, key: int) -> pa.Array:
        """Return the values of ``rows``."""
        del key
        return pa.repeat(pa.scalar(self.value), len(rows))


@dataclass(frozen=True, slots=True)
class DatagenSource(Source):
    """Rows made up from ``fields``; ``rows`` of them, or without end.

    >>> source = DatagenSource({"id": Sequence(), "amount": UniformInt(1, 100)}, rows=3, splits=2)
    >>> source.rows_between(1, 3).column("id").to_pylist()
    [1, 2]
    """

    fields: Mapping[str, Field]
    rows: int | None = None
    splits: int = 8
    batch_rows: int = 32_768
    seed: int = 0

    def __post_init__(self) -> None:
        require_instance(self.fields, Mapping, "fields must be a mapping from names to generators")
        if not self.fields:
            raise _invalid("DatagenSource needs at least one field")
        for name, made in self.fields.items():
            _check_text("the name of a field", name)
            wanted = f"field {name!r} must be a generator such as Sequence()"
            require_methods(made, ("column",), wanted)
        _check_whole("splits", self.splits)
        _check_whole("batch_rows", self.batch_rows)
        if not isinstance(self.seed, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _invalid(f"seed must be a whole number, not {self.seed!r}")
        if self.rows is not None:
            self._check_rows(self.rows)
        if self.splits < 1 or self.batch_rows < 1:
            raise _invalid("splits and batch_rows must be at least 1")

    def _check_rows(self, rows: int) -> None:
        _check_whole("rows", rows)
        if rows < 0:
            raise _invalid(f"rows must be at least 0, or None for no end, not {rows}")
        ends = np.array([0, rows - 1] if rows else [], dtype=np.int64)
        for name, field in self.fields.items():
            if isinstance(field, Sequence | EventTime):
                try:
                    field.column(ends, 0)
                except DataError as error:
                    raise _invalid(f"field {name!r} with {rows:,} rows: {error}") from error

    def describe(self) -> JsonObject:
        """Return all options that the rows depend on."""
        fields: dict[str, JsonValue] = {
            name: {"generator": type(field).__name__, **_parameters(field)}
            for name, field in self.fields.items()
        }
        return {
            "connector": "datagen",
            "fields": fields,
            "rows": self.rows,
            "splits": self.splits,
            "seed": self.seed,
        }

    def schema(self) -> pa.Schema:
        """Return the schema: one column per field."""
        return pa.schema([(name, field.type) for name, field in self.fields.items()])

    def discovery(self) -> Discovery:
        """Return a discovery of the fixed splits."""
        return fixed_list(self._splits)

    def _splits(self) -> pa.Table:
        """Return all splits, at their beginning. Shapes: ``SPLIT``."""
        names = [f"{split_id} of {self.splits}" for split_id in range(self.splits)]
        return numbered_splits(names, [self._row_count(n) for n in range(self.splits)])

    def gaps(self, splits: pa.Table) -> tuple[()]:
        """Return nothing, after verifying that these splits are of a source with the same rows.

        Raises:
            IncompatibleStateError: the number of splits or rows has changed.
        """
        pinned = {pin["split_id"]: pin["rows_total"] for pin in splits.to_pylist()}
        if pinned != {split_id: self._row_count(split_id) for split_id in range(self.splits)}:
            lengths = [count for count in pinned.values() if count is not None]
            rows = sum(lengths) if len(lengths) == len(pinned) else None
            raise IncompatibleStateError(
                ErrorCode.SOURCE_CHANGED,
                f"the checkpoint was taken with splits={len(pinned)}, rows={rows}, and the source "
                f"now has splits={self.splits}, rows={self.rows}: set both as they were",
            )
        return ()

    def open(self, splits: pa.Table) -> "DatagenReader":
        """Read ``splits`` together, each from its offset."""
        return DatagenReader(self, splits)

    def rows_between(self, start: int, stop: int) -> pa.RecordBatch:
        """Return the rows [start, stop) of the whole sequence; ``rows`` does not limit them."""
        return self.batch(np.arange(start, stop, dtype=np.int64))

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """Return the rows with these numbers, in the given order."""
        columns = [
            field.column(rows, _column_key(self.seed, name)) for name, field in self.fields.items()
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema())

    def _row_count(self, split_id: int) -> int | None:
        return None if self.rows is None else len(range(split_id, self.rows, self.splits))


class DatagenReader(SourceReader):
    """Reads its splits abreast, so that event time never jumps back from one split to the next."""

    def __init__(self, source: DatagenSource, splits: pa.Table) -> None:
        self._source = source
        self._splits = splits
        self._split_id = splits["split_id"].to_numpy()
        self._next_row = row_offsets(splits)
        self._row_count = splits["rows_total"].fill_null(_INT64_MAX).to_numpy()

    @property
    def finished(self) -> bool:
        """Whether all splits are read to their end."""
        return bool((self._next_row >= self._row_count).all())

    def poll(self, rows_max: int) -> SourceBatch | None:
        """Return the next rows, in the order of the whole sequence; None once finished."""
        unread = self._next_row < self._row_count
        if not unread.any():
            return None
        # Splits restored from different readers may stand apart: the hindmost catch up first.
        start = self._next_row[unread].min()
        abreast = unread & (self._next_row == start)
        ahead = self._next_row[unread & ~abreast]
        rows = min(rows_max, max(self._source.batch_rows, int(abreast.sum())))
        # Fewer rows than splits: the first of them take one row, the others are hindmost then.
        taken = np.flatnonzero(abreast)[:rows]
        share = rows // len(taken)
        stop = min([start + share, *self._row_count[taken], *ahead])
        self._next_row[taken] = stop
        steps = np.arange(start, stop, dtype=np.int64)[:, np.newaxis] * self._source.splits
        return SourceBatch(self._source.batch((steps + self._split_id[taken]).ravel()))

    def position(self) -> pa.Table:
        """Return the splits, positioned behind all rows that ``poll`` returned."""
        return at_rows(self._splits, self._next_row)

    def close(self) -> None:
        """Do nothing: no resources are open."""


def _column_key(seed: int, name: str) -> int:
    """Seed of one column, so that no two columns share their random numbers."""
    return int.from_bytes(blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big")


def _parameters(field: Field) -> dict[str, Any]:
    return asdict(field)  # pyright: ignore[reportArgumentType] - fields are dataclasses


@lru_cache(maxsize=16)
def _key_names(count: int, prefix: str) -> pa.Array:
    width = len(str(count - 1))
    return pa.array([f"{prefix}{rank:0{width}d}" for rank in range(count)])


@lru_cache(maxsize=16)
def _alias_table(count: int, exponent: float) -> tuple[Bits, Rows]:
    """Vose's alias table of the Zipf distribution: (threshold in 2**-32, alias) per slot.

    Slot i keeps a draw with probability ``threshold[i] / 2**32`` and passes it to ``alias[i]``
    otherwise. Source: Vose 1991, IEEE TSE 17(9).
    """
    weight = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    share = (weight * (count / weight.sum())).tolist()
    alias = list(range(count))
    small = [slot for slot in range(count) if share[slot] < 1]
    large = [slot for slot in range(count) if share[slot] >= 1]
    while small and large:
        needy, donor = small.pop(), large[-1]
        alias[needy] = donor
        share[donor] -= 1 - share[needy]
        if share[donor] < 1:
            small.append(large.pop())
    # What is left is whole but for rounding, and its own alias.
    threshold = (np.array(share) * 2.0**32).astype(np.uint64)
    return threshold, np.array(alias, dtype=np.int64)


def _counted(rows: Rows, start: int, step: int = 1, late: int = 0) -> Rows:
    """Return ``start`` plus ``step`` per row, with room to take ``late`` away.

    Raises:
        DataError: a number leaves 64 bits (ARITHMETIC_OVERFLOW).
    """
    if rows.size:
        first, last = (int(row) * step + start for row in (rows.min(), rows.max()))
        if first - late < _INT64_MIN or last > _INT64_MAX:
            raise DataError(
                ErrorCode.ARITHMETIC_OVERFLOW,
                f"numbers from {first - late} to {last} do not fit into 64 bits: begin with a "
                "smaller one, or read fewer rows",
            )
    return rows * step + start


def _check_whole(what: str, number: object) -> None:
    if not isinstance(number, int) or not _INT64_MIN <= number <= _INT64_MAX:
        raise _invalid(f"{what} must be a whole number of 64 bits, not {number!r}")


def _check_text(what: str, text: str) -> None:
    require_instance(text, str, f"{what} must be text of Unicode")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid(f"{what} must be text of Unicode, not {text!r}") from error


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)
