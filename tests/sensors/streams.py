"""A job in a store as a sensor finds it, and the Dagster around the sensor; for tests."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.records.actor import Actor, kind_by_name
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.channel_entries import EdgeEntry
from laminar_core.records.commands import ControlBegun, ControlCommand, ControlResult, SetMode
from laminar_core.records.damage import DamagedFile
from laminar_core.records.drill import DrillRecord
from laminar_core.records.manifest import Heartbeat, HistoryRecord, Owner, fingerprint_of
from laminar_core.records.record import JsonObject
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.resources import CheckpointStoreResource, DetachedDriver
from laminar_core.resources.names import (
    ACT_TAG,
    StreamJob,
    checkpoint_key,
    checkpoint_partitions,
    job_name,
)
from laminar_core.sensors.rounds import RoundCursor, StreamState
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.store.command_log import ControlLog
from laminar_core.store.drills import write_drill
from laminar_core.store.file_scrub import DamageLog
from laminar_core.store.owner import this_process
from tests.records.manifests import DESCRIPTIONS, alignment, inflight
from tests.store.stores import JOB, gone, never, trigger, write

STREAM = JOB
NEVER_RAN = Generation(0)


@dataclass
class Job:
    """A store as drivers leave it; ``clock`` is theirs."""

    store: CheckpointStore
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().now_ms()))
    generation: Generation = NEVER_RAN
    beats: int = 0
    rows_in: int = 0
    descriptions: dict[str, Any] = field(default_factory=lambda: dict(DESCRIPTIONS))
    """Descriptions of the operators, for the manifests."""
    edges: tuple[EdgeEntry, ...] = ()

    def claim(
        self,
        owner: Owner | None = None,
        actor: str = "ada",
        base: int | None = None,
        run_id: str | None = None,
    ) -> Generation:
        """A new generation that starts from ``base``, on behalf of a run of Dagster."""
        by = Actor(actor, kind_by_name({"actor": actor}), "why", run_id)
        claimant = Claimant(owner or this_process(), by, "0.1.0", self.clock.now_ms())
        audit = AuditLog(self.store.objects, self.store.paths, self.clock.now_ms)

        def announce(generation: Generation) -> AuditRef:
            after: JsonObject = {"generation": generation}
            return audit.append(action="claim", actor=by, after=after).reference()

        generation = self.store.claims.claim(
            claimant, wait_ms=never, take_over=True, announce=announce
        )
        self.store.generations.record_base(generation, None if base is None else CheckpointId(base))
        self.generation = generation
        return generation

    def claim_by_the_dead(self, **how: Any) -> Generation:
        """Claim the next generation for a process of this machine that is gone."""
        return self.claim(gone(this_process()), **how)

    def beat(
        self, rows_per_s: float = 0, rows: int | None = None, **sources: SourceNumbers
    ) -> None:
        """A sign of life, a second after the last one; ``rows`` came since."""
        self.clock.wait_ms(1_000)
        self.beats += 1
        self.rows_in += int(rows_per_s) if rows is None else rows
        progress: JsonObject = {"rows_in": self.rows_in, "rows_per_s": rows_per_s}
        if sources:
            progress["sources"] = {name: n.model_dump() for name, n in sources.items()}
        now_ms = self.clock.now_ms()
        beat = Heartbeat(sequence=self.beats, at_ms=now_ms, progress=progress)
        self.store.generations.beat(self.generation, beat)

    def complete(
        self,
        alignment_ms: float = 5,
        inflight_rows: int = 0,
        kind: CheckpointKind = CheckpointKind.PERIODIC,
        offered: tuple[JsonObject, ...] = (),
        written: JsonObject | None = None,
    ) -> int:
        """The next checkpoint, whole, as a driver leaves it.

        Its sink has ``offered`` output, and records what it has ``written``.
        """
        checkpoint_id = self._next_id()
        whole = write(self.store, checkpoint_id, self.generation)
        now_ms = self.clock.now_ms()
        fields: dict[str, Any] = {
            "kind": kind,
            "triggered_at_ms": now_ms,
            "completed_at_ms": now_ms,
            "alignment": (alignment(alignment_ms=float(alignment_ms)),),
            "operators_description": self.descriptions,
            "fingerprint": {op: fingerprint_of(d) for op, d in self.descriptions.items()},
            "edges": self.edges,
        }
        if offered or written:
            more = {"committables": offered, "properties": written or {}}
            sink = whole.subtasks[-1].model_copy(update=more)
            fields["subtasks"] = (*whole.subtasks[:-1], sink)
        if inflight_rows:
            ref = self.store.parts.write_inflight(
                CheckpointId(checkpoint_id), 0, [b"not looked at"]
            )
            entry = inflight(**dict(ref), row_count=inflight_rows)
            fields |= {
                "mode": "unaligned",
                "is_unaligned": True,
                "inflight_files": (ref,),
                "inflight_data": (entry,),
                "alignment": (alignment(mode="unaligned", alignment_ms=float(alignment_ms)),),
            }
        self.store.manifests.publish(type(whole).model_validate(dict(whole) | fields))
        self.end(checkpoint_id, "completed", alignment_ms=float(alignment_ms))
        return checkpoint_id

    def trigger(self, kind: CheckpointKind = CheckpointKind.PERIODIC) -> int:
        """A checkpoint that is under way."""
        checkpoint_id = self._next_id()
        record = trigger(checkpoint_id, self.generation)
        changes = {"triggered_at_ms": self.clock.now_ms(), "kind": kind}
        assert self.store.attempts.record_trigger(record.model_copy(update=changes))
        return checkpoint_id

    def end(
        self,
        checkpoint_id: int,
        outcome: Any,
        alignment_ms: float | None = None,
        duration_ms: float = 40,
    ) -> None:
        """Write down how an attempt ended."""
        now_ms = self.clock.now_ms()
        record = HistoryRecord(
            checkpoint_id=checkpoint_id,
            generation=self.generation,
            kind=CheckpointKind.PERIODIC,
            outcome=outcome,
            reason="",
            triggered_at_ms=now_ms,
            ended_at_ms=now_ms,
            duration_ms=duration_ms,
            alignment_ms_max=alignment_ms,
        )
        self.store.attempts.record_outcome(record)

    def drill(self, outcome: str = "passed") -> int:
        """A drill of the first checkpoint; returns its number."""
        record = DrillRecord(
            job=STREAM,
            number=1,
            outcome=outcome,
            checkpoint_id=1,
            workers_before=2,
            workers=2,
            started_at_ms=self.clock.now_ms(),
            duration_ms=5.0,
            actor="ada",
            reason="every night",
        )
        return write_drill(self.store, record).number

    def set_mode(
        self,
        mode: Any,
        actor: str,
        outcome: Any = "completed",
        reason: str = "",
        answered_by: int | None = None,
    ) -> int:
        """A command of ``actor`` that the driver answered."""
        log = ControlLog(self.store.objects, self.store.paths)
        now_ms = self.clock.now_ms()
        command = ControlCommand(
            command_id=f"command {len(log.numbers())}",
            job=self.store.job,
            generation=self.generation,
            action=SetMode(mode=mode),
            actor=actor,
            actor_kind=kind_by_name({"actor": actor}),
            reason="why",
            requested_at_ms=now_ms,
            expires_at_ms=now_ms + 60_000,
        )
        number = log.append(command)
        log.begin(number, ControlBegun(generation=self.generation, begun_at_ms=now_ms))
        result = ControlResult(
            outcome=outcome,
            reason=reason,
            generation=answered_by or self.generation,
            answered_at_ms=now_ms,
        )
        log.answer(number, result)
        return number

    def _next_id(self) -> int:
        return (self.store.attempts.highest_id() or 0) + 1


def stored_job(folder: Path) -> Job:
    """A job that has never run, in a store of its own."""
    store = CheckpointStore.open(str(folder / "store"), STREAM)
    store.objects.create()
    return Job(store)


def mark_damaged(job: Job, *checkpoint_ids: int) -> None:
    """Write the driver's records that these checkpoints have lost a file."""
    log = DamageLog(job.store.objects, job.store.paths)
    lost = [DamagedFile(path="shared/a.arrow", problem="missing")]
    for checkpoint_id in checkpoint_ids:
        log.record(CheckpointId(checkpoint_id), job.generation, lost, job.clock.now_ms())


