"""A Dagster run that runs a stream: it owns the driver and reports the checkpoints live."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from laminar_core.errors import LaminarError
from laminar_core.storage.checkpoint_store import CheckpointStore
from orchestration.spec import StreamSpec
from resources.checkpoints import CheckpointStoreResource
from resources.names import STREAM_TAG
from resources.spark_driver import DriverEvent, DriverResult, SparkDriverClient
from sensors.checkpoint_reports import (
    REPORTS_MAX,
    StoredCheckpoint,
    integrity_evaluation,
    report_new_checkpoints,
)

_TEMPORARY_HOME = ".tmp_dagster_home_"


@dataclass(slots=True)
class SupervisedRun:
    """State of one run; ``run`` is called once."""

    context: dg.AssetExecutionContext
    spec: StreamSpec
    store: CheckpointStore
    newest: StoredCheckpoint | None = None
    checkpoints: int = 0
    generations: int = 0
    rejected: list[DriverEvent] = field(default_factory=list)

    def run(self, driver: SparkDriverClient, store_uri: str) -> dg.MaterializeResult:
        """Run the job to its end.

        Raises:
            dagster.Failure: the driver gave up.
        """
        context = self.context
        context.instance.add_run_tags(context.run.run_id, {STREAM_TAG: self.spec.name})
        try:
            result = driver.run(
                self.spec.command(store_uri),
                log=context.log,
                on_event=self.on_event,
                restarts_max=self.spec.restarts_max,
            )
        finally:
            self.report()  # A driver that is killed cannot tell of its last checkpoint.
        self.check_newest()
        return self._materialization(result)

    def on_event(self, event: DriverEvent) -> None:
        """React to what the driver says. The stream does not depend on it, so it may fail."""
        if event["event"] == "generation-started":
            self.generations += 1
            self.rejected += event.get("rejected", [])
        if event["event"] == "checkpoint-completed":
            self.report()
        elif event["event"] != "progress":
            with _failure_on_stderr():
                self.context.log.info(_sentence(event))

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

    def _materialization(self, result: DriverResult) -> dg.MaterializeResult:
        metadata: dict[str, Any] = {
            name: result.finished[name]
            for name in ("outcome", "rows_in", "rows_out", "rows_late")
            if name in result.finished
        }
        metadata |= {
            "checkpoints": self.checkpoints,
            "generations": self.generations,
            "driver_restarts": result.restarts,
            "store": dg.MetadataValue.path(self.store.objects.uri),
        }
        if self.rejected:
            metadata["rejected_checkpoints"] = dg.MetadataValue.json(self.rejected)
        version = dg.DataVersion(self.newest.sha256) if self.newest else None
        return dg.MaterializeResult(metadata=metadata, data_version=version)


def supervise(
    context: dg.AssetExecutionContext,
    spec: StreamSpec,
    checkpoints: CheckpointStoreResource,
    driver: SparkDriverClient,
) -> dg.MaterializeResult:
    """Run ``spec`` inside this Dagster run.

    Raises:
        dagster.Failure: the store is not usable, the driver gave up, or Dagster would forget
            the run as soon as it has ended.
    """
    refuse_temporary_instance(context.instance)
    try:
        store = checkpoints.open(spec.name)
    except LaminarError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    return SupervisedRun(context, spec, store).run(driver, checkpoints.uri)


def refuse_temporary_instance(instance: dg.DagsterInstance) -> None:
    """Refuse the instance that Dagster's commands make up when they find no configuration.

    Raises:
        dagster.Failure: it is one; the message says where to start Dagster instead.
    """
    if not instance.is_ephemeral and _TEMPORARY_HOME in instance.root_directory:
        raise dg.Failure(
            "Dagster keeps this run in a temporary directory and forgets it: start dagster in the "
            "folder of dagster.yaml, or set DAGSTER_HOME",
            allow_retries=False,
        )


@contextmanager
def _failure_on_stderr() -> Iterator[None]:
    """Keep a database that is locked, or a store that is slow, from ending a healthy stream."""
    try:
        yield
    except Exception:  # noqa: BLE001 - an interrupt is none, and passes
        traceback.print_exc()


def _sentence(event: DriverEvent) -> str:
    facts = ", ".join(f"{k} {v}" for k, v in event.items() if k not in {"event", "time_ms"})
    return f"{event['event']}: {facts}" if facts else event["event"]
