"""Commands to end the job that a lost driver left without an answer.

A stop wins over a death. A standby that has claimed the job looks for such commands: one that was
left before the claim is found, and one that is left later is refused by the new generation, as ever
(``protocol.commands``, C3). If there is one, the standby does not run the job. It records its own
generation as cancelled, so that no other program starts the job either, and answers the command.
"""

from collections.abc import Iterable
from contextlib import suppress

from laminar_core.driver.failed_start import Ending
from laminar_core.errors import CorruptCheckpointError, JobFailedError
from laminar_core.protocol.types import Generation
from laminar_core.records.commands import CancelJob, ControlBegun, ControlResult, StopJob
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.command_log import ControlEntry, ControlLog


class TakeOverGivenUp(JobFailedError):  # noqa: N818 - not a failure: the job is not meant to run
    """A standby claimed the job, and found that it is not meant to run."""


def ends_of(entries: Iterable[ControlEntry], lost: frozenset[Generation]) -> list[ControlEntry]:
    """Return the commands to stop or cancel one of the ``lost`` generations, oldest first."""
    return [
        entry
        for entry in entries
        if entry.command is not None
        and entry.command.generation in lost
        and isinstance(entry.command.action, StopJob | CancelJob)
    ]


class LeftStops:
    """Unanswered commands and the end of the driver that the standby of ``generation`` follows."""

    def __init__(
        self, store: CheckpointStore, generation: Generation, expected: Generation
    ) -> None:
        self._store = store
        self._log = ControlLog(store.objects, store.paths)
        self._generation = generation
        self._expected = expected
        self._stops = ends_of(self._log.unanswered(), self._lost())

    def _lost(self) -> frozenset[Generation]:
        """Return the generation that is followed, and those before it if it never started.

        A standby may die between its claim and the look for commands; the next one follows it.
        """
        lost = {self._expected}
        while (lowest := min(lost)) > 1 and self._never_started(lowest):
            lost.add(Generation(lowest - 1))
        return frozenset(lost)

    def _never_started(self, generation: Generation) -> bool:
        with suppress(CorruptCheckpointError):
            base = self._store.generations.read_base(generation)
            return base is None or base.closed_by is not None
        return False

    def ending(self) -> tuple[Ending, str] | None:
        """Return how to end this generation, and why; None: it is meant to run.

        The driver on another host may have ended the job by itself before it was fenced.

        Raises:
            StorageUnavailable: the store did not answer.
        """
        with suppress(CorruptCheckpointError):
            end = self._store.generations.read_end(self._expected)
            match None if end is None else end.outcome:
                case "finished" | "stopped" | "cancelled" as outcome:
                    return outcome, f"generation {self._expected} ended by itself: {outcome}"
                case _:
                    pass
        if not self._stops:
            return None
        first = self._stops[0].command
        assert first is not None, "only readable commands are counted"
        asked = f"{first.actor} asked for a {first.action.kind}, and the driver was lost"
        return "cancelled", f"{asked}: {first.reason}"

    def answer(self, now_ms: int) -> None:
        """Answer the commands, once the end is recorded.

        Raises:
            StorageUnavailable: the store did not answer; the next driver answers them.
        """
        for entry in self._stops:
            begun = entry.begun is not None or not self._log.begin(
                entry.number, ControlBegun(generation=self._generation, begun_at_ms=now_ms)
            )
            reason = (
                f"the driver was lost before this was done; generation {self._generation} took "
                "the job over and ended it without a last checkpoint, so it does not run any more"
            )
            result = ControlResult(
                outcome="interrupted" if begun else "refused",
                reason=reason,
                generation=self._generation,
                answered_at_ms=now_ms,
            )
            self._log.answer(entry.number, result)
