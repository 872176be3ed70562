"""The number of rows in a unit of work, so that a barrier never waits long for a slow operator.

Between two units a task serves its queues, and only there it can cut. An operator that needs a
second for a batch would therefore delay every checkpoint by a second, aligned or not; so its
batches are taken in slices that need about ``UNIT_MS``. The rest of a batch stays in its queue and
is captured like any other element.

Slices help only if the time is in proportion to the rows. If they turn out to cost more than they
gain (one remote call for each batch, say), whole batches are taken for a long while.
"""

UNIT_MS = 20.0
"""Aim for the duration of one unit of work."""

SLICE_ROWS_MAX = 1_000_000
"""Slices that may grow beyond this are whole batches again."""

WORTH_IT = 0.5
"""Slices have to reach this part of the whole batches' rows per millisecond."""

SLOW_BATCHES = 2
"""Consecutive slow batches before slicing: a single one may be caused by a busy machine."""

JUDGED_SLICES = 8
"""Number of slices; the fastest of them defines the cost, for the same reason."""

PATIENCE_UNITS = 50
"""Whole batches before slices are tried again; doubled after each failure."""

PATIENCE_UNITS_MAX = 100_000


class WorkUnit:
    """Learns from what units have taken; ``rows_max`` is how many rows the next one may have."""

    def __init__(self) -> None:
        self.rows_max: int | None = None
        """Largest number of rows in a unit; None: a whole batch."""
        self._rates: list[float] = []
        """Rows per millisecond of the units that the next verdict is about."""
        self._whole_rate = 0.0
        self._whole_units_left = 0
        self._patience_units = PATIENCE_UNITS

    def took(self, row_count: int, elapsed_ms: float) -> None:
        """Adapt the number of rows after a unit."""
        rate = row_count / max(elapsed_ms, 1e-3)
        if self._whole_units_left:
            self._whole_units_left -= 1
        elif self.rows_max is None:
            self._after_whole(row_count, elapsed_ms, rate)
        elif row_count >= self.rows_max:  # The end of a batch says little.
            self._rates.append(rate)
            if len(self._rates) == JUDGED_SLICES:
                self._judge(self.rows_max, max(self._rates))

    def _after_whole(self, row_count: int, elapsed_ms: float, rate: float) -> None:
        if elapsed_ms <= UNIT_MS or row_count == 1:
            self._rates.clear()
            return
        self._rates.append(rate)
        if len(self._rates) == SLOW_BATCHES:
            self._whole_rate = max(self._rates)
            self._resize(self._whole_rate * UNIT_MS)

    def _judge(self, rows_max: int, rate: float) -> None:
        slice_ms = rows_max / rate
        if slice_ms > UNIT_MS and rate < WORTH_IT * self._whole_rate:
            self._whole_units_left = self._patience_units
            self._patience_units = min(2 * self._patience_units, PATIENCE_UNITS_MAX)
            self._resize(None)
        elif not UNIT_MS / 2 <= slice_ms <= UNIT_MS * 2:
            self._resize(rate * UNIT_MS)
        else:
            self._resize(rows_max)

    def _resize(self, rows: float | None) -> None:
        self.rows_max = None
        if rows is not None and rows <= SLICE_ROWS_MAX:
            self.rows_max = max(int(rows), 1)
        self._rates.clear()
