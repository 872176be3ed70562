"""Progress of a restore: workers count what they have read, the coordinator adds it up.

Reports are made by size: two for a small restore and some twenty for a large one, however long it
takes.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from laminar_core.errors import ErrorCode
from laminar_core.link.messages import Restoring

STEP_BYTES_MIN = 4 * 2**20
STEPS = 20
"""A report follows each twentieth of the bytes, but not for less than ``STEP_BYTES_MIN``."""


@dataclass(frozen=True, slots=True)
class RestoreSize:
    """Files of state, and their bytes."""

    files: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> "RestoreSize":
        """Return the size with one more file."""
        return RestoreSize(self.files + 1, self.size_bytes + size_bytes)


class RestoreMeter:
    """Counts the files that one worker reads, and reports progress.

    The first report is the start.
    """

    def __init__(self, total: RestoreSize, report: Callable[[RestoreSize], None]) -> None:
        self._total = total
        self._report = report
        self._read = RestoreSize()
        self._next_bytes = 0
        self._notify()

    def read(self, size_bytes: int) -> None:
        """Count a file that was read and decoded."""
        self._read = self._read.plus(size_bytes)
        is_last = self._read.files == self._total.files
        if is_last or self._read.size_bytes >= self._next_bytes:
            self._notify()

    def _notify(self) -> None:
        step_bytes = max(self._total.size_bytes // STEPS, STEP_BYTES_MIN)
        self._next_bytes = self._read.size_bytes + step_bytes
        self._report(self._read)


@dataclass(frozen=True, slots=True)
class RestoreTotals:
    """Progress over all workers."""

    files: int
    files_total: int
    size_bytes: int
    bytes_total: int

    @property
    def percent(self) -> float:
        """The share of bytes that were read; state for several workers counts several times."""
        return 100.0 * self.size_bytes / self.bytes_total if self.bytes_total else 100.0


class RestoreProgress:
    """The newest report of each worker, at the coordinator."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._reports: dict[int, Restoring] = {}
        self._told_bytes: int | None = None

    def take(self, report: Restoring) -> RestoreTotals | None:
        """Take a report; return the totals if they should be published.

        They are published when all workers have started, then by size, and when everything is read.
        A job without state to restore publishes none.
        """
        self._reports[report.worker] = report
        if len(self._reports) < self._parallelism:
            return None
        reports = self._reports.values()
        totals = RestoreTotals(
            files=sum(r.files for r in reports),
            files_total=sum(r.files_total for r in reports),
            size_bytes=sum(r.size_bytes for r in reports),
            bytes_total=sum(r.bytes_total for r in reports),
        )
        told_bytes, step_bytes = self._told_bytes, max(totals.bytes_total // STEPS, STEP_BYTES_MIN)
        is_over = totals.files == totals.files_total and told_bytes != totals.size_bytes
        is_far = told_bytes is None or totals.size_bytes - told_bytes >= step_bytes
        if not totals.bytes_total or not (is_over or is_far):
            return None
        self._told_bytes = totals.size_bytes
        return totals

    def why_late(self, registered: Collection[int], register_ms: float) -> tuple[ErrorCode, str]:
        """Return why not all workers have registered within ``register_ms``.

        A worker that reads its state has a slot; one that never reported has none.
        """
        started = {*registered, *self._reports}
        within = f"within {register_ms / 1000:g} s"
        if len(started) < self._parallelism:
            return ErrorCode.NOT_ENOUGH_SLOTS, (
                f"only {len(started)} of {self._parallelism} workers started {within}: give Spark "
                "enough slots, or wait longer for them (--start-timeout)"
            )
        late = [report for worker, report in self._reports.items() if worker not in registered]
        slowest = max(late, key=lambda report: report.bytes_total - report.size_bytes)
        read = f"{slowest.size_bytes / 1e6:.1f} of {slowest.bytes_total / 1e6:.1f} MB"
        return ErrorCode.SLOW_START, (
            f"all {self._parallelism} workers started, and {len(late)} were not ready {within}: "
            f"worker {slowest.worker} had read {read} of state; give them more time "
            "(--start-timeout)"
        )
