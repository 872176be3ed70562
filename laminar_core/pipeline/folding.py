"""The operators before a sink that takes one row per key, where rows come and go."""

from typing import TYPE_CHECKING

from laminar_core.connectors.base import DeletesByKey, Sink, accepted_by
from laminar_core.operators.materialize import Materialize
from laminar_core.operators.running import CombineRows
from laminar_core.operators.weights import unweighted_schema
from laminar_core.plan.plan import Keyed

if TYPE_CHECKING:
    from laminar_core.pipeline.stream import Stream


def folded(stream: "Stream", name: str, sink: Sink) -> tuple["Stream", Sink]:
    """Return what to write to the sink called ``name``, and the sink itself.

    Rows that come and go become the row of each key of the sink, if it can delete keys; the
    operator that keeps them is called after the sink. Other streams and sinks stay as they are.

    Raises:
        ConfigurationError: the rows lack a key of the sink (WRONG_SCHEMA), or cannot be kept
            (UNSUPPORTED_TYPE).
    """
    if stream.updates.mode != "retract" or "retract" in accepted_by(sink):
        return stream, sink
    if not isinstance(sink, DeletesByKey) or not sink.updates_by:
        return stream, sink
    names = unweighted_schema(stream.schema).names
    newest = Materialize(f"{name}-rows", sink.updates_by, tuple(names))
    combine = CombineRows(f"{name}-rows-combine", newest.keys, newest.aggregates)
    rows = stream.then(combine).then(newest, Keyed(newest.keys))
    return rows, sink.with_deletions()
