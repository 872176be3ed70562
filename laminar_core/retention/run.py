"""Run retention: carry out the decisions of ``retention.decision`` so that any step may crash.

A run of retention goes through these steps; a later run continues where it stopped:

1. plans that are decided and have no result are carried out to their end first;
2. everything is read and classified: the plan;
3. the plan is written down, tombstones take the place of manifests that could still be created
   (they would not count), and everything is read again: if the plan is no longer valid, it is
   abandoned, and the difference is reported;
4. the plan is decided (``retention_log``). Before that nothing has been deleted, and after it the
   plan is carried out, by this run or by any later one. One audit record names it by its digest;
5. a marker is created beside every checkpoint to delete; then, for one after the other, oldest
   first, the files and at last the manifest are deleted; then files that no manifest names, and
   the traces of earlier deletions; at last the result is written.

Every step can be repeated, and two runs at once do not disturb each other: the names that they
delete are never used again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
)
from laminar_core.objectstore.opening import address
from laminar_core.objectstore.reserve import BackedStore, keep_reserve
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.actor import Actor
from laminar_core.records.record import JsonObject
from laminar_core.records.retention import (
    PlannedCheckpoint,
    PlannedFile,
    RetentionPlanRecord,
    RetentionResult,
    Tombstone,
)
from laminar_core.records.retention_paths import RetentionPaths
from laminar_core.retention.apply import Application, Progress
from laminar_core.retention.decision import plan_retention
from laminar_core.retention.facts import (
    Completed,
    FileVerdict,
    RetentionFacts,
    RetentionPlan,
    RetentionPolicy,
)
from laminar_core.retention.reading import READERS, Depth, Verify, read_facts
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import create_or_confirm
from laminar_core.store.retention_log import RetentionLog

_DIFFERENCES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what it was made of."""

    facts: RetentionFacts
    plan: RetentionPlan


