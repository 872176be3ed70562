"""Decide what a claimed generation continues from, and whether it may.

``RecoveryManager.recover`` follows the order of PROTOCOL section 11. Its part before the first
write is ``examine``, which dry runs and drills use alone; a report contains the findings. A
mismatch is refused and never skipped in favour of an older checkpoint: a pipeline that does not fit
this one fits no older one, a source keeps older offsets no longer than newer ones, and decided
output is never rolled back without an explicit request (ADR-0021). Only damaged checkpoints are
skipped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from laminar_core.connectors.base import Committer
from laminar_core.driver.carrying import Carried
from laminar_core.driver.commits import fenced_by_its_target
from laminar_core.driver.discovery import Discovering
from laminar_core.driver.events import GenerationStarted
from laminar_core.driver.listening import IsolatedListener
from laminar_core.driver.options import JobOptions
from laminar_core.driver.publication import JobIdentity, LeftOut, committables_of
from laminar_core.driver.recovery.acceptance import Acceptance, unneeded
from laminar_core.driver.recovery.compared import (
    Compared,
    ExaminedOperators,
    operator_reports,
    took_part,
)
from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.evolution import evolution
from laminar_core.driver.recovery.fenced_starts import FencedStarts
from laminar_core.driver.recovery.importing import Importer
from laminar_core.driver.recovery.inserting import arranged
from laminar_core.driver.recovery.partial_reset import (
    PartReset,
    decided_before,
    part_to_reset,
    together,
    without_part,
)
from laminar_core.driver.recovery.renaming import Renamed, columns_of, renamed
from laminar_core.driver.recovery.report import (
    CheckpointReport,
    RecoveryReport,
    bad_row_rules,
    damaged_checkpoints,
    refusal,
    rows_to_replay,
    workers_before,
)
from laminar_core.driver.recovery.settling import OutputToSettle
from laminar_core.driver.recovery.sinks import (
    Going,
    SinkVerdict,
    judge,
    read_sink,
    visible_up_to,
)
from laminar_core.driver.recovery.source_changes import SourceChanges, source_changes
from laminar_core.driver.recovery.sources import ExaminedSources, examine_sources
from laminar_core.driver.recovery.state_reset import Reset, reset
from laminar_core.driver.recovery.stored_columns import compared_columns
from laminar_core.driver.recovery.trust import Trust
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    LaminarError,
)
from laminar_core.host.clock import Clock
from laminar_core.plan.plan import Plan
from laminar_core.protocol.recovery import Refuse, on_timeline
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId, Generation
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.state.splits import rows_total
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore, Choice
from laminar_core.store.staging import StagingArea

RESTARTED = "restarted after a failure"
"""The reason in the record of a generation that a failure restarted."""


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that is settled before the first worker runs."""

    identity: JobIdentity
    restored: CheckpointManifest | None
    """The checkpoint to continue from; None is a fresh start."""
    splits: dict[str, pa.Table]
    """Per source, all splits of all subtasks."""
    discovering: dict[str, Discovering]
    """Per source, its discovery and what it has found so far."""
    rows_total: int | None
    committers: Mapping[str, Committer]
    settle_output: Callable[[], None] | None
    """Makes visible exactly the output up to the restored checkpoint.

    Call it when every worker has verified what it restored, and before any of them begins. None:
    nothing is restored, so it is done already.
    """


@dataclass(frozen=True, slots=True)
class Examined:
    """A choice, and what was found when it was compared with the pipeline."""

    choice: Choice
    splits: dict[str, pa.Table]
    discovering: dict[str, Discovering]
    report: RecoveryReport
    left_out: LeftOut = field(default_factory=LeftOut)
    """Output that is not committed, because a person accepted that."""
    changes: SourceChanges | None = None
    """The sources that came and went; None on a fresh start."""
    manifest: CheckpointManifest | None = None
    """The checkpoint with the names and vertices of the pipeline; None on a fresh start."""
    fitted: CheckpointManifest | None = None
    """The part of it that the pipeline of today reads; None on a fresh start."""
    part: PartReset | None = None
    """The part that begins anew while the rest continues; None: nothing does."""

    @property
    def base_id(self) -> CheckpointId | None:
        """The checkpoint to continue from; None is a fresh start."""
        manifest = self.choice.manifest
        return None if manifest is None else manifest.checkpoint_id


