"""What a generation starts from: chosen, written down, and its output settled.

The order is PROTOCOL section 11: the claim has fenced every earlier generation; choose and verify
what to continue from; compare it with the pipeline; write the choice down; make decided output
visible and take back what will be produced again. Then ``execution`` starts the workers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from laminar_core.checkpoint.recovery import Refuse, RestoreFrom, StartFresh
from laminar_core.checkpoint.recovery_facts import Wish
from laminar_core.checkpoint.types import CheckpointId, Generation
from laminar_core.connectors.base import Committer
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.runtime.clock import Clock
from laminar_core.runtime.commits import commit_output
from laminar_core.runtime.compatibility import check_compatible
from laminar_core.runtime.events import GenerationStarted, JobListener, RejectedCheckpoint
from laminar_core.runtime.options import JobOptions
from laminar_core.runtime.pacing import rows_in_all
from laminar_core.runtime.plan import Plan
from laminar_core.runtime.publication import JobIdentity
from laminar_core.state.manifest import CheckpointManifest
from laminar_core.storage.audit import AuditLog
from laminar_core.storage.checkpoint_store import CheckpointStore, Choice

RESTARTED = "restarted after a failure"
"""The reason for a generation that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that is settled before the first worker runs."""

    identity: JobIdentity
    restored: CheckpointManifest | None
    """What to continue from; None is a fresh start."""
    splits: dict[str, pa.Table]
    """Per source, all splits of all subtasks."""
    rows_total: int | None
    committers: Mapping[str, Committer]


class Preparation:
    """Prepares one generation after the other; holds what is the same for all of them."""

    def __init__(
        self,
        plan: Plan,
        options: JobOptions,
        store: CheckpointStore,
        clock: Clock,
        listener: JobListener,
        audit: AuditLog,
    ) -> None:
        self._plan = plan
        self._options = options
        self._store = store
        self._clock = clock
        self._tell = listener
        self._audit = audit
        self._committers: Mapping[str, Committer] = {
            node.operator_id: committer
            for node in plan.sinks()
            if (committer := node.sink.committer()) is not None
        }

    def prepare(self, generation: Generation, *, first: bool) -> Start:
        """Choose what to continue from, and settle the output.

        ``first``: what the user asked for (a checkpoint, to start fresh) binds this generation.

        Raises:
            IncompatibleStateError: no checkpoint can be restored, or it does not fit.
            ConfigurationError: a source or sink cannot be used.
            FencedError: a newer generation is claimed.
            StorageUnavailable: the store, or a sink, did not answer.
        """
        options = self._options
        allow_fresh = options.allow_fresh and first
        wish = Wish(options.restore_id if first else None, allow_fresh=allow_fresh)
        choice = self._store.choose_checkpoint(wish)
        restored, rejected = self._restored(choice)
        splits = self._splits(restored)
        base_id = None if restored is None else CheckpointId(restored.checkpoint_id)
        if restored is None and not allow_fresh:
            self._refuse_foreign_output(generation)
        self._announce(generation, base_id, rejected, first=first)
        self._store.record_base(generation, base_id)
        self._settle_output(generation, choice, base_id or CheckpointId(0))
        totals = [rows_in_all(table) for table in splits.values()]
        start = Start(
            identity=JobIdentity(options.job, generation, self._plan, options.parallelism),
            restored=restored,
            splits=splits,
            rows_total=None if None in totals else sum(t for t in totals if t is not None),
            committers=self._committers,
        )
        self._tell(
            GenerationStarted(
                time_ms=self._clock.now_ms(),
                generation=generation,
                parallelism=options.parallelism,
                restored_checkpoint_id=base_id,
                rejected=rejected,
                rows_total=start.rows_total,
            )
        )
        return start

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

    def _announce(
        self,
        generation: Generation,
        base_id: CheckpointId | None,
        rejected: Iterable[RejectedCheckpoint],
        *,
        first: bool,
    ) -> None:
        """Let the audit log say what is continued from before anything is."""
        options = self._options
        self._audit.append(
            action="start-fresh" if base_id is None else "restore",
            actor=options.actor,
            reason=options.reason if first else RESTARTED,
            before={"rejected": [checkpoint.model_dump() for checkpoint in rejected]},
            after={
                "generation": generation,
                "checkpoint_id": base_id,
                "asked_for": options.restore_id if first else None,
                "allow_fresh": options.allow_fresh and first,
                "parallelism": options.parallelism,
            },
        )

    def _splits(self, restored: CheckpointManifest | None) -> dict[str, pa.Table]:
        """Per source all its splits: discovered on a fresh start, else pinned in the checkpoint."""
        splits: dict[str, pa.Table] = {}
        for node in self._plan.sources():
            if restored is None:
                splits[node.operator_id] = node.source.discover()
                continue
            parts = [
                self._store.read_state(segment)
                for entry in restored.subtasks
                if entry.operator_id == node.operator_id
                for segment in entry.segments
            ]
            pinned = pa.concat_tables(parts) if parts else node.source.discover().slice(0, 0)
            node.source.check(pinned)
            splits[node.operator_id] = pinned
        return splits

    def _refuse_foreign_output(self, generation: Generation) -> None:
        """A job without a past must not mix its output with that of another one."""
        for operator_id, committer in self._committers.items():
            if (visible := committer.last_committed()) is not None:
                self._store.check_owner(generation)  # Else it may be that of its successor.
                raise ConfigurationError(
                    ErrorCode.INVALID_OPTION,
                    f"sink {operator_id} already shows output of another run (up to checkpoint "
                    f"{visible}), and job {self._options.job} starts from nothing: write to "
                    "another place, or empty this one",
                )

    def _settle_output(self, generation: Generation, choice: Choice, base_id: CheckpointId) -> None:
        """Make visible exactly the output up to the restored checkpoint (PROTOCOL section 7)."""
        for manifest in choice.redrive:
            commit_output(self._store, self._committers, manifest, generation)
        for committer in self._committers.values():
            visible = committer.last_committed()
            if visible is not None and visible > base_id:
                # A generation that slept until here must not withdraw its successor's output.
                self._store.check_owner(generation)
                committer.withdraw_after(base_id, generation)
            committer.discard_uncommitted(generation)
