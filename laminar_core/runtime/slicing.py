"""How many rows one unit of work takes, so that a barrier never waits long for a slow operator.

Between two units a task looks after its queues, and only there it can cut. An operator that needs
a second for a batch would therefore delay every checkpoint by a second, aligned or not; so its
batches are taken in slices that need about ``UNIT_MS``. What is left of a batch stays in its queue
and is captured like anything else there.

Slices help only if a part of the rows needs a part of the time. If they turn out to cost more than
they are worth (one remote call for each batch, say), whole batches are taken for a long while.
"""

UNIT_MS = 20.0
"""Aim for the duration of one unit of work."""

SLICE_ROWS_MAX = 1_000_000
"""Slices that may grow beyond this are whole batches again."""

WORTH_IT = 0.5
"""Slices have to reach this part of the whole batches' rows per millisecond."""

JUDGED_SLICES = 8
"""So many slices together are compared with a whole batch: one may have met a busy machine."""

PATIENCE_UNITS = 50
"""So many whole batches before slices are tried again; twice as many after each failure."""

PATIENCE_UNITS_MAX = 100_000


class WorkUnit:
    """Learns from what units have taken; ``rows_max`` is how many rows the next one may have."""

    def __init__(self) -> None:
        self.rows_max: int | None = None
        """None: a whole batch."""
        self._whole_rows_per_ms = 0.0
        self._whole_units_left = 0
        self._patience_units = PATIENCE_UNITS
        self._judged = (0, 0, 0.0)
        """Full slices since the last verdict: how many, their rows, their milliseconds."""

    def took(self, row_count: int, elapsed_ms: float) -> None:
        """A unit with so many rows is done."""
        if self._whole_units_left:
            self._whole_units_left -= 1
        elif self.rows_max is None:
            self._after_whole(row_count, elapsed_ms)
        elif row_count >= self.rows_max:  # The end of a batch says little.
            self._after_slice(row_count, elapsed_ms)

    def _after_whole(self, row_count: int, elapsed_ms: float) -> None:
        if elapsed_ms > UNIT_MS and row_count > 1:
            self._whole_rows_per_ms = row_count / elapsed_ms
            self._resize(max(int(row_count * UNIT_MS / elapsed_ms), 1))

    def _after_slice(self, row_count: int, elapsed_ms: float) -> None:
        slices, rows, took_ms = self._judged
        self._judged = slices + 1, rows + row_count, took_ms + elapsed_ms
        if self._judged[0] == JUDGED_SLICES:
            self._judge()

    def _judge(self) -> None:
        slices, rows, took_ms = self._judged
        assert self.rows_max is not None, "a slice has a size"
        mean_ms = took_ms / slices
        if mean_ms > UNIT_MS and rows / took_ms < WORTH_IT * self._whole_rows_per_ms:
            self._resize(None)
            self._whole_units_left = self._patience_units
            self._patience_units = min(2 * self._patience_units, PATIENCE_UNITS_MAX)
        elif mean_ms > 2 * UNIT_MS:
            self._resize(max(self.rows_max // 2, 1))
        elif mean_ms < UNIT_MS / 2:
            doubled = 2 * self.rows_max
            self._resize(doubled if doubled <= SLICE_ROWS_MAX else None)
        else:
            self._resize(self.rows_max)

    def _resize(self, rows_max: int | None) -> None:
        self.rows_max = rows_max
        self._judged = (0, 0, 0.0)
