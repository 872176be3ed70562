"""What the workers last said about how far they are."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add

from laminar_core.checkpoint.unaligned import UnalignedCheckpointMetrics
from laminar_core.runtime.events import ProgressMade
from laminar_core.runtime.messages import Progress
from laminar_core.runtime.wiring import Wiring
from laminar_core.state.record import JsonObject
from laminar_core.storage.contract import ObjectStore, counts_of
from laminar_core.storage.counts import RequestCounts


@dataclass(frozen=True, slots=True)
class RowTotals:
    """Rows over the whole history of the job."""

    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0


def progress_of(
    generation: int, worker: int, wiring: Wiring, requests: RequestCounts | None
) -> Progress:
    """How far a worker is now."""
    counts = wiring.counts()
    return Progress(
        generation=generation,
        worker=worker,
        rows_in=counts.rows_in,
        rows_out=counts.rows_out,
        rows_late=counts.rows_late,
        flowing=counts.rows_since_start > 0 or counts.batches_replayed > 0,
        unaligned=wiring.unaligned(),
        watermark_us=wiring.watermark_us(),
        drained=all(task.finished for task in wiring.tasks),
        requests=requests,
    )


class WorkersProgress:
    """The newest report of each worker, and what the driver sends to ``objects`` beside them."""

    def __init__(self, parallelism: int, now_ms: float, objects: ObjectStore | None = None) -> None:
        self._objects = objects
        self._sent_before = self._sent_by_driver()
        self._parallelism = parallelism
        self._reports: dict[int, Progress] = {}
        self._last_rows = (now_ms, 0)

    def keep(self, report: Progress) -> None:
        """In the place of the worker's last one."""
        self._reports[report.worker] = report

    @property
    def complete(self) -> bool:
        """Everybody has reported; before that totals would jump."""
        return len(self._reports) == self._parallelism

    @property
    def drained(self) -> bool:
        """The input has ended, and everything was flushed."""
        return self.complete and all(report.drained for report in self._reports.values())

    def totals(self) -> RowTotals:
        """Over all workers."""
        reports: Collection[Progress] = self._reports.values()
        return RowTotals(
            rows_in=sum(p.rows_in for p in reports),
            rows_out=sum(p.rows_out for p in reports),
            rows_late=sum(p.rows_late for p in reports),
        )

    def as_json(self) -> JsonObject:
        """For the heartbeat: how far the job is, once every worker has said so.

        ``requests`` are those of this generation: of its workers from their start, of the driver
        from the moment it waited for them. They are there if the store counts them.
        """
        if not self.complete:
            return {}
        requests = self._requests()
        told: JsonObject = {} if requests is None else {"requests": asdict(requests)}
        return {"rows_in": self.totals().rows_in, **told}

    def _requests(self) -> RequestCounts | None:
        by_driver = self._sent_by_driver()
        by_workers = [report.requests for report in self._reports.values()]
        known = [counts for counts in by_workers if counts is not None]
        if by_driver is None or self._sent_before is None or len(known) < len(by_workers):
            return None
        return reduce(add, known, by_driver - self._sent_before)

    def _sent_by_driver(self) -> RequestCounts | None:
        return None if self._objects is None else counts_of(self._objects)

    def event(self, now_ms: float, time_ms: int, rows_total: int | None) -> ProgressMade:
        """What to tell; ``now_ms`` is monotonic, for the rate since the last time."""
        totals = self.totals()
        since_ms, rows_then = self._last_rows
        self._last_rows = (now_ms, totals.rows_in)
        reports: Collection[Progress] = self._reports.values()
        watermarks = [p.watermark_us for p in reports]
        known = [w for w in watermarks if w is not None]
        return ProgressMade(
            time_ms=time_ms,
            rows_in=totals.rows_in,
            rows_out=totals.rows_out,
            rows_late=totals.rows_late,
            rows_total=rows_total,
            rows_per_s=1000 * max(totals.rows_in - rows_then, 0) / max(now_ms - since_ms, 1),
            watermark_us=min(known) if len(known) == len(watermarks) else None,
            unaligned=UnalignedCheckpointMetrics.total(p.unaligned for p in reports),
        )
