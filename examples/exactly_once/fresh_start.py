"""A fresh start of the demo, whatever an earlier one left behind."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.orchestration.streams import ROOT
from laminar_core.resources.names import STREAM_TAG, checkpoint_partitions
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.owner import is_running, is_visible


@contextmanager
def open_instance() -> Iterator[dg.DagsterInstance]:
    """Open the instance that ``dagster dev`` opens in the project's folder."""
    if os.environ.get("DAGSTER_HOME"):
        with dg.DagsterInstance.get() as instance:
            yield instance
        return
    home = ROOT / "build" / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), config_dir=str(ROOT))) as kept:
        yield kept


def begin_anew(
    instance: dg.DagsterInstance, store: CheckpointStore, remove: Sequence[Path]
) -> None:
    """Remove what an earlier run of the stream left, except its history in Dagster.

    Raises:
        ConfigurationError: the stream is running.
    """
    refuse_running(store)
    for left in remove:
        if left.is_dir():
            shutil.rmtree(left)
        left.unlink(missing_ok=True)
    partitions = checkpoint_partitions(store.job).name
    assert partitions is not None
    for partition in instance.get_dynamic_partitions(partitions):
        instance.delete_dynamic_partition(partitions, partition)
    close_dead_runs(instance, store.job)


def refuse_running(store: CheckpointStore) -> None:
    """Refuse to take the store away from a living driver.

    Raises:
        ConfigurationError: there is one.
    """
    for generation in store.generations.summaries()[-1:]:
        owner = generation.claim.owner if generation.claim else None
        if owner and is_visible(owner) and is_running(owner) and generation.end is None:
            raise ConfigurationError(
                ErrorCode.JOB_OWNED,
                f"{store.job} is running in process {owner.pid}: stop it, then start the demo",
            )


def close_dead_runs(instance: dg.DagsterInstance, stream: str) -> None:
    """Mark runs as failed whose process was killed, as Dagster's daemon does if it runs.

    Otherwise they would count as in progress for ever, and silence the stream's observer.
    """
    unfinished = dg.RunsFilter(
        tags={STREAM_TAG: stream},
        statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING],
    )
    for record in instance.get_run_records(unfinished):
        instance.report_run_failed(record.dagster_run, "the process that ran it is gone")
