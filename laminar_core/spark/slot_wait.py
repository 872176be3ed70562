"""Wait until Spark has the slots for a stage, before the stage is submitted.

Spark accepts a barrier stage that has too few slots, and looks again every 15 seconds. So workers
would start up to 15 seconds after the last executor has come. Also, Spark cannot cancel a stage
that waits: it would start its tasks long after the generation was given up, and take the slots of
the next one.
"""

import threading
from collections.abc import Callable

LOOK_EVERY_S = 0.25


class SlotWait:
    """Waits until there are slots for so many workers; ``cancel`` ends it from any thread.

    Args:
        slots: returns the number of slots now; None: unknown, then nothing is waited for.
        workers: the number that is needed.
        look_every_s: seconds between two looks.
    """

    def __init__(
        self, slots: Callable[[], int | None], workers: int, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._slots = slots
        self.needed = workers
        self._look_every_s = look_every_s
        self._cancelled = threading.Event()
        self.newest: int | None = None
        """The slots at the last look; None: unknown."""
        self.most = 0
        """The largest number of slots that was seen."""

    def cancel(self) -> None:
        """End the wait; nothing if it is over."""
        self._cancelled.set()

    def wait(self) -> bool:
        """Return whether the stage is to be submitted; False: the wait was cancelled."""
        while not self._cancelled.is_set():
            self.newest = self._slots()
            self.most = max(self.most, self.newest or 0)
            if self.newest is None or self.newest >= self.needed:
                break
            self._cancelled.wait(self._look_every_s)
        return not self._cancelled.is_set()