class Retention:
    """Retention of one job under one policy."""

    def __init__(
        self,
        store: CheckpointStore,
        policy: RetentionPolicy,
        now_ms: Callable[[], int],
        *,
        verify: Verify = "sizes",
        audit: AuditLog | None = None,
        readers: int = READERS,
    ) -> None:
        """Prepare runs.

        ``now_ms`` is a wall clock, ``readers`` the number of concurrent requests.
        """
        paths = RetentionPaths(store.paths)
        backed = BackedStore(store.objects, paths)
        self._keep_reserve = partial(keep_reserve, store.objects, paths)
        self._store = store = CheckpointStore(backed, store.job)
        self._policy = policy
        self._now_ms = now_ms
        self._audit = None if audit is None else audit.through(backed)
        self._readers = readers
        self._depth = Depth(
            verify=verify,
            remembers=policy.history_keep is not None or policy.history_max_age_ms is not None,
            dates=policy.history_max_age_ms is not None,
            announced=policy.only_announced,
            readers=readers,
        )
        self.log = RetentionLog(store.objects, store.paths)

    def plan(self, *, indexed: bool = False) -> Planned:
        """Classify everything; change nothing.

        ``indexed``: the plan is only shown, and may rely on the index of checkpoints. Otherwise
        every manifest is read. The index is not used if all bytes are to be verified.

        Raises:
            CorruptCheckpointError: the base of a generation cannot be read.
            StorageUnavailable: the store did not answer.
        """
        depth = replace(self._depth, indexed=indexed and self._depth.verify != "bytes")
        facts = read_facts(self._store, self._now_ms(), depth)
        return Planned(facts, plan_retention(facts, self._policy))

    def apply(
        self,
        planned: Planned,
        actor: Actor,
        policy: JsonObject,
        progress: Progress | None = None,
    ) -> RetentionResult | None:
        """Carry the plan out; return None if it was empty.

        ``policy`` is the policy as ``actor`` wrote it, for the plan's record.

        Raises:
            ConfigurationError: the plan is no longer valid, and was abandoned; plan again.
            CorruptCheckpointError: a record of retention is not what was written.
            StorageUnavailable: the store did not answer; the next run continues.
        """
        if planned.plan.is_empty:
            return None
        record = self._write_down(planned, actor, policy)
        for checkpoint_id in record.abandoned:
            self._entomb(checkpoint_id, record.number)
        self._check_that_it_holds(planned, record)
        said = self.log.decide(record.number, "apply", record.actor, record.reason, _ids_of(record))
        if said.verdict != "apply" or self.log.read_plan(record.number) is None:
            raise _stale(record.number, [f"{said.by} gave it up: {said.reason}"])
        self._write_into_audit_log(record, record.reason, actor.run_id)
        result = Application(self._store, record, self._readers, self._now_ms, progress).run()
        self.log.forget_old()
        self._keep_reserve()
        return result

    def finish_earlier(
        self, progress: Progress | None = None, *, run_id: str | None = None
    ) -> list[RetentionResult]:
        """Carry out the decided plans of earlier runs, and abandon the undecided ones.

        ``run_id``: the orchestrator's run that does it now, if any.

        Raises:
            CorruptCheckpointError: a record of retention is not what was written.
            StorageUnavailable: the store did not answer; the next run continues.
        """
        self.log.abandon_undecided("retention", "another run of retention has begun")
        results: list[RetentionResult] = []
        for number in list(self.log.unfinished()):
            record = self.log.read_plan(number)
            if record is None:
                continue  # Another run finished it, and it is forgotten.
            self._check_decision(number)
            self._write_into_audit_log(record, "an earlier run was interrupted", run_id)
            result = Application(self._store, record, self._readers, self._now_ms, progress).run()
            results.append(result)
        return results

    def _check_decision(self, number: int) -> None:
        try:
            self.log.decide(number, "abandon", "retention", "to read what was decided")
        except CorruptCheckpointError as error:
            plan = address(self._store.objects, self.log.paths.plan(number))
            raise CorruptCheckpointError(
                error.code, f"{error}; put it back, or delete {plan} to give the plan up"
            ) from error

    def _write_down(
        self, planned: Planned, actor: Actor, policy: JsonObject
    ) -> RetentionPlanRecord:
        for number in count(max(self.log.steps(), default=0) + 1):
            record = _as_record(self._store.job, number, planned, actor, policy)
            if self.log.create_plan(record):
                return record
        raise AssertionError("numbers do not end")

    def _entomb(self, checkpoint_id: CheckpointId, number: int) -> None:
        """Take the place of a manifest; one that is there already is seen by the second look."""
        key = self._store.paths.manifest(checkpoint_id)
        stone = Tombstone(checkpoint_id=checkpoint_id, plan=number)
        create_or_confirm(self._store.objects, key, stone.to_bytes())

    def _check_that_it_holds(self, planned: Planned, record: RetentionPlanRecord) -> None:
        """Read everything once more: a claim or a pin that came meanwhile is seen here."""
        known = {
            c.checkpoint_id: c.damage
            for c in planned.facts.checkpoints
            if isinstance(c, Completed) and c.damage is not None
        }
        depth = replace(self._depth, verify="sizes", damage=known)
        facts = read_facts(self._store, planned.facts.now_ms, depth)
        changes = list(differences(planned.plan, plan_retention(facts, self._policy)))
        if changes:
            self.log.decide(record.number, "abandon", record.actor, changes[0])
            raise _stale(record.number, changes)

    def _write_into_audit_log(
        self, record: RetentionPlanRecord, reason: str, run_id: str | None
    ) -> None:
        """Append one audit record for all deletions, durable before the first of them.

        It follows the decision, which is final: files not deleted now are deleted by the next run.
        So no second record about the outcome is needed.
        """
        if self._audit is None:
            return
        entry = self._audit.entry(
            action="retention-apply",
            actor=Actor(record.actor, record.actor_kind, reason, run_id),
            before={"plan": record.number, "policy": record.policy},
            after={
                "checkpoints": list(_ids_of(record)),
                "files": sum(len(c.files) for c in record.checkpoints) + len(record.orphans),
                "bytes": record.deleted_bytes,
                "list": self._store.paths.relative(self.log.paths.plan(record.number)),
                "list_sha256": self.log.digest_of_plan(record.number),
            },
        )
        self._audit.write_once(entry.model_copy(update={"outcome": "done"}))


