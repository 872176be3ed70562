"""Tasks make way for a checkpoint that overtakes: they do short units of work, then they rest.

Units are short while barriers of a checkpoint overtake, or are about to. Each step of such a
checkpoint waits for the end of one: its trigger, a barrier that has arrived, and the
acknowledgement once everything is written. That lasts a small part of a checkpoint's interval, so
what short units cost is hardly noticed.

Tasks rest from the time when all vertices of the worker are cut until its part is written. They
cannot bring the checkpoint forward any more: barriers that are still to come arrive by themselves.
But each call of a thread that hashes or writes would wait for the interpreter, which a task holds,
and for a core. However slow the store is, they rest for ``REST_MS_MAX`` at most, and however often
checkpoints come, for ``REST_SHARE_MAX`` of the time.
"""

from collections.abc import Callable, Iterable
from math import inf

from laminar_core.link.messages import (
    Abort,
    AlignmentTimeout,
    Announce,
    Completed,
    ToWorker,
    Trigger,
)
from laminar_core.protocol.types import CheckpointId
from laminar_core.worker.slicing import WorkUnit

REST_MS_MAX = 20.0
"""Longest rest for one checkpoint: about what a disk in the same machine needs."""

REST_SHARE_MAX = 0.1
"""A rest lasts at most this part of the time that has passed since the end of the rest before."""


class Urgency:
    """Makes units of work short while a checkpoint overtakes, and lets tasks rest at its end."""

    def __init__(self, units: Callable[[], Iterable[WorkUnit]]) -> None:
        """``units`` returns those of all tasks."""
        self._units = units
        self._overtaking: set[CheckpointId] = set()
        self._over: CheckpointId | None = None
        """The newest checkpoint that needs nothing more from this worker."""
        self._rests_for: CheckpointId | None = None
        self._rests_until_ms = -inf

    @property
    def is_urgent(self) -> bool:
        """Whether a checkpoint overtakes here, or is about to."""
        return bool(self._overtaking)

    def heard(self, message: ToWorker) -> None:
        """Begin with the first word of the checkpoint, and end with its last one."""
        match message:
            case Announce() | Trigger(alignment_timeout_ms=0) | AlignmentTimeout():
                if self._over is None or message.checkpoint_id > self._over:
                    self._overtaking.add(message.checkpoint_id)
                    self._apply()
            case Abort() | Completed():
                self.over(message.checkpoint_id)
            case _:
                pass

    def all_cut(self, checkpoint_id: CheckpointId, now_ms: float) -> None:
        """Begin a rest, because all vertices of the worker are cut, if the checkpoint overtakes."""
        if checkpoint_id in self._overtaking:
            worked_ms = max(now_ms - self._rests_until_ms, 0.0)
            rest_ms = min(worked_ms * REST_SHARE_MAX, REST_MS_MAX)
            self._rests_for, self._rests_until_ms = checkpoint_id, now_ms + rest_ms

    def rest_ms(self, now_ms: float) -> float:
        """Return how much longer tasks rest; 0: they work."""
        return 0.0 if self._rests_for is None else max(self._rests_until_ms - now_ms, 0.0)

    def over(self, checkpoint_id: CheckpointId) -> None:
        """End with the checkpoint and those before it: this worker has added its part."""
        if self._over is None or checkpoint_id > self._over:
            self._over = checkpoint_id
        self._overtaking = {each for each in self._overtaking if each > checkpoint_id}
        if self._rests_for is not None and self._rests_for <= checkpoint_id:
            self._rests_for = None
        self._apply()

    def _apply(self) -> None:
        for unit in self._units():
            unit.urgent = self.is_urgent
