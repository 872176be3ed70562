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

PATIENCE_UNITS = 200
"""So many whole batches before slices are tried again."""


class WorkUnit:
    """Learns from what units have taken; ``rows_max`` is how many rows the next one may have."""

    def __init__(self) -> None:
        self.rows_max: int | None = None
        """None: a whole batch."""
        self._whole_rows_per_ms = 0.0
        self._patience = 0

    def took(self, row_count: int, elapsed_ms: float) -> None:
        """A unit with so many rows is done."""
        if self._patience:
            self._patience -= 1
        elif self.rows_max is None:
            self._after_whole(row_count, elapsed_ms)
        else:
            self._after_slice(row_count, elapsed_ms)

    def _after_whole(self, row_count: int, elapsed_ms: float) -> None:
        if elapsed_ms > UNIT_MS and row_count > 1:
            self._whole_rows_per_ms = row_count / elapsed_ms
            self.rows_max = max(int(row_count * UNIT_MS / elapsed_ms), 1)

    def _after_slice(self, row_count: int, elapsed_ms: float) -> None:
        assert self.rows_max is not None, "a slice has a size"
        if row_count < self.rows_max:
            return  # The end of a batch says little.
        if elapsed_ms > UNIT_MS and row_count / elapsed_ms < WORTH_IT * self._whole_rows_per_ms:
            self.rows_max, self._patience = None, PATIENCE_UNITS
        elif elapsed_ms > 2 * UNIT_MS:
            self.rows_max = max(self.rows_max // 2, 1)
        elif elapsed_ms < UNIT_MS / 2:
            doubled = 2 * self.rows_max
            self.rows_max = doubled if doubled <= SLICE_ROWS_MAX else None
