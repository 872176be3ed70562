"""The base of all launchers of drivers: start one that outlives this process, and wait for it.

Jobs and assets know only this class. ``DetachedDriver`` starts a process beside Dagster,
``KubernetesLauncher`` a Job in Kubernetes. Whether a driver lives is read from the store's
heartbeats in either case, so a launcher watches nothing once ``start`` has returned.
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from laminar_core.host.clock import Clock
from laminar_core.resources.drivers.events import DriverEvent
from laminar_core.resources.drivers.standbys import StandbyFolder
from laminar_core.resources.settled import SettledResource
from laminar_core.store.checkpoint_store import CheckpointStore


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The generation that the new driver follows, and the store with both."""

    store: CheckpointStore
    store_uri: str
    generation: int
    """0: the job never ran."""


class DriverStart(Protocol):
    """A driver that a launcher has started: its workers run, or its job is already over."""

    @property
    def events(self) -> Mapping[str, DriverEvent]:
        """The newest event of each name; ``generation-started`` is there."""
        ...

    @property
    def log(self) -> Path | None:
        """Its log, if that is a file here."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Further facts that the launcher reports, as metadata of the start."""
        ...


class DriverLauncher(SettledResource["DriverLauncher"]):
    """Starts drivers that live on when this process ends."""

    @abstractmethod
    def start(  # noqa: PLR0913 - what, where, for whom, and how long
        self,
        stream: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: logging.Logger,
        start_timeout_s: float,
        predecessor: Predecessor,
        clock: Clock | None = None,
    ) -> DriverStart:
        """Start ``command`` and wait until its workers run, or until the job has finished.

        ``command`` is ``laminar run … --expect-generation``, so of several starts that follow the
        same generation one gets the job, whichever launchers they use. ``env`` is the environment
        of the driver; a launcher that starts it elsewhere passes on only who acts.

        Raises:
            dagster.Failure: the driver gave up, or did not start in time; it has been ended.
        """

    def bound_logs(self, stream: str) -> list[Path]:
        """Delete old logs of ``stream`` on this machine; returns them."""
        del stream
        return []

    def standbys(self, stream: str) -> StandbyFolder | None:
        """Return the standbys of ``stream``; None: this launcher does not keep any."""
        del stream
        return None
