"""Restore a checkpoint: end the running driver if necessary, then start one from it.

Recovery, rollback, rescale, and the form for users all use it. All facts are settled before
anything changes: the checkpoint is read whole before a driver is stopped for it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.orchestration.acts import in_one_line, refuse_temporary_instance
from laminar_core.orchestration.launching.launch import (
    StartedDriver,
    newest_generation,
    start_driver,
)
from laminar_core.orchestration.launching.move_job import Move
from laminar_core.orchestration.launching.restore_choice import (
    Chosen,
    LeftBehind,
    WholeReads,
    choose,
    explained,
    left_behind,
    read_chosen,
)
from laminar_core.orchestration.launching.running_driver import (
    Ask,
    LastDriver,
    RestartRequest,
    Settled,
    Settlement,
    decide_settlement,
    last_driver,
    nobody_left,
    settle,
)
from laminar_core.orchestration.launching.standby import without_standby
from laminar_core.orchestration.launching.supervised_run import open_store
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import Generation
from laminar_core.resources.job_control import JobControl
from laminar_core.resources.run_actor import actor_of_run
from laminar_core.sensors.facts.last_start import last_workers
from laminar_core.sensors.facts.stored_checkpoints import source_positions
from laminar_core.store.checkpoint_store import CheckpointStore

_HOLD_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Restored:
    """A generation that went back to a checkpoint."""

    chosen: Chosen
    started: StartedDriver
    settled: Settled
    before: LastDriver
    request: RestartRequest
    last_beat_ms: int | None
    rows_to_replay: int | None
    left: tuple[LeftBehind, ...] = field(default=())

    @property
    def data_version(self) -> str:
        """A version that distinguishes this restore from any other, even of the same checkpoint."""
        return f"{self.chosen.partition}-{self.chosen.sha256[:12]}-g{self.started.generation}"

    def metadata(self) -> dict[str, Any]:
        """Return the metadata for the asset that reports it."""
        manifest, back_at_ms = self.chosen.manifest, self.started.back_at_ms
        down_ms = None if self.last_beat_ms is None else max(back_at_ms - self.last_beat_ms, 0)
        metadata: dict[str, Any] = {
            "from_checkpoint": manifest.checkpoint_id,
            "why": self.request.actor.reason,
            "who": self.request.actor.name,
            "lost_time_s": max(back_at_ms - manifest.completed_at_ms, 0) / 1000,
            "down_s": None if down_ms is None else down_ms / 1000,
            "rows_to_replay": self.rows_to_replay,
            "generation_before": self.before.generation,
            "driver_before": self.settled.what,
            "manifest_sha256": self.chosen.sha256,
            **self.started.metadata(),
        }
        if self.left:
            metadata["rejected_checkpoints"] = dg.MetadataValue.json(
                [{"checkpoint_id": each.checkpoint_id, "reason": each.reason} for each in self.left]
            )
        return {name: value for name, value in metadata.items() if value is not None}


class Restarter:
    """One run that starts a stream again."""

    def __init__(
        self, move: Move[Any], expected_generation: int | None, clock: Clock | None = None
    ) -> None:
        """Prepare a restart.

        ``expected_generation``: the newest known to the user; None: the current.

        Raises:
            dagster.Failure: it differs; the store cannot be read; or the Dagster instance is
                temporary.
        """
        refuse_temporary_instance(move.context.instance)
        self.context, self.spec, self.group = move.context, move.spec, move.group
        self.checkpoints, self.drivers = move.checkpoints, move.drivers
        self.clock = clock or SystemClock()
        self.actor = actor_of_run(self.context.run)
        self.store = open_store(self.checkpoints, self.spec.name)
        self.reads = WholeReads(self.store)
        with in_one_line():
            if expected_generation is None:
                expected_generation = newest_generation(self.store)
            self.expected = Generation(expected_generation)
            self.store.claims.check_expected(self.expected)

    def restore(self, request: RestartRequest, chosen: Chosen | None) -> Restored:
        """End a running driver as requested, then start one from ``chosen``; None: where it ended.

        Raises:
            dagster.Failure: no driver was started; the message says whether one is running.
        """
        with in_one_line():
            before = self._look()
            settlement = decide_settlement(before, request.running_driver)
        with self._held(chosen if isinstance(settlement, Ask) else None):
            with in_one_line():
                settled = self._settle(settlement, request)
            self.context.log.info(settled.what)
            with nobody_left(settlement, self.group), in_one_line():
                known = chosen or self._where_it_ended(settled)
                return self._start(known, request, before, settled)

    def start(
        self, request: RestartRequest, words: Callable[[CheckpointStore], Sequence[str]]
    ) -> tuple[StartedDriver, Settled]:
        """End a running driver as requested, then start one with these ``laminar run`` arguments.

        ``words`` is called twice, so that a refusal comes before a driver is stopped.

        Raises:
            dagster.Failure: as ``restore``.
        """
        with in_one_line():
            settlement = decide_settlement(self._look(), request.running_driver)
            words(self.store)
            settled = self._settle(settlement, request)
        self.context.log.info(settled.what)
        with nobody_left(settlement, self.group), in_one_line():
            started = start_driver(
                self.context,
                self.spec,
                self.checkpoints,
                self.drivers,
                first=[*words(self.store), *settled.words],
                expected_generation=self.expected,
                reason=request.actor.reason,
            )
        return started, settled

    def choose(self, request: RestoreRequest) -> Chosen:
        """Find and verify a checkpoint; changes nothing.

        Raises:
            dagster.Failure: there is none, or it is damaged, orphaned or being deleted.
            LaminarError: the store did not answer, or the timeline cannot be known.
        """
        return choose(self.store, request, self.reads, self.group)

    def _settle(self, settlement: Settlement, request: RestartRequest) -> Settled:
        launcher, log = self.drivers.detached, self.context.log
        with without_standby(settlement, launcher, self.store, self.clock, log):
            return settle(self.store, settlement, self._control(), request.actor.reason)

    def _where_it_ended(self, settled: Settled) -> Chosen:
        if settled.checkpoint_id is not None:
            return read_chosen(self.store, settled.checkpoint_id)
        return self.choose(RestoreRequest())

    def _look(self) -> LastDriver:
        before = last_driver(self.store, self.clock)
        if before.generation != self.expected:
            self.store.claims.check_expected(self.expected)
        return before

    def _control(self) -> JobControl:
        return JobControl(self.store, self.actor, self.clock, progress=self.context.log.info)

    @contextmanager
    def _held(self, chosen: Chosen | None) -> Iterator[None]:
        """The last checkpoint of a driver may be what makes retention delete the chosen one."""
        if chosen is None:
            yield
            return
        name, control = f"run-{self.context.run.run_id[:8]}", self._control()
        with in_one_line():
            control.pin(chosen.checkpoint_id, name, "it is to be restored", _HOLD_MS)
        try:
            yield
        finally:
            with suppress(LaminarError):  # It ends by itself.
                control.unpin(chosen.checkpoint_id, name, "the restore is over")

    def _start(
        self, chosen: Chosen, request: RestartRequest, before: LastDriver, settled: Settled
    ) -> Restored:
        heartbeat = self.store.generations.read_heartbeat(Generation(before.generation))
        newer = left_behind(self.store, chosen)
        workers = request.workers or last_workers(self.store)
        words = () if workers is None else ("--workers", str(workers))
        started = start_driver(
            self.context,
            self.spec,
            self.checkpoints,
            self.drivers,
            words,
            first=["--restore", str(chosen.checkpoint_id), *settled.words],
            expected_generation=self.expected,
            reason=request.actor.reason,
        )
        rows_in = None if heartbeat is None else heartbeat.progress.get("rows_in")
        return Restored(
            chosen=chosen,
            started=started,
            settled=settled,
            before=before,
            request=request,
            last_beat_ms=None if heartbeat is None else heartbeat.at_ms,
            rows_to_replay=_rows_to_replay(self.store, chosen, rows_in),
            left=explained(self.store, newer),
        )


def _rows_to_replay(store: CheckpointStore, chosen: Chosen, rows_in: object) -> int | None:
    """Rows that the driver before had read beyond the checkpoint, by its last sign of life."""
    if not isinstance(rows_in, int):
        return None
    with suppress(LaminarError):  # It runs, and this is only told.
        positions = source_positions(store, chosen.manifest)
        return max(rows_in - sum(position.rows_read for position in positions), 0)
    return None
