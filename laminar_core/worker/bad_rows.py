"""Apply the policy for bad rows of a source in one worker, and count them."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pyarrow as pa

from laminar_core.connectors.base import SourceBatch
from laminar_core.connectors.formats.bad_rows import (
    BadRowCounts,
    BadRowPolicy,
    BadRows,
    SkippedMessage,
)
from laminar_core.connectors.formats.letters import letter_rows
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals


class BadRowGate:
    """Lets batches of one source subtask pass, and decides on the letters among them.

    ``position`` returns the reader's table of splits, which names the split of a batch.
    """

    def __init__(
        self,
        source: str,
        policy: BadRowPolicy,
        position: Callable[[], pa.Table],
        *,
        skip: Iterable[SkippedMessage] = (),
        before: BadRowTotals = NO_BAD_ROWS,
    ) -> None:
        self._source = source
        self._judge = BadRows(source, policy, skip)
        self._counts = BadRowCounts()
        self._before = before
        self._position = position
        self._names: dict[int, str] = {}

    @property
    def totals(self) -> BadRowTotals:
        """Bad rows over the whole history of this subtask."""
        counts = self._counts
        return self._before + BadRowTotals(counts.letters, counts.dropped, counts.skipped)

    def judged(self, batch: SourceBatch) -> SourceBatch:
        """Return the batch with only the letters for the side output, in that output's columns.

        Raises:
            DataError: the job must stop because of one of them.
            ConfigurationError: the reader does not say which split the letters are of.
        """
        letters = batch.letters
        if letters is None:
            self._counts = self._judge.passed(self._counts, batch.message_count)
            return batch
        split = self._name_of(batch.split_id)
        verdict = self._judge.judge(self._counts, split, letters, batch.message_count)
        if verdict.failure is not None:
            raise verdict.failure
        self._counts = verdict.counts
        handed_on = letter_rows(self._source, split, verdict.letters)
        return replace(batch, letters=handed_on if handed_on.num_rows else None)

    def _name_of(self, split_id: int | None) -> str:
        if split_id not in self._names:
            splits = self._position()
            ids = splits.column("split_id").to_pylist()
            self._names = dict(zip(ids, splits.column("split").to_pylist(), strict=True))
        if split_id is None or split_id not in self._names:
            raise ConfigurationError(
                ErrorCode.INVALID_PIPELINE,
                f"{self._source} returned letters of split {split_id}, which it does not have: "
                "set split_id of the batch",
            )
        return self._names[split_id]
