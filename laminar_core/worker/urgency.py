"""When units of work are short: while barriers of a checkpoint overtake, or are about to.

Each step of an unaligned checkpoint waits for the end of a unit: its trigger, a barrier that has
arrived, and the acknowledgement once everything is written. That lasts a small part of a
checkpoint's interval, so what short units cost is hardly noticed.
"""

from collections.abc import Callable, Iterable

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


class Urgency:
    """Makes the units of a worker's tasks short while a checkpoint overtakes here."""

    def __init__(self, units: Callable[[], Iterable[WorkUnit]]) -> None:
        """``units`` returns those of all tasks."""
        self._units = units
        self._overtaking: set[CheckpointId] = set()
        self._over: CheckpointId | None = None
        """The newest checkpoint that needs nothing more from this worker."""

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

    def over(self, checkpoint_id: CheckpointId) -> None:
        """End with the checkpoint and those before it: this worker has added its part."""
        if self._over is None or checkpoint_id > self._over:
            self._over = checkpoint_id
        self._overtaking = {each for each in self._overtaking if each > checkpoint_id}
        self._apply()

    def _apply(self) -> None:
        for unit in self._units():
            unit.urgent = self.is_urgent
