"""Commands for a running job, left in its store by any process with access.

A client calls ``append`` and waits for ``result``; ``entries`` lists everything. The driver of the
job calls ``read_after``, ``begin`` and ``answer``. Records are create-only and never deleted, so
any number of processes may do this at once.

    log = ControlLog(objects, paths)
    number = log.append(command)          # not carried out before a driver has begun it
    while (result := log.result(number)) is None:
        ...                               # is a driver alive? see ``store.claims``
"""

from collections.abc import Iterator
from dataclasses import dataclass

from laminar_core.errors import CorruptCheckpointError
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.records.commands import ControlBegun, ControlCommand, ControlResult
from laminar_core.records.paths import JobPaths, number_in
from laminar_core.store.records import create_or_confirm, read_record


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """One command and its records.

    ``command`` is None if unreadable; ``problem`` then has the reason.
    """

    number: int
    command: ControlCommand | None
    problem: str | None = None
    begun: ControlBegun | None = None
    result: ControlResult | None = None


class ControlLog:
    """The commands of one job. Safe to use from several threads and processes."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self.objects = objects
        self.paths = paths
        self._tried: dict[str, int] = {}
        """The number where an unanswered append may have put each command."""

    # --- for whoever wants something ------------------------------------------------------------

    def append(self, command: ControlCommand) -> int:
        """Leave a command; returns its number, the same if this is repeated after an error.

        Raises:
            StorageUnavailable: the store did not answer, and the command may be there: call again
                with the same one, or find its ``command_id`` in ``entries``.
        """
        number = self._tried.get(command.command_id) or max(self.numbers(), default=0) + 1
        data = command.to_bytes()
        while True:
            self._tried[command.command_id] = number
            if create_or_confirm(self.objects, self.paths.control_command(number), data):
                del self._tried[command.command_id]
                return number
            number += 1

    def result(self, number: int) -> ControlResult | None:
        """Return how command ``number`` ended; None if it has not.

        Raises:
            CorruptCheckpointError: what is there cannot be read.
        """
        return read_record(self.objects, self.paths.control_result(number), ControlResult)

    def begun(self, number: int) -> ControlBegun | None:
        """Return the record that command ``number`` was taken up; None if it was not.

        Raises:
            CorruptCheckpointError: what is there cannot be read.
        """
        return read_record(self.objects, self.paths.control_begun(number), ControlBegun)

    def entries(self) -> list[ControlEntry]:
        """Return all commands, oldest first, for display."""
        return [self.entry(number) for number in self.numbers()]

    # --- for the driver -------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the numbers of all commands, ascending."""
        names = self.objects.children(self.paths.control)
        return sorted(number for name in names if (number := number_in(name)) is not None)

    def unanswered(self) -> list[ControlEntry]:
        """Return all commands without a result; with one listing, for a driver that starts."""
        names = set(self.objects.children(self.paths.control))
        numbers = (n for name in sorted(names) if (n := number_in(name)) is not None)
        folder = self.paths.control
        return [
            self.entry(number)
            for number in numbers
            if self.paths.control_result(number).removeprefix(folder) not in names
        ]

    def read_after(self, number: int) -> Iterator[ControlEntry]:
        """Yield the commands after ``number``. Needs no listing, because numbers have no gaps."""
        while self.objects.size(self.paths.control_command(number + 1)) is not None:
            number += 1
            yield self.entry(number)

    def begin(self, number: int, record: ControlBegun) -> bool:
        """Take the command up, to carry it out or refuse it.

        False if another process already has.
        """
        key = self.paths.control_begun(number)
        return create_or_confirm(self.objects, key, record.to_bytes())

    def answer(self, number: int, result: ControlResult) -> bool:
        """Record how the command ended; False if a different result exists, which stands."""
        key = self.paths.control_result(number)
        return create_or_confirm(self.objects, key, result.to_bytes())

    def entry(self, number: int) -> ControlEntry:
        """Return everything that is known about one command."""
        problems: list[str] = []
        command = begun = result = None
        try:
            key = self.paths.control_command(number)
            command = read_record(self.objects, key, ControlCommand)
        except CorruptCheckpointError as error:
            problems.append(f"it cannot be read: {error}")
        try:
            begun = self.begun(number)
        except CorruptCheckpointError as error:
            problems.append(str(error))
        try:
            result = self.result(number)
        except CorruptCheckpointError as error:
            problems.append(str(error))
        if command is not None and command.job != self.paths.job:
            problems.append(f"it is for job {command.job}")
        return ControlEntry(number, command, "; ".join(problems) or None, begun, result)
