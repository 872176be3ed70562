"""Aggregates that users write in Python, over Arrow arrays and with state of an Arrow type.

    class GeometricMean:
        name = "geometric_mean"
        state_type = pa.struct([("logs", pa.float64()), ("count", pa.int64())])
        result_type = pa.float64()

        def init(self):
            return {"logs": 0.0, "count": 0}

        def accumulate(self, state, values):                  # A pyarrow array: one group's rows
            known = np.log(values.drop_null().to_numpy())
            return {"logs": state["logs"] + known.sum(), "count": state["count"] + len(known)}

        def merge(self, left, right):
            return {field: left[field] + right[field] for field in left}

        def finish(self, state):
            return math.exp(state["logs"] / state["count"]) if state["count"] else None

    agg.user(GeometricMean(), "amount", name="typical")

Each method is called once per group, never per row. ``merge`` must not depend on which side is
which more than the sum of floats does, and no method may change what it was given.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from laminar_core.aggregates.grouping import plain_type
from laminar_core.aggregates.python_values import array_of
from laminar_core.aggregates.row_groups import RowGroups
from laminar_core.aggregates.values import plain
from laminar_core.codec.code_digest import code_digest
from laminar_core.errors import DataError, ErrorCode


class UserAggregate(Protocol):
    """The interface of a user's aggregate.

    An attribute ``version`` (default 1) numbers its state.
    """

    name: str
    """Letters, digits and ``_``: part of the name of the state's column."""
    state_type: pa.DataType
    """Type of what ``init``, ``accumulate`` and ``merge`` return."""
    result_type: pa.DataType
    """Type of what ``finish`` returns."""

    def init(self) -> Any:  # noqa: ANN401 - of state_type
        """Return the state of a group without rows."""
        ...

    @property
    def accumulate(self) -> Callable[..., Any]:
        """``accumulate(state, *values)``.

        The state after more rows of one group, including nulls.
        """
        ...

    def merge(self, left: Any, right: Any) -> Any:  # noqa: ANN401 - of state_type
        """Return the state of two parts of a group; the rows of ``left`` came first."""
        ...

    def finish(self, state: Any) -> Any:  # noqa: ANN401 - of state_type
        """Return the result of a group; None is null."""
        ...


@dataclass(frozen=True, slots=True)
class UserDefined:
    """A user's aggregate as a state function; equal if the code is."""

    udaf: UserAggregate = field(compare=False)
    label: str
    version: int
    code: str
    """Digest of the code and of what the instance holds."""

    @classmethod
    def of(cls, udaf: UserAggregate) -> "UserDefined":
        """Wrap a user's aggregate."""
        version = getattr(udaf, "version", 1)
        return cls(udaf, f"user_{udaf.name}", version, code_digest(udaf))

    def state_type(self, columns: list[pa.DataType]) -> pa.DataType | None:
        """Return the type that the user declares, plain; any columns are accepted."""
        del columns
        return plain_type(self.udaf.state_type)

    def accumulate(self, columns: list[pa.Array], groups: RowGroups) -> pa.Array:
        """Call the user's ``accumulate`` once for each group."""
        order = pa.array(groups.order)
        ordered = [plain(column).take(order) for column in columns]
        states: list[Any] = []
        for start, stop in _bounds(groups):
            values = [column.slice(start, stop - start) for column in ordered]
            states.append(self.udaf.accumulate(self.udaf.init(), *values))
        return self._typed(states, self.udaf.state_type, "state")

    def merge(self, states: pa.Array, groups: RowGroups) -> pa.Array:
        """Call the user for each pair of halves."""
        ordered = states.take(pa.array(groups.order)).to_pylist()
        merged: list[Any] = []
        for start, stop in _bounds(groups):
            whole = ordered[start] if stop > start else self.udaf.init()
            for half in ordered[start + 1 : stop]:
                whole = self.udaf.merge(whole, half)
            merged.append(whole)
        return self._typed(merged, self.udaf.state_type, "state")

    def finish(self, states: pa.Array) -> pa.Array:
        """Call the user's ``finish`` once for each group."""
        results = [self.udaf.finish(state) for state in states.to_pylist()]
        return self._typed(results, self.udaf.result_type, "result")

    def _typed(self, values: Sequence[object], data_type: pa.DataType, what: str) -> pa.Array:
        try:
            return array_of(values, plain_type(data_type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                ErrorCode.WRONG_SCHEMA,
                f"aggregate {self.udaf.name!r} returned a {what} that is not {data_type}: "
                + str(error).partition("\n")[0],
            ) from error


def _bounds(groups: RowGroups) -> Iterator[tuple[int, int]]:
    return pairwise(groups.starts.tolist())