class RecoveryManager:
    """Recovers one generation after the other; holds what is the same for all of them."""

    def __init__(
        self,
        plan: Plan,
        options: JobOptions,
        store: CheckpointStore,
        clock: Clock,
        listener: IsolatedListener,
        audit: AuditLog,
    ) -> None:
        self._plan = plan
        self._options = options
        self._store = store
        self._clock = clock
        self._notify = listener
        self._audit = audit
        self._committers: Mapping[str, Committer] = {
            node.operator_id: committer
            for node in plan.sinks()
            if (committer := node.sink.committer(self._staging(node.operator_id))) is not None
        }
        self._mended_id: CheckpointId | None = None
        """The checkpoint that this start continues from in spite of gaps; None: there are none."""
        self._has_recorded = False
        """Whether what the user asked for is the base of a generation."""
        self._importer = Importer(plan, options, store, clock, self._committers)
        self._trust = Trust(store, options.parallelism)
        self._fenced = FencedStarts()

    def _staging(self, operator_id: str) -> StagingArea:
        return StagingArea(self._store.objects, self._store.paths, operator_id)

    def look(self) -> Generation | None:
        """Refuse a savepoint that cannot be used, before anything is claimed; see ``Importer``.

        Returns the generation that it comes from.
        """
        return self._importer.look()

    def recover(self, generation: Generation, *, first: bool) -> Start:
        """Decide and record what the newly claimed ``generation`` continues from.

        ``first``: the user's request (a checkpoint, a time, a fresh start) applies to this
        generation. Source: PROTOCOL section 11.

        Raises:
            IncompatibleStateError: the checkpoint and the pipeline do not fit.
            CorruptCheckpointError: no checkpoint can be read, or decided output is lost.
            ConfigurationError: there is no such checkpoint; a source or sink cannot be used.
            FencedError: a newer generation is claimed.
            StorageUnavailable: the store, or a sink, did not answer; or retention was faster.
        """
        request = self._options.restore_request if first else RestoreRequest()
        for operator_id, committer in self._committers.items():
            with self._fenced.once(), fenced_by_its_target(self._store, operator_id, generation):
                committer.take_over(generation)
        # After the targets: a driver that slept until here has just fenced its successor, which
        # takes over again. In the other order the sleeper would commit.
        self._store.claims.check_owner(generation)
        # A savepoint, or a checkpoint that verifies, newest first.
        imported = self._importer.bring_in(generation, first=first)
        self._trust.begin(is_automatic=imported is None and not (first and self._is_asked_for()))
        while True:
            choice = imported or self._store.choose_checkpoint(request, self._trust.damage_of)
            try:
                examined = self._compare(choice, request, first=first)  # Operators, sources, sinks.
                # What a successor did is nothing to be refused for.
                self._store.claims.check_owner(generation)
                examined.report.raise_problem()
                carried = self._carried(examined)
                break
            except CorruptCheckpointError:
                manifest = choice.manifest
                if manifest is None or not self._trust.withdraw_from(manifest.checkpoint_id):
                    raise  # All of it was read, and the damage is elsewhere.
        self._write_down(generation, examined, first=first)
        if examined.fitted is None:
            self._settle_output(generation, examined)
        return self._started(generation, examined, carried)

    def exclude(self, checkpoint_id: CheckpointId) -> bool:
        """Read all of this checkpoint before it is restored again: a worker found it damaged.

        Return False if all of it was read before already, or a person asked for it.
        """
        return self._trust.withdraw_from(checkpoint_id)

    def _is_asked_for(self) -> bool:
        """Return whether a person decided what the first generation continues from, or without."""
        asked = self._options
        request = asked.restore_request != RestoreRequest()
        return bool(request or asked.accepted or asked.renames or asked.reset_state)

    def examine(self) -> Examined:
        """Find out what ``recover`` would do now; claims nothing and writes nothing.

        Raises:
            CorruptCheckpointError: a base cannot be read, so no timeline can be known.
            StorageUnavailable: the store, or a sink, did not answer.
        """
        request = self._options.restore_request
        return self._compare(self._store.choose_checkpoint(request), request, first=True)

    # --- compare --------------------------------------------------------------------------------

    def _compare(self, choice: Choice, request: RestoreRequest, *, first: bool) -> Examined:
        """Collect all problems, instead of the first one only."""
        left, part = None, None
        if first and self._options.reset_state:
            part = self._part_to_reset(choice)
        if first and self._options.reset_state and part is None:
            choice, left = reset(choice, self._plan, self._options.reset_state)
            request = replace(request, allow_fresh=True)
        part = together(part, self._decided_before(choice.manifest))
        named = self._named(choice.manifest, part)
        manifest = None if named is None else arranged(named.manifest, self._plan)
        if isinstance(choice.decision, Refuse):
            job, rejected = self._options.job, choice.decision.rejected
            problems = (refusal(job, request, choice.decision),)
            workers = self._options.parallelism
            report = RecoveryReport(job, workers, rejected=rejected, problems=problems)
            return Examined(choice, {}, {}, report)
        accepted = self._accepted(manifest, first=first)
        changes, sources = self._sources(manifest, accepted, part)
        compared = Compared(
            manifest,
            changes,
            self._operators(named, manifest, changes, accepted, part),
            sources,
            self._sinks(choice, request, accepted if first else (), part),
        )
        self._keep_accepting(manifest, compared.used_before_a_checkpoint)
        problems = [*compared.problems]
        is_new = first and not self._has_recorded  # What a restart repeats, may have helped before.
        if is_new and (needless := unneeded(accepted, compared.used)):
            problems.append(needless)
        report = self._report(choice, compared, left or part, problems)
        left_out = LeftOut({sink.report.operator_id: sink.left_out for sink in compared.sinks})
        return Examined(
            choice,
            sources.splits,
            sources.discovering,
            report,
            left_out,
            changes,
            manifest,
            compared.operators.fitted,
            part,
        )

    def _part_to_reset(self, choice: Choice) -> PartReset | None:
        """Return the part that begins anew; None if all does, or if there is nothing to reset."""
        asked, manifest = self._options, choice.manifest
        if manifest is not None:
            manifest = renamed(manifest, self._plan, asked.renames).manifest
        return part_to_reset(
            manifest, self._plan, asked.reset_state, asked.reset_from, asked.renames
        )

    def _decided_before(self, manifest: CheckpointManifest | None) -> PartReset | None:
        """Return what was reset after the checkpoint, by a start that came to no other one."""
        if manifest is None:
            return None
        decided = self._store.generations.resets_after(Generation(manifest.generation))
        return decided_before(manifest, self._plan, decided)

    def _report(
        self,
        choice: Choice,
        compared: Compared,
        left: Reset | PartReset | None,
        problems: Sequence[LaminarError],
    ) -> RecoveryReport:
        manifest, reports = compared.manifest, compared.sources.reports
        assert not isinstance(choice.decision, Refuse), "nothing was compared"
        checkpoint = None
        if manifest is not None:
            checkpoint = CheckpointReport.of(manifest, self._clock.now_ms())
        return RecoveryReport(
            job=self._options.job,
            workers=self._options.parallelism,
            checkpoint=checkpoint,
            rows_to_replay=rows_to_replay(
                self._last_progress(), tuple(took_part(reports, manifest))
            ),
            operators=compared.operators.reports,
            evolved=compared.operators.lines,
            sources=tuple(reports),
            sinks=tuple(sink.report for sink in compared.sinks),
            redriven_ids=tuple(m.checkpoint_id for m in choice.redrive),
            committed_beyond_ids=choice.decision.committed_beyond,
            rejected=choice.decision.rejected,
            reset=left,
            accepted=tuple(compared.accepted()),
            problems=tuple(problems),
        )

    def _named(self, manifest: CheckpointManifest | None, part: PartReset | None) -> Renamed | None:
        if manifest is None:
            return None
        named = renamed(manifest, self._plan, self._options.renames)
        if part is None:
            return named
        return replace(named, manifest=without_part(named.manifest, set(part.operators)))

    def _operators(
        self,
        named: Renamed | None,
        manifest: CheckpointManifest | None,
        changes: SourceChanges | None,
        accepted: Sequence[Acceptance],
        part: PartReset | None,
    ) -> ExaminedOperators:
        if named is None or manifest is None or changes is None:
            return ExaminedOperators()
        committed = self._recorded([manifest.checkpoint_id]).keys() - self._committers.keys()
        evolved = evolution(changes.fitted, self._plan, changes, accepted, committed)
        workers = self._options.parallelism
        found = list(mismatches(manifest, self._plan, workers, changes, evolved))
        told = {operator_id for mismatch in found for operator_id in mismatch.operator_ids}
        columns = compared_columns(
            evolved.fitted,
            self._plan,
            self._store,
            accepted,
            columns_of(self._options.renames),
            named.columns,
        )
        found += [mismatch for mismatch in columns.found if not mismatch.operator_ids & told]
        reset_ids = frozenset(() if part is None else part.operators)
        reports = operator_reports(
            manifest, self._plan, found, changes.carried, evolved.dropped, reset_ids
        )
        told_of = (line for line in evolved.lines if line.partition(":")[0] not in reset_ids)
        return ExaminedOperators(
            tuple(reports),
            (
                *(
                    ConfigurationError(ErrorCode.INVALID_OPTION, said)
                    for said in (*named.problems, *columns.renames_refused)
                ),
                *(mismatch.error for mismatch in found),
            ),
            evolved.fitted,
            (*named.lines, *told_of, *columns.lines),
            (*evolved.used, *columns.used),
            (*evolved.accepted, *columns.accepted),
        )

    def _accepted(
        self, manifest: CheckpointManifest | None, *, first: bool
    ) -> Sequence[Acceptance]:
        """Return what a person has accepted for this generation.

        A gap that was accepted is there again if the job fails before its next checkpoint: the same
        start goes on, so it stays accepted as long as the same checkpoint is restored.
        """
        goes_on = manifest is not None and manifest.checkpoint_id == self._mended_id
        return self._options.accepted if first or goes_on else ()

    def _keep_accepting(
        self, manifest: CheckpointManifest | None, used: Sequence[Acceptance]
    ) -> None:
        restored_id = None if manifest is None else manifest.checkpoint_id
        self._mended_id = restored_id if used else None

    def _sources(
        self,
        found: CheckpointManifest | None,
        accepted: Sequence[Acceptance],
        part: PartReset | None,
    ) -> tuple[SourceChanges | None, ExaminedSources]:
        """Look at every source; no changes on a fresh start."""
        changes = None if found is None else source_changes(found, self._plan, accepted)
        return changes, examine_sources(self._plan, self._store, found, accepted, changes, part)

    def _sinks(
        self,
        choice: Choice,
        request: RestoreRequest,
        accepted: Sequence[Acceptance],
        part: PartReset | None,
    ) -> list[SinkVerdict]:
        """Ask every sink, then decide."""
        manifest = choice.manifest
        assert not isinstance(choice.decision, Refuse), "a refused start asks no sink"
        recorded = self._recorded(choice.decision.committed_beyond)
        anew = frozenset(() if part is None else part.sinks)
        facts = [
            read_sink(operator_id, committer, choice.redrive, recorded.get(operator_id))
            for operator_id, committer in self._committers.items()
            if operator_id not in anew
        ]
        going = Going(
            self._options.job,
            NO_CHECKPOINT if manifest is None else visible_up_to(manifest),
            must_be_empty=manifest is None and not request.allow_fresh,
            left_before=frozenset(
                self._left_before([*(sink.visible_id for sink in facts), *recorded.values()])
            ),
        )
        verdicts = [judge(sink, going, accepted) for sink in facts]
        if part is None:
            return verdicts
        return verdicts + [self._begins_anew(sink, choice, part, accepted) for sink in part.sinks]

    def _begins_anew(
        self, sink: str, choice: Choice, part: PartReset, accepted: Sequence[Acceptance]
    ) -> SinkVerdict:
        """Decide for a sink of a part that begins anew: nothing of it is committed, all goes."""
        manifest = choice.manifest
        assert manifest is not None, "the rest continues"
        assert not isinstance(choice.decision, Refuse), "a refused start asks no sink"
        seen = self._recorded([manifest.checkpoint_id, *choice.decision.committed_beyond])
        facts = read_sink(sink, self._committers[sink], (), seen.get(sink))
        before = Generation(max(part.generations) if sink in part.decided else 0)
        known = self._written_before(before, [facts.visible_id, *seen.values()])
        going = Going(self._options.job, NO_CHECKPOINT, left_before=frozenset(known), is_reset=True)
        waiting = (c for m in choice.redrive for c in committables_of(m, sink))
        return replace(judge(facts, going, accepted), left_out=tuple(waiting))

    def _recorded(self, checkpoint_ids: Iterable[CheckpointId]) -> dict[str, CheckpointId]:
        """Return, per sink, the newest of these checkpoints that is recorded as committed there."""
        found: dict[str, CheckpointId] = {}
        for checkpoint_id in sorted(checkpoint_ids):
            try:
                record = self._store.attempts.read_commit(checkpoint_id)
            except CorruptCheckpointError:
                record = None
            # If the record cannot be read, it proves a commit, but not which sinks took part.
            sinks = self._committers if record is None else record.committables
            found.update(dict.fromkeys(sinks, checkpoint_id))
        return found

    def _left_before(self, visible: Iterable[CheckpointId | None]) -> Iterator[CheckpointId]:
        """Yield the checkpoints that are off the timeline: somebody accepted their repetition."""
        bases = self._store.generations.bases()
        for checkpoint_id, generation in self._writers(visible):
            if not on_timeline(checkpoint_id, generation, bases):
                yield checkpoint_id

    def _written_before(
        self, generation: Generation, visible: Iterable[CheckpointId | None]
    ) -> Iterator[CheckpointId]:
        """Yield the checkpoints of earlier generations than the one that decided a reset."""
        return (c for c, writer in self._writers(visible) if writer < generation)

    def _writers(
        self, visible: Iterable[CheckpointId | None]
    ) -> Iterator[tuple[CheckpointId, Generation]]:
        """Yield each checkpoint with the generation that wrote it, if that can be read."""
        for checkpoint_id in visible:
            if checkpoint_id is None:
                continue
            try:
                trigger = self._store.attempts.read_trigger(checkpoint_id)
            except CorruptCheckpointError:
                continue
            if trigger is not None:
                yield checkpoint_id, Generation(trigger.generation)

    def _last_progress(self) -> Mapping[str, object]:
        """Return the progress in the newest heartbeat; empty if none is readable."""
        newest = self._store.claims.newest()
        # A generation that is just recovering has no heartbeat yet.
        for generation in (newest, None if newest is None else Generation(newest - 1)):
            if (
                generation
                and (heartbeat := self._store.generations.read_heartbeat(generation)) is not None
            ):
                return heartbeat.progress
        return {}

    # --- restore --------------------------------------------------------------------------------

    def _write_down(self, generation: Generation, examined: Examined, *, first: bool) -> None:
        """From here on every later generation knows what this one continued from."""
        options, report = self._options, examined.report
        audited = self._audit.append(
            action="start-fresh" if examined.base_id is None else "restore",
            actor=options.actor if first else options.actor.because(RESTARTED),
            before={"rejected": [r.model_dump() for r in damaged_checkpoints(report)]},
            after={
                "generation": generation,
                "checkpoint_id": examined.base_id,
                "asked_for": options.restore_id if first else None,
                "before_ms": options.restore_before_ms if first else None,
                "allow_fresh": options.allow_fresh and first,
                "parallelism": options.parallelism,
                "savepoint": self._importer.uri,
                "reset": "; ".join(report.reset.lines()) if report.reset else None,
                **bad_row_rules(self._plan, options.skip_bad),
                **({"accepted": list(report.accepted)} if report.accepted else {}),
                **({"evolved": list(report.evolved)} if report.evolved else {}),
                **({} if examined.changes is None else examined.changes.facts()),
            },
        )
        base_id = examined.base_id
        if not self._importer.go_over(audited.reference()):
            part = examined.part if first else None
            self._store.generations.record_base(
                generation,
                base_id,
                reset=None if part is None else part.record(),
                audited=audited.reference(),
            )
        self._has_recorded = True

    def _settle_output(self, generation: Generation, examined: Examined) -> None:
        output = OutputToSettle(
            base_id=examined.base_id or NO_CHECKPOINT,
            redrive=examined.choice.redrive,
            left_out=examined.left_out,
            reset_sinks=() if examined.part is None else examined.part.sinks,
        )
        with self._fenced.once():
            output.settle(self._store, self._committers, generation)
        self._fenced.settled()

    def _settle_restored(self, generation: Generation, examined: Examined) -> None:
        self._store.claims.check_owner(generation)  # Workers may have restored for a long time.
        self._settle_output(generation, examined)

    def _carried(self, examined: Examined) -> Carried | None:
        """Read what goes into every checkpoint although the pipeline lacks it."""
        manifest, changes = examined.manifest, examined.changes
        if manifest is None or changes is None or not changes.carried:
            return None
        self._trust.require_carried(manifest, changes.carried)
        return Carried.read(self._store, manifest, changes.carried)

    def _started(
        self, generation: Generation, examined: Examined, carried: Carried | None
    ) -> Start:
        options = self._options
        totals = [rows_total(table) for table in examined.splits.values()]
        if not all(d.found.complete for d in examined.discovering.values()):
            totals.append(None)  # Nobody knows how much is still to be found.
        start = Start(
            identity=JobIdentity(options.job, generation, self._plan, options.parallelism, carried),
            restored=examined.fitted,
            splits=examined.splits,
            discovering=examined.discovering,
            rows_total=None if None in totals else sum(t for t in totals if t is not None),
            committers=self._committers,
            settle_output=(
                None
                if examined.fitted is None
                else partial(self._settle_restored, generation, examined)
            ),
        )
        self._notify(
            GenerationStarted(
                time_ms=self._clock.now_ms(),
                generation=generation,
                parallelism=options.parallelism,
                restored_checkpoint_id=examined.base_id,
                rejected=damaged_checkpoints(examined.report),
                rows_total=start.rows_total,
                reset=tuple(examined.report.reset.lines()) if examined.report.reset else (),
                restored_workers=workers_before(start.restored, options.parallelism),
            )
        )
        return start
