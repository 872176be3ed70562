"""What the workers last said about how far they are."""

from collections.abc import Collection
from dataclasses import dataclass

from laminar_core.checkpoint.unaligned import UnalignedCheckpointMetrics
from laminar_core.runtime.events import ProgressMade
from laminar_core.runtime.messages import Progress
from laminar_core.state.record import JsonObject


@dataclass(frozen=True, slots=True)
class RowTotals:
    """Rows over the whole history of the job."""

    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0


class WorkersProgress:
    """The newest report of each worker."""

    def __init__(self, parallelism: int, now_ms: float) -> None:
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
        """For the heartbeat: how far the job is, once every worker has said so."""
        return {"rows_in": self.totals().rows_in} if self.complete else {}

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
