"""Ctrl-C and SIGTERM end a campaign where it waits, so that it ends what it started and reports."""

import signal
from collections.abc import Callable


class Interrupted(Exception):  # noqa: N818 - nothing is wrong
    """Somebody asked the campaign to end. This is no failure of the round that was under way."""


class Interrupt:
    """The first signal that asked for the end; it is looked at between two steps of a round.

    The handler raises nothing. An exception could come between the start of a process and the
    line that remembers it, or in the middle of the cleaning up.
    """

    def __init__(self) -> None:
        self.number: int | None = None

    def listen(self, say: Callable[[str], None]) -> None:
        """Take SIGINT and SIGTERM from now on."""

        def take(number: int, _: object) -> None:
            if self.number is None:
                self.number = number
                say(f"{signal.Signals(number).name}: ends its processes, then prints its figures")

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, take)

    def check(self) -> None:
        """Return if nobody has asked for the end.

        Raises:
            Interrupted: somebody has.
        """
        if self.number is not None:
            raise Interrupted(signal.Signals(self.number).name)

    @property
    def exit_code(self) -> int:
        """Return what a shell returns for a program that a signal ended; 0 without a signal."""
        return 0 if self.number is None else 128 + self.number