def differences(old: RetentionPlan, new: RetentionPlan) -> Iterator[str]:
    """Yield why ``old`` must not be carried out any more.

    It is no reason that ``new`` deletes more.
    """
    if new.blocked is not None:
        yield new.blocked
        return
    if new.generation != old.generation:
        yield f"generation {new.generation} owns the job now"
        return
    verdicts = {v.checkpoint_id: v for v in new.checkpoints}
    for checkpoint_id in old.deleted_ids:
        now = verdicts.get(checkpoint_id)
        if now is None:
            yield f"checkpoint {checkpoint_id} is gone"
        elif now.action != "delete":
            yield f"checkpoint {checkpoint_id} stays now: {', '.join(now.reasons)}"
    for checkpoint_id in old.abandoned:
        if checkpoint_id in verdicts:
            yield f"checkpoint {checkpoint_id} was completed after all"
    files = {v.path: v for v in new.files}
    for file in old.deleted_files:
        now_file = files.get(file.path)
        if now_file is not None and now_file.action != "delete":
            yield f"{file.path} stays now: {now_file.reason}"
    for checkpoint_id in sorted(set(old.forgotten) - set(new.forgotten)):
        yield f"checkpoint {checkpoint_id} is to be remembered now"


def _stale(number: int, changes: Sequence[str]) -> ConfigurationError:
    shown = "; ".join(changes[:_DIFFERENCES_SHOWN])
    more = len(changes) - _DIFFERENCES_SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    return ConfigurationError(
        ErrorCode.RETENTION_PLAN_STALE,
        f"retention plan {number} is no longer valid, and nothing was deleted "
        f"({shown}{rest}): plan again",
    )


def _ids_of(record: RetentionPlanRecord) -> tuple[CheckpointId, ...]:
    return tuple(c.checkpoint_id for c in record.checkpoints)


def _as_record(
    job: str, number: int, planned: Planned, actor: Actor, policy: JsonObject
) -> RetentionPlanRecord:
    plan = planned.plan
    assert plan.generation is not None, "without a generation everything is blocked"
    verdicts = {v.checkpoint_id: v for v in plan.checkpoints}
    gone = set(plan.deleted_ids)
    files: dict[CheckpointId, list[FileVerdict]] = {c: [] for c in plan.deleted_ids}
    for file in plan.deleted_files:
        if file.checkpoint_id is not None and file.checkpoint_id in gone:
            files[file.checkpoint_id].append(file)
    return RetentionPlanRecord(
        number=number,
        job=job,
        generation=plan.generation,
        actor=actor.name,
        actor_kind=actor.kind,
        reason=actor.reason,
        planned_at_ms=planned.facts.now_ms,
        policy=policy,
        checkpoints=tuple(
            PlannedCheckpoint(
                checkpoint_id=checkpoint_id,
                reasons=verdicts[checkpoint_id].reasons,
                files=tuple(file.path for file in named),
                size_bytes=sum(file.size_bytes for file in named),
            )
            for checkpoint_id, named in files.items()
        ),
        orphans=tuple(_planned_file(f) for f in plan.deleted_files if f.checkpoint_id not in gone),
        abandoned=plan.abandoned,
        quarantine=tuple(_planned_file(file) for file in plan.quarantined_files),
        released=plan.released,
        forgotten=plan.forgotten,
    )


def _planned_file(file: FileVerdict) -> PlannedFile:
    return PlannedFile(
        path=file.path,
        reason=file.reason,
        size_bytes=file.size_bytes,
        checkpoint_id=file.checkpoint_id,
    )
