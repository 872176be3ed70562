"""Aggregations in a pipeline: rows are combined, exchanged by key, and merged."""

from typing import TYPE_CHECKING

from laminar_core.operators.aggregation import PartialAggregate, WindowAggregate
from laminar_core.operators.late_rows import (
    BEHIND,
    RowsBehind,
    WindowsWithLateRows,
    WithLateRows,
)
from laminar_core.operators.sessions import PartialSessions, Sessions
from laminar_core.pipeline.graph import Input
from laminar_core.plan.plan import Forward, Keyed

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream


def aggregated(
    rows: "Stream",
    combine: PartialAggregate | PartialSessions,
    merge: WindowAggregate | Sessions,
    *,
    late_rows: bool,
) -> "Stream":
    """Add both halves of an aggregation; with ``late_rows`` its result has a side output.

    Raises:
        ConfigurationError: columns do not fit, or late rows are asked for of a stream whose rows
            replace earlier ones.
    """
    if not late_rows:
        return rows.then(combine).then(merge, Keyed(merge.keys))
    behind = RowsBehind(
        f"{merge.operator_id}-behind",
        combine.time_column,
        combine.time_lag_us + merge.allowed_lateness_us,
        all_rows=can_become_idle(rows.comes_from),
    )
    parted = rows.then(behind)
    operator = (
        WindowsWithLateRows(combine, merge)
        if isinstance(merge, WindowAggregate)
        else WithLateRows(combine, merge)
    )
    combined = parted.then(combine).key_by(*merge.keys)
    return combined.connect(parted.side(BEHIND).key_by(*merge.keys), operator=operator)


def can_become_idle(rows: Input) -> bool:
    """Return whether these rows come from a source without an exchange, and it can be idle.

    Splits that are read side by side can be so without a timeout.
    """
    waiting, seen = [rows], set[int]()
    while waiting:
        rows = waiting.pop()
        node = rows.node
        if not isinstance(rows.by, Forward) or id(node) in seen:
            continue
        seen.add(id(node))
        if (found := node.source) is None:
            waiting += node.inputs
        elif found.idle_timeout_ms is not None or found.source.reading == "parallel":
            return True
    return False
