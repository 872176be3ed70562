"""Where event time comes from: a watermark has to reach each operator that waits for one.

Without one, a window fires at the end of the input only, and with an input that does not end it
keeps rows for ever. The watermark of a vertex is the minimum of its inputs, so each of them needs
one. None leaves a loop.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators.base import makes_event_time, needs_event_time

if TYPE_CHECKING:
    from laminar_core.plan.plan import Plan, Vertex


def check_event_time(plan: "Plan") -> None:
    """Refuse an operator that needs event time and has an input without a watermark.

    Raises:
        ConfigurationError: the message names the operator and that input (INVALID_PIPELINE).
    """
    lacking: dict[str, str | None] = {}
    loops = plan.loops()
    for vertex in plan.vertices:
        place = _place_without(plan, vertex, lacking)
        for operator in vertex.operators:
            if makes_event_time(operator):
                place = None
            elif place is not None and needs_event_time(operator):
                raise ConfigurationError(
                    ErrorCode.INVALID_PIPELINE,
                    f"{operator.operator_id} needs event time, and rows of {place} come to it"
                    " without a watermark: call watermark(column) in between",
                )
        loop = loops.get(vertex.vertex_id)
        lacking[vertex.vertex_id] = place if loop is None else f"loop {loop}"


def _place_without(plan: "Plan", vertex: "Vertex", lacking: Mapping[str, str | None]) -> str | None:
    """Return a source or loop that sends rows without a watermark to the vertex, if any."""
    if vertex.source is not None:
        return vertex.source.operator_id
    inputs = (edge for edge in plan.inputs_of(vertex.vertex_id) if not edge.feedback)
    places = (lacking[edge.upstream] if edge.timed else edge.upstream for edge in inputs)
    return next((place for place in places if place is not None), None)
