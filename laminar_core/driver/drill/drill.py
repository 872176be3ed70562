"""A restore drill: proves that a checkpoint can be restored, without touching the job.

The checkpoint is copied into a scratch store, where a job of the same pipeline starts from it, with
sinks that only count and sources that give a few batches. Every operator reports its restored state
before its first row; the report must equal the contents of the checkpoint's files, read without the
operator. Then one further checkpoint has to complete, and the drill ends. In the job's own store it
writes a hold on the checkpoint for the duration of the drill, one record, and the audit log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from laminar_core.driver.drill.stand_ins import PROOF, drill_plan, proven_operators
from laminar_core.driver.events import CheckpointCompleted, DataFlowing, JobEvent
from laminar_core.driver.execution import Cluster
from laminar_core.driver.listening import NOBODY
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.start import RecoveryManager
from laminar_core.driver.restart import NoRestart
from laminar_core.driver.supervisor import Supervisor
from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    IncompatibleStateError,
    JobFailedError,
    LaminarError,
)
from laminar_core.host.clock import Clock
from laminar_core.plan.plan import Plan
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.records.drill import DrilledOperator, DrillRecord
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.segment import by_table
from laminar_core.state.content import Content, content_of
from laminar_core.state.reading import unmergeable_columns
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_copy import copy_checkpoint
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.drills import newest_number, write_drill
from laminar_core.store.pins import Pins
from laminar_core.store.state_reading import read_rows

BATCHES_MAX = 10
INTERVAL_MS = 500
"""Between checkpoints of the drill."""
HOLD_MS = 6 * 3_600_000
"""A drill that was killed lets go of its checkpoint after so long."""

_CHECKPOINTS_WITHOUT_ROWS_MAX = 5
"""If the sources give no rows, the drill ends after this many checkpoints."""


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """The options of a drill.

    ``job.restore_request`` selects the checkpoint; ``random_seed`` draws one.
    """

    job: JobOptions
    random_seed: int | None = None
    batches_max: int = BATCHES_MAX


class Drill:
    """One drill of one job; ``run`` blocks until it is over."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        options: DrillOptions,
        store: CheckpointStore,
        scratch: CheckpointStore,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._options = options
        self._store = store
        self._scratch = scratch
        self._clock = clock
        self._audit = AuditLog(store.objects, store.paths, clock.now_ms, identify=cluster.identify)
        self._rows_before = 0

    def run(self) -> DrillRecord:
        """Run the drill and record its result, even if it failed.

        Raises:
            ConfigurationError: there is no checkpoint to drill.
            StorageUnavailable: the job's store did not answer.
        """
        require_drillable(self._store, self._options)  # Else nothing is written, not even there.
        started_ms = self._clock.monotonic_ms()
        record = DrillRecord(
            job=self._options.job.job,
            number=newest_number(self._store) + 1,
            outcome="failed",
            checkpoint_id=None,
            workers_before=0,
            workers=self._options.job.parallelism,
            started_at_ms=self._clock.now_ms(),
            duration_ms=0.0,
            actor=self._options.job.actor.name,
            reason=self._options.job.actor.reason,
        )
        try:
            record = self._drill(record)
        except LaminarError as error:
            if error.code is ErrorCode.NO_SUCH_CHECKPOINT:
                raise  # Nothing was drilled, and maybe there is no such job.
            record = _failed(record, error)
        took_ms = self._clock.monotonic_ms() - started_ms
        return write_drill(self._store, record.model_copy(update={"duration_ms": took_ms}))

    # --- which ----------------------------------------------------------------------------------

    def _drill(self, record: DrillRecord) -> DrillRecord:
        job = self._chosen()
        manager = RecoveryManager(self._plan, job, self._store, self._clock, NOBODY, self._audit)
        examined = manager.examine()
        examined.report.raise_problem()
        there = (source for source in examined.report.sources if source.status != "gone")
        self._rows_before = sum(source.rows_read for source in there)
        manifest = examined.choice.manifest
        if manifest is None:
            raise _nothing_to_drill(job)
        if examined.report.evolved:
            raise _changed_since(manifest.checkpoint_id, examined.report.evolved)
        self._audit.append(
            action="drill",
            actor=job.actor,
            after={"checkpoint_id": manifest.checkpoint_id, "number": record.number},
        )
        reader, now_ms = job.actor.because("a restore drill reads it"), self._clock.now_ms()
        checkpoint_id, name = manifest.checkpoint_id, f"drill-{record.number}"
        with Pins(self._store).held(checkpoint_id, name, reader, now_ms, HOLD_MS):
            return self._restore(manifest, job, record)

    def _chosen(self) -> JobOptions:
        """The job's options with an older checkpoint drawn, if one is to be."""
        options = self._options
        if options.random_seed is None:
            return options.job
        ids = [
            summary.checkpoint_id
            for summary in self._store.list_summaries()
            if summary.outcome == "completed"
            and not (summary.orphan or summary.deleted or summary.problem)
        ]
        if not ids:
            return options.job
        older = sorted(ids)[:-1] or ids  # The newest is what every other drill restores.
        dice = Random(options.random_seed)  # noqa: S311 - a choice, not a secret
        return replace(options.job, restore_id=dice.choice(older), restore_before_ms=None)

    # --- the restore ----------------------------------------------------------------------------

    def _restore(
        self, manifest: CheckpointManifest, job: JobOptions, record: DrillRecord
    ) -> DrillRecord:
        record = record.model_copy(
            update={
                "checkpoint_id": manifest.checkpoint_id,
                "workers_before": manifest.workers,
                "inflight_rows": manifest.inflight_rows,
            }
        )
        owner = self._cluster.identify()
        size_bytes = copy_checkpoint(self._store, self._scratch, manifest, owner)
        record = record.model_copy(update={"size_bytes": size_bytes})
        options = replace(
            job,
            store_uri=self._scratch.objects.uri,
            checkpoint=CoordinatorConfig(interval_ms=INTERVAL_MS),
            restart=NoRestart(),
            restore_id=manifest.checkpoint_id,
            restore_before_ms=None,
            allow_fresh=False,
            take_over=False,
        )
        plan = drill_plan(self._plan, self._options.batches_max)
        listener = _StopAfterOneCheckpoint()
        supervisor = Supervisor(self._cluster, plan, options, self._scratch, self._clock, listener)
        listener.supervisor = supervisor
        try:
            result = supervisor.run()
        except LaminarError as error:
            return _failed(record, error)
        completed = self._newest(manifest)
        operators = tuple(self._compared(manifest, completed))
        record = record.model_copy(
            update={
                "operators": operators,
                "rows_read": max(result.rows_in - self._rows_before, 0),
                "completed_checkpoint_id": completed.checkpoint_id,
            }
        )
        return _judged(record)

    def _newest(self, restored: CheckpointManifest) -> CheckpointManifest:
        """The newest checkpoint in the scratch store, whole.

        Raises:
            JobFailedError: none was completed.
        """
        newest = self._scratch.manifests.ids()[-1]
        problem = self._scratch.verify(newest).problem
        if newest == restored.checkpoint_id or problem is not None:
            said = problem or "the drill ended before one was complete"
            raise JobFailedError(ErrorCode.DRILL_FAILED, f"no further checkpoint: {said}")
        return self._scratch.manifests.read(newest)

    def _compared(
        self, manifest: CheckpointManifest, after: CheckpointManifest
    ) -> Iterator[DrilledOperator]:
        """Yield, per operator with rows, the contents of its files and its restore report."""
        proofs = dict(_proofs(after))
        for operator_id in proven_operators(self._plan):
            expected, mergeable = self._expected(manifest, operator_id)
            proof = proofs.get(operator_id, Content())
            if operator_id not in proofs and not expected.row_count:
                continue  # It had nothing to restore.
            yield DrilledOperator(
                operator_id=operator_id,
                rows_expected=expected.row_count,
                rows_restored=proof.row_count,
                digest_expected=f"{expected.digest:016x}" if mergeable else None,
                digest_restored=f"{proof.digest:016x}",
            )

    def _expected(self, manifest: CheckpointManifest, operator_id: str) -> tuple[Content, bool]:
        total, mergeable = Content(), True
        for entry in manifest.subtasks:
            if entry.operator_id == operator_id:
                for name in by_table(entry.segments):
                    rows = read_rows(self._scratch.parts, manifest, entry, name)
                    assert rows is not None, "it has segments"
                    total += content_of([rows], name)
                    mergeable = mergeable and not unmergeable_columns(rows.schema, name)
        return total, mergeable


