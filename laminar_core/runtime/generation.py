"""One execution of a job: from what is in the store to running workers, and to their end.

The order is PROTOCOL section 11: the claim has fenced every earlier generation; choose and verify
what to continue from; compare it with the pipeline; write the choice down; make decided output
visible and take back what will be produced again; start the coordinator; submit the stage; watch.
"""

from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from laminar_core.checkpoint.recovery import Refuse, RestoreFrom, StartFresh
from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.connectors.base import Committer
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.runtime.checkpointing import CoordinatorParts, commit_checkpoint
from laminar_core.runtime.clock import Clock
from laminar_core.runtime.compatibility import check_compatible
from laminar_core.runtime.coordination import Coordinator, GenerationOutcome
from laminar_core.runtime.deployment import Deployment
from laminar_core.runtime.events import GenerationStarted, JobListener, RejectedCheckpoint
from laminar_core.runtime.options import JobOptions
from laminar_core.runtime.pacing import rows_in_all
from laminar_core.runtime.plan import Plan
from laminar_core.runtime.publication import JobIdentity
from laminar_core.runtime.spark_stage import interrupt_stage, run_stage
from laminar_core.runtime.transport import CoordinatorTransport, TransportKind
from laminar_core.state.manifest import CheckpointManifest
from laminar_core.storage.checkpoint_store import CheckpointStore, Choice

WORKERS_EXIT_MAX_S = 5.0
"""How long workers of an ended generation may take to leave before Spark kills them."""

REASON_WAIT_MAX_S = 0.05
"""How long a lost stage waits for the worker's own words about why it failed."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One running generation."""

    generation: Generation
    coordinator: Coordinator
    stage: "Future[dict[str, pa.Table]]"
    tag: str


