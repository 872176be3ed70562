"""The daemon as the observer meets it: events first, then partitions, then the cursor."""

from dataclasses import dataclass

import dagster as dg

from laminar_core.records.actor import Actor
from laminar_core.resources.names import (
    StreamAsset,
    asset_key,
    checkpoint_key,
    checkpoint_partitions,
)
from laminar_core.sensors.observer.health_reports import STATE
from laminar_core.store.audit_log import AuditLog
from tests.sensors.streams import STREAM, Job, Ticks

KEY = checkpoint_key(STREAM)
NOTHING_NEW = "nothing new"


class DiedError(Exception):
    """The daemon, between two writes."""


@dataclass
class Daemon(Ticks):
    """Carries out the requests of the observer's ticks, and dies after a given write."""

    dies_after: int | None = None
    """Number of writes before it dies."""

    def tick(self, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTING) -> str:
        """One whole tick; returns its line."""
        del status
        result = self.evaluate()
        for event in result.asset_events:
            self._write()
            self.instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or ():
            self._write()
            self._apply(request)
        self._write()
        self.cursor = result.cursor if result.cursor is not None else self.cursor
        assert result.skip_reason is not None
        return str(result.skip_reason.skip_message)

    def ticks(self) -> list[str]:
        """Ticks until there is nothing new."""
        said: list[str] = []
        while not said or said[-1] != NOTHING_NEW:
            said.append(self.tick())
            assert len(said) < 50, said
        return said

    def _write(self) -> None:
        if self.dies_after == 0:
            self.dies_after = None
            raise DiedError
        if self.dies_after is not None:
            self.dies_after -= 1

    def _apply(
        self, request: dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest
    ) -> None:
        name, keys = request.partitions_def_name, list(request.partition_keys)
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            self.instance.add_dynamic_partitions(name, keys)
        else:
            for key in keys:
                self.instance.delete_dynamic_partition(name, key)

    # --- what Dagster shows then ----------------------------------------------------------------

    def completed(self) -> list[int]:
        """Checkpoints, in the order of their materialisations."""
        records = self.instance.fetch_materializations(KEY, limit=500, ascending=True).records
        return [int(each.asset_materialization.partition) for each in records]

    def observed(self, asset: StreamAsset) -> list[dg.AssetObservation]:
        """Observations of an asset, oldest first, but for those of the stream's state."""
        return [each for each in self._observed(asset) if STATE not in each.metadata]

    def states(self) -> list[str]:
        """The lines about the stream's state, oldest first."""
        found = self._observed("deployment")
        return [str(each.metadata[STATE].value) for each in found if STATE in each.metadata]

    def _observed(self, asset: StreamAsset) -> list[dg.AssetObservation]:
        key = asset_key(STREAM, asset)
        records = self.instance.fetch_observations(key, limit=500, ascending=True).records
        return [each.asset_observation for each in records if each.asset_observation is not None]

    def failed(self) -> list[tuple[int, str]]:
        """Attempts that ended otherwise."""
        return [
            (each.metadata["checkpoint_id"].value, each.metadata["outcome"].value)
            for each in self.observed("checkpoint")
            if "would_be_partition" in each.metadata
        ]

    def partitions(self) -> list[int]:
        """Checkpoints that can be chosen."""
        name = checkpoint_partitions(STREAM).name
        assert name is not None
        return sorted(map(int, self.instance.get_dynamic_partitions(name)))

    def evaluated(self, check: str) -> list[tuple[int, bool]]:
        """Checkpoint and verdict of each evaluation, oldest first."""
        key = dg.AssetCheckKey(KEY, check)
        history = self.instance.event_log_storage.get_asset_check_execution_history(key, limit=500)
        found = [record.evaluation for record in reversed(history)]
        return [(each.metadata["checkpoint_id"].value, each.passed) for each in found]


def write_down(job: Job, action: str, **facts: object) -> int:
    """An audit record of the job; returns its number."""
    log = AuditLog(job.store.objects, job.store.paths, job.clock.now_ms)
    words = {"name": "ada", "reason": "why"}
    words |= {name: facts.pop(name) for name in ("reason", "run_id") if name in facts}
    words |= {"name": facts.pop("actor")} if "actor" in facts else {}
    return log.append(action=action, actor=Actor(**words), **facts).number


def conclude(job: Job, number: int, **facts: object) -> None:
    """Say that the act of an audit record is done."""
    log = AuditLog(job.store.objects, job.store.paths, job.clock.now_ms)
    intended = log.read(number)
    assert intended is not None
    words = {"outcome": "done", "reason": intended.reason} | facts
    log.conclude(intended, **words)
