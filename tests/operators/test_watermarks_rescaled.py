"""Watermarks when the number of workers changes: late rows stay late, and no other row is dropped.

Senders read splits and make watermarks of what they read. Receivers own ranges of keys, and take
the least watermark of all senders. A cut finds senders and receivers at different times, with rows
on their way. Then other workers continue: each split may have another reader, and each key another
receiver, and each sender continues from the least that any old one had seen.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_group_range, key_groups_of
from laminar_core.operators.base import Snapshot, SubtaskContext
from laminar_core.operators.joins.progress import JoinProgress
from laminar_core.operators.joins.side import EventRows
from laminar_core.operators.watermarks import AssignWatermarks, WatermarkAssigner
from laminar_core.protocol.types import WATERMARK_MIN_US, CheckpointId, Generation, Watermark

KEY_GROUPS = 8
SPLITS = 4
DELAY_US = 10
SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("in_time", pa.bool_())])


class Workers:
    """Senders, receivers and the channels between them, under a model of what each row is."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.newest_read_us = [0] * SPLITS
        """By split, the newest time read; a split goes on from there."""
        self.reached_us = [WATERMARK_MIN_US] * KEY_GROUPS
        """By key group, the event time that the receiver of any time had come to."""
        self.accepted = {True: 0, False: 0}
        """Rows that were accepted, by whether they had to be."""
        self.late_count = 0
        self._start(1, [], [], None)

    def _start(
        self,
        workers: int,
        senders: Sequence[Snapshot],
        receivers: Sequence[Snapshot],
        least_us: int | None,
    ) -> None:
        contexts = [
            SubtaskContext("w", n, workers, KEY_GROUPS, Generation(1)) for n in range(workers)
        ]
        spec = AssignWatermarks("w", "ts", DELAY_US)
        self.senders: list[WatermarkAssigner] = [spec.open(one, SCHEMA) for one in contexts]
        self.receivers = [JoinProgress(one, 0) for one in contexts]
        self.owned = [key_group_range(n, KEY_GROUPS, workers) for n in range(workers)]
        before = [key_group_range(n, KEY_GROUPS, len(receivers)) for n in range(len(receivers))]
        for sender in self.senders:
            if senders:
                sender.restore(senders)
        for receiver, groups in zip(self.receivers, self.owned, strict=True):
            if receivers:
                overlap = [set(one) & set(groups) for one in before]
                receiver.restore([s for s, o in zip(receivers, overlap, strict=True) if o])
        self.newest_us: list[int | None] = [least_us] * workers
        """By sender, the newest time that it has to know of: what it goes by is not less."""
        self.reader: list[int] = [
            (n + self.drawn.randrange(workers)) % workers for n in range(SPLITS)
        ]
        self.channels = {(s, r): deque[Any]() for s in range(workers) for r in range(workers)}
        self.known_us: dict[tuple[int, int], int] = {}

    def read(self) -> None:
        """Read some rows of a split; now and then one is older than the delay allows."""
        split = self.drawn.randrange(SPLITS)
        sender = self.reader[split]
        rows: list[tuple[str, int, bool]] = []
        newest_us = self.newest_us[sender]
        for _ in range(self.drawn.randint(1, 3)):
            time_us = self.newest_read_us[split] + self.drawn.randint(-DELAY_US, 6)
            if self.drawn.random() < 0.3:
                time_us -= self.drawn.randint(1, 60)
            in_time = newest_us is None or time_us >= newest_us - DELAY_US
            rows.append((self.drawn.choice("abcdefgh"), time_us, in_time))
            self.newest_read_us[split] = max(self.newest_read_us[split], time_us)
        read_us = max(time_us for _, time_us, _ in rows)
        newest_us = read_us if newest_us is None else max(newest_us, read_us)
        self.newest_us[sender] = newest_us
        columns = zip(*rows, strict=True)
        batch = pa.record_batch([pa.array(list(one)) for one in columns], schema=SCHEMA)
        for result in self.senders[sender].process(batch):
            if isinstance(result, Watermark):
                assert result.time_us == newest_us - DELAY_US, "it follows the newest, and no less"
                for receiver in range(len(self.receivers)):
                    self.channels[sender, receiver].append(result)
            else:
                self.send(sender, rows)

    def send(self, sender: int, rows: Sequence[tuple[str, int, bool]]) -> None:
        for row in rows:
            group = group_of(row[0])
            receiver = next(n for n, groups in enumerate(self.owned) if group in groups)
            self.channels[sender, receiver].append(row)

    def deliver(self) -> None:
        """Let one of the channels that are not empty bring what is first in it."""
        waiting = [place for place, channel in self.channels.items() if channel]
        if not waiting:
            return
        place = self.drawn.choice(waiting)
        element, receiver = self.channels[place].popleft(), self.receivers[place[1]]
        if not isinstance(element, Watermark):
            self.judge(receiver, element)
            return
        self.known_us[place] = element.time_us
        of_receiver = [self.known_us.get((n, place[1])) for n in range(len(self.senders))]
        if None not in of_receiver:
            least_us = min(one for one in of_receiver if one is not None)
            receiver.advance(least_us)
            for group in self.owned[place[1]]:
                self.reached_us[group] = max(self.reached_us[group], least_us)

    def judge(self, receiver: JoinProgress, row: tuple[str, int, bool]) -> None:
        key, time_us, in_time = row
        events = EventRows(pa.table({"key": [key]}), np.array([time_us]))
        [late] = receiver.are_late(events, ["key"])
        assert late == (time_us < self.reached_us[group_of(key)]), "late rows stay late"
        assert not (late and in_time), f"{row} is no older than its sender had to allow"
        self.late_count += int(late)
        self.accepted[in_time] += int(not late)

    def rescale(self, workers: int) -> None:
        """Cut, lose what comes after it, and continue with so many workers.

        Watermarks on their way are lost, too, which only makes event time later.
        """
        senders = [one.snapshot(CheckpointId(1))() for one in self.senders]
        receivers = [Snapshot(properties=one.properties()) for one in self.receivers]
        on_the_way = [row for channel in self.channels.values() for row in channel]
        known_us = [one for one in self.newest_us if one is not None]
        least_us = min(known_us) if len(known_us) == len(senders) else None
        kept = list(self.newest_read_us), list(self.reached_us)
        for _ in range(self.drawn.randrange(6)):
            self.drawn.choice([self.read, self.deliver])()
        self.newest_read_us, self.reached_us = kept
        self._start(workers, senders, receivers, least_us)
        for sender in self.senders:
            certain_us = None if least_us is None else least_us - DELAY_US
            assert sender.output_watermark(0) == certain_us, "no less and no more than was certain"
        for row in on_the_way:
            if not isinstance(row, Watermark):
                self.send(self.drawn.randrange(workers), [row])


def group_of(key: str) -> int:
    return int(key_groups_of(pa.record_batch({"key": [key]}), ["key"], KEY_GROUPS)[0])


@pytest.mark.parametrize("seed", range(6))
def test_no_late_row_is_accepted_and_no_row_in_time_is_dropped_after_a_rescale(seed: int) -> None:
    """Goal: whoever reads a split and owns a key afterwards: 1 worker, 3, 2, and so on.

    Some of the senders have read nothing yet when the job is cut for the second time.

    A row is in time if it is at most the delay older than the newest one that its sender has read,
    or that every old sender had read. A row is late if its key had come further, in any worker.
    """
    world = Workers(seed)
    for workers, steps in ((3, 2), (2, 6), (3, 80), (2, 80), (1, 80), (3, 80), (2, 80), (3, 80)):
        for _ in range(steps):
            world.drawn.choice([world.read, world.deliver, world.deliver])()
        world.rescale(workers)
    while any(world.channels.values()):
        world.deliver()
    assert min(world.late_count, world.accepted[True]) > 10
    assert world.accepted[False] > 0, "some are too old for their sender, and no window has ended"
