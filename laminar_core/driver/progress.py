"""The last progress reports of all workers."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add

from laminar_core.driver.events import ProgressMade
from laminar_core.driver.operator_watch import OperatorWatch
from laminar_core.link.messages import Progress
from laminar_core.objectstore.contract import ObjectStore, counts_of
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.protocol.unaligned import UnalignedCheckpointMetrics
from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals
from laminar_core.records.record import JsonObject
from laminar_core.records.source_numbers import SourceNumbers


@dataclass(frozen=True, slots=True)
class RowTotals:
    """Rows over the whole history of the job."""

    rows_in: int = 0
    rows_out: int = 0
    rows_late: int = 0
    bad_rows: BadRowTotals = NO_BAD_ROWS


class WorkersProgress:
    """The newest report of each worker, and what the driver sends to ``objects`` beside them."""

    def __init__(self, parallelism: int, now_ms: float, objects: ObjectStore | None = None) -> None:
        self._objects = objects
        self._sent_before = self._sent_by_driver()
        self._parallelism = parallelism
        self._reports: dict[int, Progress] = {}
        self._work: dict[int, Progress] = {}
        """The newest report of each worker that has its operators."""
        self._last_rows = (now_ms, 0)
        self._last_beat: tuple[float, int] | None = None
        self._beat_watch, self._event_watch = OperatorWatch(), OperatorWatch()

    def keep(self, report: Progress) -> None:
        """Replace the worker's last report; rows in its first one were read before."""
        if report.worker not in self._reports:
            since_ms, rows_in = self._last_rows
            self._last_rows = (since_ms, rows_in + report.rows_in)
        self._reports[report.worker] = report
        if report.operators:
            self._work[report.worker] = report

    @property
    def complete(self) -> bool:
        """Whether every worker has reported; before that totals would jump."""
        return len(self._reports) == self._parallelism

    @property
    def drained(self) -> bool:
        """Whether the input has ended and was flushed."""
        return self.complete and all(report.drained for report in self._reports.values())

    def totals(self) -> RowTotals:
        """Return the sums over all workers."""
        reports: Collection[Progress] = self._reports.values()
        return RowTotals(
            rows_in=sum(p.rows_in for p in reports),
            rows_out=sum(p.rows_out for p in reports),
            rows_late=sum(p.rows_late for p in reports),
            bad_rows=BadRowTotals.total(p.bad_rows for p in reports),
        )

    def sources(self) -> dict[str, SourceNumbers]:
        """Return the numbers of each source over all workers, by operator."""
        parts: defaultdict[str, list[SourceNumbers]] = defaultdict(list)
        for report in self._reports.values():
            for operator_id, source in report.sources.items():
                parts[operator_id].append(source.numbers)
        return {operator_id: SourceNumbers.total(found) for operator_id, found in parts.items()}

    def as_json(self, now_ms: float) -> JsonObject:
        """Return the progress for the heartbeat; empty until every worker has reported.

        ``rows_per_s`` is there from the second call on; ``now_ms`` is monotonic. ``requests``
        counts this generation's requests, of its workers from their start, and of the driver from
        the moment it waited for them. It is there if the store counts them.
        """
        if not self.complete:
            return {}
        requests = self._requests()
        told: JsonObject = {} if requests is None else {"requests": asdict(requests)}
        totals, before = self.totals(), self._last_beat
        self._last_beat = (now_ms, totals.rows_in)
        if before is not None:
            told["rows_per_s"] = _rows_per_s(before, self._last_beat)
        rows: JsonObject = {
            "rows_in": totals.rows_in,
            "rows_out": totals.rows_out,
            "rows_late": totals.rows_late,
            **totals.bad_rows.as_properties(),
        }
        if operators := self._beat_watch.look(self._work):
            told["operators"] = {name: numbers.model_dump() for name, numbers in operators.items()}
        return {**rows, "watermark_us": self._watermark_us(), **told}

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
        """Return the progress event; ``now_ms`` is monotonic, for the rate since the last one."""
        totals = self.totals()
        before, self._last_rows = self._last_rows, (now_ms, totals.rows_in)
        reports: Collection[Progress] = self._reports.values()
        return ProgressMade(
            time_ms=time_ms,
            rows_in=totals.rows_in,
            rows_out=totals.rows_out,
            rows_late=totals.rows_late,
            bad_rows=totals.bad_rows,
            rows_total=rows_total,
            rows_per_s=_rows_per_s(before, self._last_rows),
            watermark_us=self._watermark_us(),
            unaligned=UnalignedCheckpointMetrics.total(p.unaligned for p in reports),
            operators=self._event_watch.look(self._work),
        )

    def _watermark_us(self) -> int | None:
        """The slowest; None until everybody has one."""
        watermarks = [report.watermark_us for report in self._reports.values()]
        known = [w for w in watermarks if w is not None]
        return min(known) if len(known) == len(watermarks) else None


def _rows_per_s(before: tuple[float, int], now: tuple[float, int]) -> float:
    return 1000 * max(now[1] - before[1], 0) / max(now[0] - before[0], 1)
