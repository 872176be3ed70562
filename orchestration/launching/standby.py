"""The standby of a stream: its command, its start after the driver's, its end before a restart."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.orchestration.launching.running_driver import Settlement, TakeOver
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.drivers.launcher import DriverLauncher
from laminar_core.resources.drivers.standbys import StandbyFolder, digest_of, retire
from laminar_core.resources.names import GROUP
from laminar_core.sensors.facts.last_start import last_workers
from laminar_core.sensors.standby.decision import Deaths
from laminar_core.sensors.standby.keeper import (
    JobFacts,
    WantedStandby,
    keep_standby,
    line_of,
    not_the_driver,
    read_job,
)
from laminar_core.store.checkpoint_store import CheckpointStore

_END_MS_MAX = 10_000


def wanted_standby(spec: StreamSpec, store_uri: str) -> WantedStandby:
    """Return the standby of a stream: what its next driver would be."""

    def command(workers: int | None) -> list[str]:
        words = () if workers is None else ("--workers", str(workers))
        return spec.command(store_uri, ["--standby", *words])

    def digest(words: Sequence[str]) -> str:
        return digest_of(words, spec.code_version)

    return WantedStandby(command, digest)


def start_standby(
    launcher: DriverLauncher,
    spec: StreamSpec,
    store: CheckpointStore,
    store_uri: str,
    log: logging.Logger,
    group: str = GROUP,
) -> str | None:
    """Start the standby of a stream whose workers run; return one line about it, if it wants one.

    The sensor looks again every few seconds, so a failure here is only logged.
    """
    folder = launcher.standbys(spec.name)
    if not spec.standby or folder is None:
        return None
    try:
        job = read_job(store)
        if job.state == "starting":  # It has not beaten yet, but its workers run.
            job = job.model_copy(update={"state": "runs", "workers": last_workers(store)})
        wanted, now_ms = wanted_standby(spec, store_uri), SystemClock().now_ms()
        return keep_standby(folder, wanted, job, Deaths(), now_ms, group=group).line
    except (LaminarError, OSError) as error:
        log.warning("no standby was started: %s", error)
        return f"standby: none: {error}"


def standby_now(launcher: DriverLauncher, store: CheckpointStore) -> str:
    """Return one line about the standby of a job, and change nothing.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    folder = launcher.standbys(store.job)
    if folder is None:
        return "standby: none: its launcher keeps none"
    waiting = not_the_driver(folder.living(), read_job(store))
    return line_of(waiting[0]) if waiting else "standby: none: see the sensor that keeps it"


@contextmanager
def without_standby(
    settlement: Settlement,
    launcher: DriverLauncher,
    store: CheckpointStore,
    clock: Clock,
    log: logging.Logger,
) -> Iterator[None]:
    """End the standbys of a job if its driver is to be killed; none is started inside.

    A standby would take the job over at once, and the start that was meant to follow would be
    refused. A driver that is asked to end says so in the store, and its standby ends with it.
    """
    folder = launcher.standbys(store.job)
    if folder is None or not isinstance(settlement, TakeOver):
        yield
        return
    with folder.alone() as is_alone:
        if not is_alone:
            log.warning("the standbys of %s are being looked after by another process", store.job)
        _end_all(folder, read_job(store), clock, log)
        yield


def _end_all(folder: StandbyFolder, job: JobFacts, clock: Clock, log: logging.Logger) -> None:
    waiting = not_the_driver(folder.living(), job)
    for standby in waiting:
        retire(standby)
    if not folder.wait_for_end(waiting, clock, _END_MS_MAX):
        log.warning("a standby of the job has not ended; it may take the job over before this run")
