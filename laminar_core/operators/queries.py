"""A query of a ``StreamExecutor``: keys, aggregates, a filter, a window; and its definition.

The *definition* is everything that its state depends on, as canonical JSON, and the *fingerprint*
its SHA-256: keys in their order (which decides the key group), aggregates with the versions of
their state and, if users wrote them, the digest of their code, the filter, window, lateness and
emission, the input columns that are read with their types, the output columns, the number of key
groups and the version of the engine's state (ERRATA 1.8, 1.9). It does not include the id, by which
the state is found (ERRATA 1.13), nor input columns that the query does not read.
"""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from laminar_core.aggregates.accumulators import Aggregate, accumulators_of
from laminar_core.codec.code_digest import code_digest
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.base import JsonObject, JsonValue
from laminar_core.operators.running import CombineRows, RunningAggregate
from laminar_core.operators.stateless import FilterRows, Predicate
from laminar_core.operators.windows import Window
from laminar_core.records.paths import check_operator_id

ENGINE_STATE_VERSION = 1
"""The version of the engine's state besides accumulators: watermark, late rows, closed windows."""

Emit = Literal["changes", "on-window-close"]


@dataclass(frozen=True, slots=True)
class AggregateQuery:
    """Aggregates by key: running, or of windows, once each of them is over.

    ``query_id`` is the identity of the state: keep it as long as the state is to survive. A
    ``window`` needs a ``time_column``. ``emit`` follows from the window: running totals are emitted
    when they change, windows when they close.
    """

    query_id: str
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    filter: Predicate | None = None
    window: Window | None = None
    time_column: str | None = None
    allowed_lateness_us: int = 0
    emit: Emit | None = None

    @property
    def emits(self) -> Emit:
        """When results are emitted."""
        return "changes" if self.window is None else "on-window-close"

    def check(self) -> None:
        """Refuse a query that is wrong for every input.

        Raises:
            ConfigurationError: an invalid id, no aggregate, a window without a time column or the
                reverse, or an emission that contradicts the window.
        """
        check_operator_id(self.query_id)
        if not self.aggregates:
            raise _wrong(self, "aggregates nothing: add agg.count()")
        if (self.window is None) != (self.time_column is None):
            raise _wrong(self, "needs both a window and a time_column, or neither")
        if self.window is None and self.allowed_lateness_us:
            raise _wrong(self, "has no window, so nothing is late: leave allowed_lateness_us out")
        if self.emit is not None and self.emit != self.emits:
            raise _wrong(
                self,
                f"cannot emit {self.emit}: running totals emit changes, and windows emit"
                " on-window-close",
            )

    # --- what it runs as ------------------------------------------------------------------------

    def filtering(self) -> FilterRows | None:
        """Return the operator that filters rows, or None."""
        return None if self.filter is None else FilterRows(self.query_id, self.filter)

    def combining(self) -> CombineRows | PartialAggregate:
        """Return the operator that reduces a batch to one row per group."""
        if self.window is None or self.time_column is None:
            return CombineRows(self.query_id, self.keys, self.aggregates)
        return PartialAggregate(
            self.query_id, self.keys, self.time_column, self.window, self.aggregates
        )

    def keeping(self) -> RunningAggregate | WindowAggregate:
        """Return the operator that owns the state."""
        if self.window is None:
            return RunningAggregate(self.query_id, self.keys, self.aggregates)
        return WindowAggregate(
            self.query_id, self.keys, self.window, self.aggregates, self.allowed_lateness_us
        )

    # --- what it is -----------------------------------------------------------------------------

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Return keys, the window if there is one, results.

        Raises:
            ConfigurationError: the query does not fit its input.
        """
        if (filtering := self.filtering()) is not None:
            filtering.output_schema(input_schema)
        return self.keeping().output_schema(self.combining().output_schema(input_schema))

    def definition(self, input_schema: pa.Schema, key_group_count: int) -> JsonObject:
        """Return everything that the state depends on."""
        accumulators = accumulators_of(self.aggregates)
        aggregates: list[JsonValue] = [dict(a.describe()) for a in self.aggregates]
        return {
            "engine": ENGINE_STATE_VERSION,
            "keys": list(self.keys),
            "aggregates": aggregates,
            "accumulators": {needs.name: needs.version for needs in accumulators},
            "filter": self._described_filter(),
            "window": None if self.window is None else self.window.describe(),
            "time_column": self.time_column,
            "allowed_lateness_us": self.allowed_lateness_us,
            "emit": self.emits,
            "input": _columns(self._read(input_schema)),
            "output": _columns(list(self.output_schema(input_schema))),
            "key_groups": key_group_count,
        }

    def _read(self, input_schema: pa.Schema) -> list[pa.Field]:
        """Return the input columns that are read, by name; all of them if there is a filter."""
        names = {*self.keys, *(c for aggregate in self.aggregates for c in aggregate.columns)}
        if self.time_column is not None:
            names.add(self.time_column)
        if self.filter is not None:
            names = set(input_schema.names)
        return [input_schema.field(name) for name in sorted(names)]

    def _described_filter(self) -> JsonObject | None:
        if self.filter is None:
            return None
        if isinstance(self.filter, pc.Expression):
            return {"expression": str(self.filter)}
        return {"code": code_digest(self.filter)}


def _columns(fields: list[pa.Field]) -> list[JsonValue]:
    return [[field.name, str(field.type)] for field in fields]


def _wrong(query: AggregateQuery, problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_PIPELINE, f"query {query.query_id!r} {problem}")
