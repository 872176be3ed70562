"""The number of rows in a unit of work, so that a barrier never waits long for a slow operator.

Between two units a task serves its queues, and only there it can cut. An operator that needs a
second for a batch would therefore delay every checkpoint by a second, aligned or not; so its
batches are taken in slices that need about ``UNIT_MS``. The rest of a batch stays in its queue and
is captured like any other element.

Slices help only if the time is in proportion to the rows. If they turn out to cost more than they
gain (one remote call for each batch, say), whole batches are taken for a long while.

While barriers of a checkpoint overtake, or are about to, units take about ``URGENT_UNIT_MS``,
because each step of the checkpoint waits for the end of one. They are not always so short: what
comes after the operator works on each slice, and pays a price for it.
"""

UNIT_MS = 20.0
"""Aim for the duration of one unit of work."""

URGENT_UNIT_MS = 5.0
"""Aim while barriers of a checkpoint overtake, or are about to."""

SLICE_ROWS_MAX = 1_000_000
"""Slices that may grow beyond this are whole batches again."""

WORTH_IT = 0.5
"""Slices have to reach this part of the whole batches' rows per millisecond."""

SLOW_BATCHES = 2
"""Consecutive slow batches before slicing: a single one may be caused by a busy machine."""

VERY_SLOW_MS = 5 * UNIT_MS
"""Time of a single batch after which slicing begins: no busy machine explains it."""

JUDGED_SLICES = 8
"""Number of slices; the fastest of them defines the cost, for the same reason."""

PATIENCE_UNITS = 50
"""Whole batches before slices are tried again; doubled after each failure."""

PATIENCE_UNITS_MAX = 100_000


class WorkUnit:
    """Learns from what units have taken; ``rows_max`` is how many rows the next one may have."""

    def __init__(self) -> None:
        self.urgent = False
        """Whether a checkpoint waits for the end of each unit, or is about to."""
        self._slice_rows: int | None = None
        """Largest number of rows in a usual unit; None: a whole batch."""
        self._urgent_rows: int | None = None
        """Largest number of rows in an urgent unit; None: as usual."""
        self._usual_rate = 0.0
        """Rows per millisecond of usual units."""
        self._urgent_rates: list[float] = []
        """Rows per millisecond of urgent units since they were last judged."""
        self._may_shorten = True
        """Whether short units cost less than they gain."""
        self._rates: list[float] = []
        """Rows per millisecond of the units that the next verdict is about."""
        self._whole_rate = 0.0
        self._whole_units_left = 0
        self._patience_units = PATIENCE_UNITS

    @property
    def rows_max(self) -> int | None:
        """Largest number of rows in the next unit; None: a whole batch."""
        if self.urgent and self._may_shorten and self._urgent_rows is not None:
            return self._urgent_rows
        return self._slice_rows

    def took(self, row_count: int, elapsed_ms: float) -> None:
        """Adapt the number of rows after a unit."""
        rate = row_count / max(elapsed_ms, 1e-3)
        if self.urgent and self._urgent_rows is not None and row_count <= self._urgent_rows:
            self._after_urgent(row_count, rate)
        elif self._whole_units_left:
            self._whole_units_left -= 1
        elif self._slice_rows is None:
            self._after_whole(row_count, elapsed_ms, rate)
        elif row_count >= self._slice_rows:  # The end of a batch says little.
            self._rates.append(rate)
            if len(self._rates) == JUDGED_SLICES:
                self._judge(self._slice_rows, max(self._rates))

    def _after_whole(self, row_count: int, elapsed_ms: float, rate: float) -> None:
        self._shorten_from(rate, sliced=elapsed_ms > URGENT_UNIT_MS)
        if elapsed_ms <= UNIT_MS or row_count == 1:
            self._rates.clear()
            return
        self._rates.append(rate)
        if len(self._rates) == SLOW_BATCHES or elapsed_ms > VERY_SLOW_MS:
            self._whole_rate = max(self._rates)
            self._resize(self._whole_rate * UNIT_MS)

    def _shorten_from(self, rate: float, *, sliced: bool) -> None:
        """Adapt urgent units to usual ones; ``sliced``: these are too long."""
        self._usual_rate = rate
        self._urgent_rows = max(int(rate * URGENT_UNIT_MS), 1) if sliced else None

    def _after_urgent(self, row_count: int, rate: float) -> None:
        """Keep to usual units if short ones cost too much, until slices have another size."""
        if row_count == self._urgent_rows:
            self._urgent_rates.append(rate)
        if len(self._urgent_rates) == JUDGED_SLICES:
            rate = max(self._urgent_rates)
            self._may_shorten = rate >= WORTH_IT * self._usual_rate
            self._urgent_rows = max(int(rate * URGENT_UNIT_MS), 1)
            self._urgent_rates.clear()

    def _judge(self, rows_max: int, rate: float) -> None:
        slice_ms = rows_max / rate
        self._shorten_from(rate, sliced=True)
        if slice_ms > UNIT_MS and rate < WORTH_IT * self._whole_rate:
            self._whole_units_left = self._patience_units
            self._patience_units = min(2 * self._patience_units, PATIENCE_UNITS_MAX)
            self._urgent_rows = None
            self._resize(None)
        elif not UNIT_MS / 2 <= slice_ms <= UNIT_MS * 2:
            self._resize(rate * UNIT_MS)
        else:
            self._resize(rows_max)

    def _resize(self, rows: float | None) -> None:
        before, self._slice_rows = self._slice_rows, None
        if rows is not None and rows <= SLICE_ROWS_MAX:
            self._slice_rows = max(int(rows), 1)
        self._rates.clear()
        if self._slice_rows != before:
            self._urgent_rates.clear()
            self._may_shorten = True
