"""Start a stream's driver: as a detached process, or inside the run that starts it.

Either way it is ``laminar run`` with ``--expect-generation``: of all starters that saw the same
generation die, one gets the job, and the others get an error that names the winner. Decisions use
the generations in the store, never Dagster's own records about a driver.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.orchestration.acts import (
    in_one_line,
    reason_words,
    refuse_temporary_instance,
)
from laminar_core.orchestration.launching.standby import start_standby
from laminar_core.orchestration.launching.supervised_run import Context, SupervisedRun, open_store
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationClaim
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.events import DriverEvent
from laminar_core.resources.drivers.launcher import DriverLauncher, Predecessor
from laminar_core.resources.drivers.supervised import SparkDriverClient
from laminar_core.resources.run_actor import actor_of_run, child_environment
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import read_generation

FIRST = {"dagster/priority": "10"}
"""Tags of what brings a stream back: in a queue it is ahead of housekeeping."""

_SECRET = re.compile(r"secret|password|token|access[._-]?key|credential", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Drivers:
    """Both ways to start a driver; ``StreamSpec.launch`` selects one."""

    supervised: SparkDriverClient
    detached: DriverLauncher


@dataclass(frozen=True, slots=True)
class StartedDriver:
    """A generation that this run has started; its workers run, or the job is over again."""

    generation: int
    command: tuple[str, ...]
    claim: GenerationClaim | None
    events: Mapping[str, DriverEvent]
    """Events of the driver, by name."""
    log: Path | None = None
    """The log file; None: supervised, so the log is the run's."""
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Outcome of a supervised run, or what the launcher did."""

    @property
    def restored_checkpoint_id(self) -> int | None:
        """The restored checkpoint; None: a fresh start."""
        return self.events["generation-started"]["restored_checkpoint_id"]

    @property
    def rejected(self) -> Sequence[Mapping[str, Any]]:
        """Newer checkpoints that it did not restore."""
        return self.events["generation-started"].get("rejected", ())

    @property
    def back_at_ms(self) -> int:
        """When the first rows were processed, or, if none came soon, when the workers ran."""
        names = ("data-flowing", "workers-running", "generation-started")
        return next(int(self.events[name]["time_ms"]) for name in names if name in self.events)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata for the asset that reports it."""
        owner = None if self.claim is None else self.claim.owner
        metadata: dict[str, Any] = {
            "generation": self.generation,
            "pid": None if owner is None else owner.pid,
            "host": None if owner is None else owner.host_id.partition("/")[0],
            "restored_checkpoint": self.restored_checkpoint_id,
            "command": shown(self.command),
            "log": None if self.log is None else dg.PathMetadataValue(self.log),
            "outcome": self.events.get("finished", {}).get("outcome"),
            **self.outcome,
        }
        if self.rejected:
            metadata["rejected_checkpoints"] = dg.MetadataValue.json(list(self.rejected))
        return {name: value for name, value in metadata.items() if value is not None}


def start_driver(  # noqa: PLR0913 - what, where, how, and why
    context: Context,
    spec: StreamSpec,
    checkpoints: CheckpointStoreResource,
    drivers: Drivers,
    words: Sequence[str] = (),
    *,
    first: Sequence[str] = (),
    expected_generation: int,
    reason: str,
) -> StartedDriver:
    """Start the driver of ``spec`` as its next generation.

    A detached start returns as soon as the workers run, a supervised one when the job has ended.
    ``words`` are further arguments of ``laminar run``, ``first`` those that do not apply to a
    restart, like ``--restore``. ``expected_generation`` is the newest one known to the caller; 0:
    none.

    Raises:
        dagster.Failure: the job has another generation by now; the driver gave up, or did not start
            in time; the store is not usable; or the Dagster instance is temporary.
    """
    refuse_temporary_instance(context.instance)
    store = open_store(checkpoints, spec.name)
    with in_one_line():
        store.claims.check_expected(Generation(expected_generation))
    first = [*first, "--expect-generation", str(expected_generation), *reason_words(reason)]
    if spec.launch == "supervised":
        run = SupervisedRun(context, spec, store)
        run.run(drivers.supervised, checkpoints.uri, words, first)
        command = spec.command(checkpoints.uri, [*words, *first])
        return _started(store, command, run.events, outcome=run.metadata())
    command = spec.command(checkpoints.uri, [*words, *first])
    environment = child_environment(actor_of_run(context.run))
    start = drivers.detached.start(
        spec.name,
        command,
        env=environment,
        log=context.log,
        start_timeout_s=spec.start_timeout_ms / 1000,
        predecessor=Predecessor(store, checkpoints.uri, expected_generation),
    )
    standby = start_standby(drivers.detached, spec, store, checkpoints.uri, context.log)
    told = {} if standby is None else {"standby": standby}
    outcome = {**start.facts, **told}
    return _started(store, command, start.events, log=start.log, outcome=outcome)


def newest_generation(store: CheckpointStore) -> int:
    """Return the generation that a start has to follow; 0: the job never ran.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    return store.claims.last() or 0


def shown(command: Sequence[str]) -> str:
    """Return a command line for display, without values that look like secrets.

    >>> shown(["laminar", "run", "--conf", "spark.hadoop.fs.s3a.secret.key=abc"])
    "laminar run --conf 'spark.hadoop.fs.s3a.secret.key=***'"
    """
    return shlex.join(map(_without_secret, command))


def _without_secret(word: str) -> str:
    name, equals, _ = word.partition("=")
    return f"{name}=***" if equals and _SECRET.search(name) else word


def _started(
    store: CheckpointStore,
    command: Sequence[str],
    events: Mapping[str, DriverEvent],
    *,
    log: Path | None = None,
    outcome: Mapping[str, Any] | None = None,
) -> StartedDriver:
    generation = int(events["generation-started"]["generation"])
    claim = None
    with suppress(LaminarError):  # It runs; who it is stands in the log.
        claim = read_generation(store.objects, store.paths, Generation(generation)).claim
    return StartedDriver(generation, tuple(command), claim, events, log, outcome or {})