class _StopAfterOneCheckpoint:
    """Stops the job when a checkpoint was completed and rows have come, or will not come."""

    def __init__(self) -> None:
        self.supervisor: Supervisor | None = None
        self._completed = 0
        self._flowing = False

    def __call__(self, event: JobEvent) -> None:
        """Stop the job in the scratch store once it has done enough."""
        self._flowing = self._flowing or isinstance(event, DataFlowing)
        self._completed += isinstance(event, CheckpointCompleted)
        enough = self._flowing or self._completed >= _CHECKPOINTS_WITHOUT_ROWS_MAX
        if self._completed and enough and self.supervisor is not None:
            supervisor, self.supervisor = self.supervisor, None
            supervisor.stop()


def require_drillable(store: CheckpointStore, options: DrillOptions) -> None:
    """Refuse a drill without a checkpoint, cheaply and without Spark.

    Raises:
        ConfigurationError: the job has no completed checkpoint, or not the requested one.
        StorageUnavailable: the job's store did not answer.
    """
    if store.claims.newest() is None or not (completed := store.manifests.ids()):
        raise _nothing_to_drill(options.job)
    wanted = options.job.restore_id
    if wanted is not None and wanted not in completed:
        raise ConfigurationError(
            ErrorCode.NO_SUCH_CHECKPOINT,
            f"job {options.job.job} is not drilled: checkpoint {wanted} cannot be restored: it "
            "never completed, or is deleted; see `laminar checkpoints list`",
        )


