"""Event times of channels as a manifest lists them: by channel, with ranges of receivers.

A watermark goes to all receivers. So after an aligned barrier they have the same event time of a
sender, and one range has all of them.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from pydantic import Field, model_validator

from laminar_core.records.channel_entries import AlignmentEntry, ChannelEntry
from laminar_core.records.limits import CHANNELS_MAX
from laminar_core.records.ranges import Range, Ranges, count_of, problem_of_ranges
from laminar_core.records.record import Count, Many, Record, TimeUs

_Column = list[tuple[int, int | None]]
"""(receiver, watermark_us), ascending."""


class ChannelTimes(Record):
    """Event time of the channel that has this number, at each receiver of a vertex.

    A channel that is idle at some receivers only has two of these.
    """

    vertex_id: str = Field(description="The receivers'.")
    input_id: Count
    idle: bool
    receivers: Ranges = Field(description="Subtasks of the vertex.")
    watermark_us: Many[TimeUs | None] = Field(description="Of each range.")

    @model_validator(mode="after")
    def _has_a_time_for_each_range(self) -> Self:
        if len(self.receivers) != len(self.watermark_us):
            raise ValueError(
                f"{len(self.receivers)} ranges of receivers have {len(self.watermark_us)} times"
            )
        return self


def folded_times(alignment: Iterable[AlignmentEntry]) -> Iterator[ChannelTimes]:
    """Yield the event times of all channels, in the order of vertices and channels."""
    by_vertex: dict[str, dict[tuple[int, bool], _Column]] = {}
    for entry in sorted(alignment, key=lambda each: each.subtask_index):
        columns = by_vertex.setdefault(entry.vertex_id, {})
        for channel in entry.channels:
            column = columns.setdefault((channel.input_id, channel.idle), [])
            column.append((entry.subtask_index, channel.watermark_us))
    for vertex_id, columns in sorted(by_vertex.items()):
        for (input_id, idle), column in sorted(columns.items()):
            ranges = list(_runs(column))
            yield ChannelTimes(
                vertex_id=vertex_id,
                input_id=input_id,
                idle=idle,
                receivers=tuple((first, last) for first, last, _ in ranges),
                watermark_us=tuple(watermark_us for _, _, watermark_us in ranges),
            )


def _runs(column: _Column) -> Iterator[tuple[int, int, int | None]]:
    """Join neighbours that have the same event time."""
    first, time_us = column[0]
    last = first - 1
    for receiver, watermark_us in column:
        if receiver != last + 1 or watermark_us != time_us:
            yield first, last, time_us
            first, time_us = receiver, watermark_us
        last = receiver
    yield first, last, time_us


def problem_of_times(
    times: Sequence[ChannelTimes], alignment: Iterable[AlignmentEntry]
) -> str | None:
    """Return why these cannot be the event times of these subtasks; None: they can.

    Ranges are counted and looked up, so a huge one costs nothing.
    """
    if (problem := why_too_many(times)) is not None:
        return problem
    subtasks: defaultdict[str, set[int]] = defaultdict(set)
    for entry in alignment:
        subtasks[entry.vertex_id].add(entry.subtask_index)
    listed = {vertex_id: sorted(indexes) for vertex_id, indexes in subtasks.items()}
    for each in times:
        for first, last in each.receivers:
            if _count_within(listed.get(each.vertex_id, ()), first, last) != last - first + 1:
                return f"event time of unknown subtasks: {each.vertex_id} {first} to {last}"
    return _problem_of_channels(times)


def why_too_many(times: Iterable[ChannelTimes]) -> str | None:
    """Return why these channels would take too much memory; None: they do not."""
    channels = sum(count_of(each.receivers) for each in times)
    if channels <= CHANNELS_MAX:
        return None
    return f"event times of {channels} channels, and {CHANNELS_MAX} is the most that is read"


def _count_within(numbers: Sequence[int], first: int, last: int) -> int:
    return bisect_right(numbers, last) - bisect_left(numbers, first)


def _problem_of_channels(times: Iterable[ChannelTimes]) -> str | None:
    ranges: defaultdict[tuple[str, int], list[Range]] = defaultdict(list)
    for each in times:
        ranges[each.vertex_id, each.input_id] += each.receivers
    for (vertex_id, input_id), found in ranges.items():
        if (problem := problem_of_ranges(sorted(found))) is not None:
            return f"event times of channel {input_id} of {vertex_id}: {problem}"
    return None


def unfolded_times(
    times: Iterable[ChannelTimes],
) -> defaultdict[tuple[str, int], list[ChannelEntry]]:
    """Return the channels of each subtask, by vertex and index, in the order of their numbers.

    The subtasks of a range share one entry.
    """
    found: defaultdict[tuple[str, int], list[ChannelEntry]] = defaultdict(list)
    for each in sorted(times, key=lambda each: each.input_id):
        for (first, last), watermark_us in zip(each.receivers, each.watermark_us, strict=True):
            entry = ChannelEntry(input_id=each.input_id, watermark_us=watermark_us, idle=each.idle)
            for receiver in range(first, last + 1):
                found[each.vertex_id, receiver].append(entry)
    return found