def stand_ins() -> dg.Definitions:
    """Jobs of the names that sensors request, which do nothing."""

    def job(name: StreamJob) -> dg.JobDefinition:
        @dg.op(name=job_name(name), config_schema=dict)
        def op() -> None: ...

        @dg.job(name=job_name(name), tags={ACT_TAG: name})
        def act() -> None:
            op()

        return act

    partitions = checkpoint_partitions(STREAM)
    checkpoint = dg.AssetSpec(checkpoint_key(STREAM), partitions_def=partitions)
    names: tuple[StreamJob, ...] = ("mode", "checkpoint", "rescale", "drill", "recover", "start")
    return dg.Definitions(assets=[checkpoint], jobs=[job(name) for name in names])


OBJECTS: dict[str, ObjectStore] = {}
"""Stores that a test has put in the place of those at these URIs."""


class Checkpoints(CheckpointStoreResource):
    """The resource, but for what is in ``OBJECTS``."""

    def open(self, job: str) -> CheckpointStore:
        """See ``CheckpointStoreResource``."""
        if objects := OBJECTS.get(self.uri):
            return CheckpointStore(objects, job)
        return super().open(job)


@dataclass
class Ticks:
    """Evaluates one sensor as the daemon does: cursor kept, partitions added, runs created.

    ``cursor`` is the part of the sensor's cursor that belongs to the stream.
    """

    instance: dg.DagsterInstance
    sensor: dg.SensorDefinition
    uri: str
    definitions: dg.Definitions = field(default_factory=stand_ins)
    cursor: str | None = None
    runs: list[dg.DagsterRun] = field(default_factory=list)

    def evaluate(self) -> dg.SensorResult:
        """The result of one evaluation, and nothing done with it."""
        with self.context() as context:
            result = self.sensor(context)
        assert isinstance(result, dg.SensorResult)
        after = RoundCursor.read(result.cursor).streams[STREAM]
        return result._replace(cursor=after.cursor)

    def context(self) -> dg.SensorEvaluationContext:
        """Return the argument of the sensor's function."""
        return dg.build_sensor_context(
            instance=self.instance,
            cursor=RoundCursor(streams={STREAM: StreamState(cursor=self.cursor)}).model_dump_json(),
            sensor_name=self.sensor.name,
            definitions=dg.Definitions.merge(
                self.definitions, dg.Definitions(sensors=[self.sensor])
            ),
            resources={
                "laminar_checkpoints": Checkpoints(uri=self.uri),
                "laminar_launcher": DetachedDriver(log_directory=f"{self.uri}-drivers"),
            },
        )

    def tick(self, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTING) -> str:
        """One whole tick; returns its line. Requested runs get ``status``."""
        result = self.evaluate()
        for added in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(added.partitions_def_name, added.partition_keys)
        self.cursor = result.cursor
        for request in result.run_requests or ():
            self.create(request, status)
        if result.skip_reason is not None:
            return str(result.skip_reason.skip_message)
        return "; ".join(str(request.run_key) for request in result.run_requests or ())

    def create(
        self, request: dg.RunRequest, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTING
    ) -> dg.DagsterRun | None:
        """The run of a request; None if there is one with its key already."""
        tags = key = {"dagster/run_key": str(request.run_key)}
        if request.partition_key is not None:
            tags = {**key, "dagster/partition": request.partition_key}
        known = self.instance.get_runs(dg.RunsFilter(tags=key))
        if known and known[0].status != dg.DagsterRunStatus.NOT_STARTED:
            return None
        if known:
            self.instance.delete_run(known[0].run_id)
        assert request.job_name is not None
        job = self.definitions.resolve_job_def(request.job_name)
        run = self.instance.create_run_for_job(
            job,
            tags={**job.tags, **tags, **request.tags},
            run_config=request.run_config,
            status=status,
        )
        self.runs.append(run)
        return run

    def end(self, run: dg.DagsterRun, status: dg.DagsterRunStatus) -> None:
        """End a run."""
        if status == dg.DagsterRunStatus.FAILURE:
            self.instance.report_run_failed(run)
        elif status == dg.DagsterRunStatus.CANCELED:
            self.instance.report_run_canceled(run)
        else:
            event = dg.DagsterEvent(dg.DagsterEventType.PIPELINE_SUCCESS.value, run.job_name)
            self.instance.report_dagster_event(event, run.run_id)


def config_of(run: dg.DagsterRun) -> dict[str, Any]:
    """Return the config of the one op of a run."""
    (op,) = json.loads(json.dumps(run.run_config))["ops"].values()
    return op["config"]
