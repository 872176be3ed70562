"""Report one worker's progress to the coordinator."""

from collections.abc import Mapping

from laminar_core.link.messages import OperatorWork, Progress
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.worker.wiring import Wiring


def progress_of(
    generation: int,
    wiring: Wiring,
    given_up: int,
    requests: RequestCounts | None,
    operators: Mapping[str, OperatorWork],
    now_ms: float,
) -> Progress:
    """Return the worker's current progress; ``operators`` is empty in most reports."""
    counts = wiring.counts()
    return Progress(
        generation=generation,
        worker=wiring.subtask_index,
        rows_in=counts.rows_in,
        rows_out=counts.rows_out,
        rows_late=counts.rows_late,
        bad_rows=counts.bad_rows,
        flowing=wiring.flowing(),
        unaligned=wiring.unaligned(),
        watermark_us=wiring.watermark_us(),
        drained=wiring.drained(),
        given_up=given_up,
        requests=requests,
        sources=wiring.sources(),
        operators=operators,
        at_ms=now_ms,
    )
