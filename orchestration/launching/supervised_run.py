"""A Dagster run that supervises a stream: it owns the driver and reports the checkpoints live."""

# Dagster's result has a type argument that Dagster itself does not understand in an annotation.
# pyright: reportMissingTypeArgument=false, reportUnknownParameterType=false

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.acts import in_one_line, refuse_temporary_instance
from laminar_core.orchestration.launching.supervised_stop import StopThroughStore, claimed_by
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.drivers.events import DriverEvent, sentence
from laminar_core.resources.drivers.supervised import DriverResult, SparkDriverClient
from laminar_core.resources.locked_database import until_unlocked
from laminar_core.resources.names import STREAM_TAG
from laminar_core.resources.run_actor import actor_of_run, child_environment
from laminar_core.sensors.observer.checkpoint_metadata import DATA_VERSION_TAG
from laminar_core.sensors.observer.checkpoint_reports import (
    REPORTS_MAX,
    StoredCheckpoint,
    integrity_evaluation,
    report_new_checkpoints,
)
from laminar_core.sensors.observer.new_records import identity
from laminar_core.sensors.observer.visible_output import visible_report
from laminar_core.store.checkpoint_store import CheckpointStore

Context = dg.OpExecutionContext | dg.AssetExecutionContext
"""The context of an op or asset that runs a stream."""


@dataclass(slots=True)
class SupervisedRun:
    """State of one run; ``run`` is called once."""

    context: Context
    spec: StreamSpec
    store: CheckpointStore
    events: dict[str, DriverEvent] = field(default_factory=dict[str, DriverEvent])
    """The first event of each name."""
    newest: StoredCheckpoint | None = None
    checkpoints: int = 0
    generations: int = 0
    generation: int = 0
    """The newest generation that the driver has reported."""
    rejected: list[DriverEvent] = field(default_factory=list[DriverEvent])
    result: DriverResult | None = None

    def run(
        self,
        driver: SparkDriverClient,
        store_uri: str,
        words: Sequence[str] = (),
        first: Sequence[str] = (),
    ) -> None:
        """Run the job to its end.

        ``words`` are further arguments of ``laminar run``; ``first`` only for the first start.

        Raises:
            dagster.Failure: the driver gave up.
        """
        context, clock, actor = self.context, SystemClock(), actor_of_run(self.context.run)
        run_id, tags = context.run.run_id, {STREAM_TAG: self.spec.name}
        until_unlocked(lambda: context.instance.add_run_tags(run_id, tags))
        try:
            self.result = driver.run(
                self.spec.command(store_uri, [*words, *first]),
                log=context.log,
                on_event=self.on_event,
                restarts_max=self.spec.restarts_max,
                restart=lambda pid: self.spec.command(store_uri, [*words, *self.again(pid)]),
                stop_request=StopThroughStore(
                    self.store, actor, clock, context.log, self.spec.stop_savepoints
                ),
                env=child_environment(actor),
            )
        finally:
            self.report()  # A driver that is killed cannot tell of its last checkpoint.
        self.check_newest()

    def again(self, pid: int) -> list[str]:
        """Return the arguments for restarting the killed driver with this pid.

        It continues from the newest checkpoint, unless another driver has claimed the job since.
        """
        expected = self.generation
        with suppress(LaminarError):  # It may have been killed between its claim and the event.
            expected = claimed_by(self.store, pid) or expected
        reason = "its driver was killed"
        return ["--take-over", "--expect-generation", str(expected), "--reason", reason]

    def on_event(self, event: DriverEvent) -> None:
        """React to an event of the driver. The stream does not depend on it, so it may fail."""
        self.events.setdefault(event["event"], event)
        if event["event"] == "generation-started":
            self.generation = event["generation"]
            self.generations += 1
            self.rejected += event.get("rejected", [])
        if event["event"] == "checkpoint-completed":
            self.report()
        elif event["event"] != "progress":
            with _failure_on_stderr():
                self.context.log.info(sentence(event))

    def report(self) -> None:
        """Report what has completed; what could not be reported is found by the next call."""
        with _failure_on_stderr():
            while found := report_new_checkpoints(
                self.context.instance, self.store, self.context.log_event
            ):
                self.checkpoints += len(found)
                self.newest = found[-1]
                if len(found) < REPORTS_MAX:
                    return

    def check_newest(self) -> None:
        """Read the newest checkpoint whole: it is what the stream would continue from."""
        if self.newest is not None:
            evaluation = integrity_evaluation(self.store, self.newest.manifest.checkpoint_id)
            # Not runless: Dagster stores only one of those per partition, ever.
            self.context.log_event(evaluation)  # pyright: ignore[reportArgumentType]

    def metadata(self) -> dict[str, Any]:
        """Return the results after ``run``."""
        assert self.result is not None, "it has run"
        finished = self.result.finished
        metadata: dict[str, Any] = {
            name: finished[name]
            for name in ("outcome", "rows_in", "rows_out", "rows_late")
            if name in finished
        }
        metadata |= {
            "checkpoints": self.checkpoints,
            "generations": self.generations,
            "driver_restarts": self.result.restarts,
            "store": dg.PathMetadataValue(self.store.objects.uri),
        }
        if self.rejected:
            metadata["rejected_checkpoints"] = dg.MetadataValue.json(self.rejected)
        return metadata

    def visible(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return metadata and tags of the output after ``run``; empty: none is committed."""
        with suppress(LaminarError):
            known = identity(self.store)
            if self.newest is not None and known is not None:
                return visible_report(self.store, known.sha256, self.newest)
        return {}, {}


def run_supervised(
    context: Context,
    spec: StreamSpec,
    checkpoints: CheckpointStoreResource,
    driver: SparkDriverClient,
) -> SupervisedRun:
    """Run ``spec`` inside this Dagster run, to its end.

    Raises:
        dagster.Failure: the store is not usable, the driver gave up, or Dagster would forget
            the run as soon as it has ended.
    """
    refuse_temporary_instance(context.instance)
    supervised = SupervisedRun(context, spec, open_store(checkpoints, spec.name))
    supervised.run(driver, checkpoints.uri)
    return supervised


def supervise(
    context: Context,
    spec: StreamSpec,
    checkpoints: CheckpointStoreResource,
    driver: SparkDriverClient,
) -> dg.MaterializeResult:
    """Run ``spec``, and report its output as the observer would, so that it does not do so again.

    Raises:
        dagster.Failure: as ``run_supervised``.
    """
    supervised = run_supervised(context, spec, checkpoints, driver)
    metadata, tags = supervised.visible()
    newest = supervised.newest
    version = tags.pop(DATA_VERSION_TAG, newest.sha256 if newest else None)
    return dg.MaterializeResult(
        metadata=supervised.metadata() | metadata,
        data_version=dg.DataVersion(version) if version else None,
        tags=tags,
    )


def open_store(checkpoints: CheckpointStoreResource, job: str) -> CheckpointStore:
    """Open the job's part of the store.

    Raises:
        dagster.Failure: the store is not usable.
    """
    with in_one_line():
        return checkpoints.open(job)


@contextmanager
def _failure_on_stderr() -> Iterator[None]:
    """Keep a database that is locked, or a store that is slow, from ending a healthy stream."""
    try:
        yield
    except Exception:  # noqa: BLE001 - an interrupt is none, and passes
        traceback.print_exc()
