"""Rows that replace each other as rows that come and go, as ``Stream.to_retract`` says."""

from typing import TYPE_CHECKING

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.aggregation import WINDOW_END
from laminar_core.operators.retract_rows import RetractRows
from laminar_core.operators.stateless import SelectColumns
from laminar_core.operators.watermarks import AssignWatermarks
from laminar_core.pipeline.graph import Node
from laminar_core.pipeline.joins import event_time_of
from laminar_core.plan.plan import Forward, Keyed
from laminar_core.units import Duration, duration_us

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream

KEPT_AFTER_WINDOW_US = 60_000_000
"""How long the last row of a window is kept after its end: no later row comes, so any time does."""


def retracted(stream: "Stream", name: str, *, ttl: Duration | None, time: str | None) -> "Stream":
    """Take earlier rows of each key back when others replace them; see ``Stream.to_retract``.

    Raises:
        ConfigurationError: no rows replace others, their key or order is not known, or there is no
            event time.
    """
    _require_replacing(stream, name)
    keys, known = stream.updates.key, stream.event_time
    if ttl is None and time is not None:
        raise ConfigurationError(
            ErrorCode.INVALID_PIPELINE,
            f"{name} has a time and keeps its keys for ever: pass ttl=..., or no time",
        )
    if ttl is not None:
        chosen, ttl_us = event_time_of(known, time, f"the input of {name}"), duration_us(ttl)
        # Rows come up to the time to live behind the watermark, and find what they replace.
        operator = RetractRows(name, keys, chosen.name, ttl_us, chosen.lag_us + ttl_us)
    elif WINDOW_END in keys and known is not None and WINDOW_END in known.lags_us:
        lag_us = known.lags_us[WINDOW_END]
        operator = RetractRows(name, keys, WINDOW_END, KEPT_AFTER_WINDOW_US, lag_us)
    else:
        operator = RetractRows(name, keys)
    found = stream.then(operator, Keyed(keys))
    return found if known is None else found.timed(known.among(keys))


def _require_replacing(stream: "Stream", name: str) -> None:
    """Accept a stream whose rows replace each other by a known key, in a known order."""
    if stream.updates.mode != "upsert":
        rows = "come and go already" if stream.updates.mode == "retract" else "replace no others"
        problem = f"takes back rows that others replace, and rows of its input {rows}: leave it out"
    elif not stream.updates.key:
        problem = "knows no key by which rows replace each other: keep the columns of the key"
    elif not _in_order(stream.comes_from.node):
        problem = (
            "needs every row that replaces another, in its order: call .to_retract() right behind"
            " the operator whose rows replace each other, before .filter(), .map() or .union()"
        )
    else:
        return
    raise ConfigurationError(ErrorCode.INVALID_PIPELINE, f"{name} {problem}")


def _in_order(node: Node) -> bool:
    """Return whether the rows of each key are all that an operator emits, in its order."""
    while isinstance(node.operator, SelectColumns | AssignWatermarks) and not node.is_union:
        (come_from,) = node.inputs
        if not isinstance(come_from.by, Forward):
            return False
        node = come_from.node
    return getattr(node.operator, "output_mode", None) == "upsert"
