"""Decide what is reported of a stream's visible output: pure functions of facts.

What Dagster shows as the newest report is the only memory: a tick that is repeated, dies half-way
or has lost its cursor continues behind it. Reports are made in the order of time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from laminar_core.protocol.recovery_facts import Base
from laminar_core.records.sink_outputs import EventTimeReached
from laminar_core.resources.output_partitions import OutputPartitions

PARTITIONS_MAX = 50
"""Partitions at a time; after a gap of many hours several ticks report them."""


@dataclass(frozen=True, slots=True)
class ReportedOutput:
    """The newest report of a stream's output that Dagster has.

    ``store`` is the identity of the store. ``partition`` is None if the output has none.
    """

    store: str
    checkpoint_id: int
    generation: int
    rows: int
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class VisibleOutput:
    """The output of the newest committed checkpoint."""

    checkpoint_id: int
    rows: int
    time: EventTimeReached


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Output that was reported, and that a later generation did not continue from.

    ``watermark_us`` is the event time of the checkpoint from which it continued; None: nothing was
    kept, or that checkpoint cannot be read any more.
    """

    watermark_us: int | None = None


@dataclass(frozen=True, slots=True)
class Passed:
    """Reports to make now, oldest first; ``more``: others follow in a later tick."""

    partitions: tuple[str | None, ...] = ()
    """None: the output has no partitions."""
    more: bool = False


def withdrawn_to(reported: ReportedOutput, bases: Iterable[Base]) -> Base | None:
    """Return the base of a later generation that did not keep all of the reported output.

    Of several, the one that kept least. None: it is all still there.
    """
    later = [base for base in bases if base.generation > reported.generation]
    lowest = min(later, key=kept_by, default=None)
    return None if lowest is None or kept_by(lowest) >= reported.checkpoint_id else lowest


def kept_by(base: Base) -> int:
    """Return up to which checkpoint a generation keeps output.

    0: none, because it was started afresh, or because a part of the pipeline was.
    """
    return 0 if base.has_reset else (base.newest_kept or 0)


def has_new_rows(
    reported: ReportedOutput | None, visible: VisibleOutput, withdrawn: Withdrawn | None
) -> bool:
    """Return whether an output without partitions is to be reported."""
    if reported is None:
        return visible.rows > 0
    if visible.checkpoint_id <= reported.checkpoint_id:
        return False
    return withdrawn is not None or visible.rows != reported.rows


def passed_partitions(
    partitions: OutputPartitions,
    reported: ReportedOutput | None,
    visible: VisibleOutput,
    withdrawn: Withdrawn | None,
    now_ms: int,
) -> Passed:
    """Return the partitions behind the reported ones whose end event time has passed.

    If the input has ended, the one that event time is in is complete, too. Dagster knows a
    partition only when the clock has passed its end, so others have to wait.
    """
    definition = partitions.definition
    begin = _not_reported(definition, reported, withdrawn)
    complete = _complete(definition, visible.time)
    if complete is None or complete <= begin:
        return Passed()
    last = min(complete, _last_end(definition, datetime.fromtimestamp(now_ms / 1000, UTC)))
    # One more than enough, because a day may be short.
    reach = min(last, begin + (PARTITIONS_MAX + 1) * partitions.length)
    keys = definition.get_partition_keys_in_time_window(dg.TimeWindow(begin, reach))
    found = tuple(keys[:PARTITIONS_MAX]) if begin < reach else ()
    end = definition.end_time_for_partition_key(found[-1]) if found else begin
    return Passed(found, more=end.astimezone(UTC) < complete)


def _not_reported(
    definition: dg.TimeWindowPartitionsDefinition,
    reported: ReportedOutput | None,
    withdrawn: Withdrawn | None,
) -> datetime:
    """Return the beginning of the first partition to report."""
    start = definition.start.astimezone(UTC)
    if reported is None or reported.partition is None:
        return start
    try:
        end = definition.end_time_for_partition_key(reported.partition).astimezone(UTC)
    except ValueError:  # Of hours, and now there are days; or the other way round.
        return start
    if withdrawn is None:
        return max(end, start)
    if withdrawn.watermark_us is None:
        return start
    return min(end, max(_last_end(definition, _at(withdrawn.watermark_us)), start))


def _complete(
    definition: dg.TimeWindowPartitionsDefinition, time: EventTimeReached
) -> datetime | None:
    """Return the end of the last partition that is complete; None: no event time is known."""
    if time.watermark_us is None:
        return None
    end = _last_end(definition, _at(time.watermark_us))
    if not time.ended:
        return end
    following = definition.get_next_partition_window(end, respect_bounds=False)
    return end if following is None else following.end.astimezone(UTC)


def _last_end(definition: dg.TimeWindowPartitionsDefinition, at: datetime) -> datetime:
    """Return the newest end of a partition that is not after ``at``.

    In UTC, like all times here: in a zone, two hours are equal when its clocks are set back.
    """
    start = definition.start.astimezone(UTC)
    if at <= start:
        return start
    key = definition.get_partition_key_for_timestamp(at.timestamp())
    return definition.start_time_for_partition_key(key).astimezone(UTC)


def _at(time_us: int) -> datetime:
    """Event time may be any number; what a date cannot show is as far away as it can."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    except OverflowError:
        return datetime(1970 if time_us < 0 else 9000, 1, 1, tzinfo=UTC)