class GenerationRunner:
    """Starts and watches generations; holds what is the same for all of them."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        options: JobOptions,
        store: CheckpointStore,
        clock: Clock,
        listener: JobListener,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._options = options
        self._store = store
        self._clock = clock
        self._tell = listener
        self._committers: Mapping[str, Committer] = {
            node.operator_id: committer
            for node in plan.sinks()
            if (committer := node.sink.committer()) is not None
        }

    def start(self, generation: Generation, *, first: bool) -> Execution:
        """Choose what to continue from, settle the output, and submit the workers.

        ``first``: what the user asked for (a checkpoint, to start fresh) binds this generation.

        Raises:
            IncompatibleStateError: no checkpoint can be restored, or it does not fit.
            ConfigurationError: a source or sink cannot be used.
            StorageUnavailable: the store did not answer.
        """
        choice = self._store.choose_checkpoint(
            allow_fresh=self._options.allow_fresh and first,
            wanted_id=self._options.restore_id if first else None,
        )
        restored, rejected = self._restored(choice)
        splits = self._splits(restored)
        base_id = None if restored is None else CheckpointId(restored.checkpoint_id)
        self._store.record_base(generation, base_id)
        identity = JobIdentity(self._options.job, generation, self._plan, self._options.parallelism)
        self._settle_output(identity, choice, base_id)
        totals = [rows_in_all(table) for table in splits.values()]
        rows_total = None if None in totals else sum(t for t in totals if t is not None)
        self._tell(
            GenerationStarted(
                time_ms=self._clock.now_ms(),
                generation=generation,
                parallelism=self._options.parallelism,
                restored_checkpoint_id=base_id,
                rejected=rejected,
                rows_total=rows_total,
            )
        )
        return self._submit(identity, restored, splits, rows_total)

    def _restored(
        self, choice: Choice
    ) -> tuple[CheckpointManifest | None, tuple[RejectedCheckpoint, ...]]:
        rejected = tuple(
            RejectedCheckpoint(checkpoint_id=r.checkpoint_id, reason=r.reason)
            for r in choice.decision.rejected
            if not r.orphan
        )
        match choice.decision:
            case Refuse(reason):
                raise IncompatibleStateError(
                    ErrorCode.NO_RESTORABLE_CHECKPOINT,
                    f"job {self._options.job} is not started: {reason}",
                )
            case StartFresh():
                return None, rejected
            case RestoreFrom():
                assert choice.manifest is not None
                check_compatible(choice.manifest, self._plan, self._options.parallelism)
                return choice.manifest, rejected

    def _splits(self, restored: CheckpointManifest | None) -> dict[str, pa.Table]:
        """Per source all its splits: discovered on a fresh start, else pinned in the checkpoint."""
        splits: dict[str, pa.Table] = {}
        for node in self._plan.sources():
            if restored is None:
                splits[node.operator_id] = node.source.discover()
                continue
            parts = [
                self._store.read_state(entry.state)
                for entry in restored.subtasks
                if entry.operator_id == node.operator_id and entry.state is not None
            ]
            pinned = pa.concat_tables(parts) if parts else node.source.discover().slice(0, 0)
            node.source.check(pinned)
            splits[node.operator_id] = pinned
        return splits

    def _settle_output(
        self, identity: JobIdentity, choice: Choice, base_id: CheckpointId | None
    ) -> None:
        """Make visible exactly the output up to the restored checkpoint (PROTOCOL section 7)."""
        for manifest in choice.redrive:
            commit_checkpoint(
                self._store, self._committers, manifest, identity.generation, self._clock.wait_ms
            )
        for operator_id, committer in self._committers.items():
            visible = committer.last_committed()
            fresh = base_id is None and not self._options.allow_fresh
            if fresh and visible is not None:
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION,
                    f"sink {operator_id} already shows output of another run (up to checkpoint "
                    f"{visible}), and job {self._options.job} starts from nothing: write to "
                    "another place, or empty this one",
                )
            if visible is not None and visible > (base_id or 0):
                # A generation that slept until here must not withdraw its successor's output.
                self._store.check_owner(identity.generation)
                committer.withdraw_after(base_id or CheckpointId(0))
            committer.discard_uncommitted(identity.generation)

    def _submit(
        self,
        identity: JobIdentity,
        restored: CheckpointManifest | None,
        splits: dict[str, pa.Table],
        rows_total: int | None,
    ) -> Execution:
        transport = CoordinatorTransport(self._transport_kind(), self._driver_host())
        parts = CoordinatorParts(
            identity=identity,
            store=self._store,
            committers=self._committers,
            config=self._options.checkpoint,
            highest_id=self._store.highest_checkpoint_id() or CheckpointId(0),
            parent_id=None if restored is None else CheckpointId(restored.checkpoint_id),
            rows_total=rows_total,
            deadlines=self._options.deadlines,
        )
        coordinator = Coordinator(parts, transport, self._clock, self._tell)
        coordinator.start()
        deployment = Deployment(
            job=identity.job,
            generation=identity.generation,
            parallelism=identity.parallelism,
            plan=self._plan,
            store_uri=self._options.store_uri,
            address=transport.address,
            restored=restored,
            splits=splits,
        )
        tag = f"laminar-{identity.job}-{identity.generation}"
        executor = ThreadPoolExecutor(1, "laminar-stage")
        stage = executor.submit(run_stage, self._spark, deployment, tag)
        executor.shutdown(wait=False)
        return Execution(identity.generation, coordinator, stage, tag)

    def _transport_kind(self) -> TransportKind:
        if self._options.transport != "auto":
            return self._options.transport
        on_one_host = str(self._spark.conf.get("spark.master")).startswith("local")
        return "ipc" if on_one_host else "curve"

    def _driver_host(self) -> str:
        return str(self._spark.conf.get("spark.driver.host"))

    def watch(self, execution: Execution) -> tuple[GenerationOutcome, dict[str, pa.Table]]:
        """Wait for the first sign that it is over, then end the rest of it."""
        coordinator, stage = execution.coordinator, execution.stage
        either: list[Future[Any]] = [coordinator.outcome, stage]
        wait(either, return_when=FIRST_COMPLETED)
        if not coordinator.outcome.done():  # The worker's own words say more than Spark's.
            wait((coordinator.outcome,), timeout=REASON_WAIT_MAX_S)
        if not coordinator.outcome.done():
            coordinator.fail(ErrorCode.WORKER_LOST, _why_lost(stage))
        outcome = coordinator.outcome.result()
        if outcome.kind in ("failed", "fenced"):
            coordinator.cancel(outcome.reason)
        wait((stage,), timeout=WORKERS_EXIT_MAX_S)
        if not stage.done():
            interrupt_stage(self._spark, execution.tag)
        coordinator.close(outcome.reason or "the job ended")
        collected = stage.result() if outcome.kind in ("finished", "stopped") else {}
        return outcome, collected


_TELLING = ("exited unexpectedly", "ExecutorLostFailure", "executor driver", "Caused by:")


def _why_lost(stage: "Future[dict[str, pa.Table]]") -> str:
    """The line of Spark's report that says most; the rest is in Spark's own log."""
    error = stage.exception()
    if error is None:
        return "the workers left before the job was over"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for sign in _TELLING for line in lines if sign in line]
    return f"a worker died: {(telling or lines or [type(error).__name__])[0][:300]}"