def _changed_since(checkpoint_id: int, changes: Sequence[str]) -> LaminarError:
    """Return the refusal of a pipeline whose state would not be what the files say."""
    return IncompatibleStateError(
        ErrorCode.OPERATORS_CHANGED,
        f"checkpoint {checkpoint_id} was taken by another form of the pipeline "
        f"({'; '.join(changes)}): drill it with the pipeline as it was, or a newer checkpoint",
    )


def _nothing_to_drill(job: JobOptions) -> ConfigurationError:
    return ConfigurationError(
        ErrorCode.NO_SUCH_CHECKPOINT,
        f"job {job.job} has no completed checkpoint to drill: let it take one first",
    )


def _proofs(manifest: CheckpointManifest) -> Iterator[tuple[str, Content]]:
    """Yield the restored content per operator, added up over its subtasks."""
    totals: dict[str, Content] = {}
    for entry in manifest.subtasks:
        proof = entry.properties.get(PROOF)
        if isinstance(proof, dict):
            rows, digest = proof.get("row_count"), proof.get("digest")
            assert isinstance(rows, int)
            assert isinstance(digest, str)
            known = totals.get(entry.operator_id, Content())
            totals[entry.operator_id] = known + Content(rows, int(digest, 16))
    yield from totals.items()


def _judged(record: DrillRecord) -> DrillRecord:
    problems = tuple(
        f"{o.operator_id} restored {o.rows_restored:,} rows (digest {o.digest_restored}), "
        f"its files have {o.rows_expected:,} ({o.digest_expected})"
        for o in record.operators
        if not o.is_equal
    )
    if not problems:
        return record.model_copy(update={"outcome": "passed"})
    return record.model_copy(
        update={
            "problems": problems,
            "error_code": ErrorCode.DRILL_FAILED.value,
            "exit_code": JobFailedError.exit_code,
        }
    )


def _failed(record: DrillRecord, error: LaminarError) -> DrillRecord:
    return record.model_copy(
        update={
            "problems": (*record.problems, str(error)),
            "error_code": error.code.value,
            "exit_code": error.exit_code,
        }
    )
