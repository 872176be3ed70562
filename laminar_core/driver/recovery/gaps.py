"""Decide whether a job may start although a source no longer has rows that it needs.

The facts are the gaps behind the positions of the checkpoint. ``judge_gaps`` decides: pure, and its
problem names every gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.connectors.base import Gap, Source
from laminar_core.driver.recovery.acceptance import Acceptance, AcceptanceKind, find_acceptance
from laminar_core.errors import ErrorCode, IncompatibleStateError

GAPS_NAMED_MAX = 5
"""Gaps that a message names; the report of a dry run has all of them."""


@dataclass(frozen=True, slots=True)
class GapVerdict:
    """The decision for one source."""

    problem: IncompatibleStateError | None = None
    used: Acceptance | None = None
    accepted: tuple[str, ...] = ()
    """One line for each gap that a person accepted: the range, and the rows that are lost."""


def judge_gaps(operator_id: str, gaps: Sequence[Gap], accepted: Sequence[Acceptance]) -> GapVerdict:
    """Decide whether the job may start with these gaps."""
    if not gaps:
        return GapVerdict()
    by = find_acceptance(accepted, AcceptanceKind.SOURCE_GAP, operator_id)
    if by is not None:
        return GapVerdict(None, by, tuple(f"{by}: {_facts(gap)}" for gap in gaps))
    named = "; ".join(str(gap) for gap in gaps[:GAPS_NAMED_MAX])
    more = f"; and {len(gaps) - GAPS_NAMED_MAX} more" if len(gaps) > GAPS_NAMED_MAX else ""
    return GapVerdict(
        IncompatibleStateError(
            ErrorCode.SOURCE_CHANGED,
            f"source {operator_id}: {named}{more}. To continue without these rows, start once with "
            f"--accept source-gap:{operator_id}=earliest or =skip-split, and a --reason",
        )
    )


def mended(source: Source, splits: pa.Table, gaps: Sequence[Gap], by: Acceptance) -> pa.Table:
    """Return the splits with their positions moved past all gaps.

    Raises:
        IncompatibleStateError: the source cannot continue in this way, or rows are missing even
            then.
    """
    for gap in gaps:
        splits = source.mend(splits, gap, "earliest" if by.how == "earliest" else "skip-split")
    left = source.gaps(splits)
    if left:
        raise IncompatibleStateError(
            ErrorCode.SOURCE_CHANGED, f"{by} does not help: {left[0]}; wait, and start again"
        )
    return splits


def _facts(gap: Gap) -> str:
    """Return the gap without advice."""
    there = "nothing" if gap.available is None else "{} to {}".format(*gap.available)
    lost = "an unknown number of" if gap.rows_lost is None else str(gap.rows_lost)
    return f"{gap.split} from {gap.wanted}, {there} was there ({gap.why}), {lost} rows lost"
