"""Report new records of a stream's store as Dagster events, each one once.

The cursor marks how much is reported; it only saves work. Dagster's records show what has been
reported, so a tick that is repeated, or that died half-way, repeats nothing.
"""

from dataclasses import dataclass, field

import dagster as dg

from laminar_core.resources.names import DRILL_TAG, asset_key, checkpoint_partitions, partition_of
from laminar_core.sensors.facts.attempts import NEVER_COMPLETED, Failed, Pending
from laminar_core.sensors.facts.stored_checkpoints import StoredCheckpoint
from laminar_core.sensors.observer.check_events import is_judged, says_the_same
from laminar_core.sensors.observer.checkpoint_metadata import DATA_VERSION_TAG
from laminar_core.sensors.observer.checkpoint_reports import Report, is_reported
from laminar_core.sensors.observer.health_reports import (
    FRESHNESS_CHECK,
    RUNNING_CHECK,
    FoundHealth,
    HealthWatch,
    has_failed,
    is_outdated,
    is_shown,
    state_observation,
)
from laminar_core.sensors.observer.job_observations import Happening
from laminar_core.sensors.observer.new_records import (
    DRILLS_MAX,
    FoundAttempt,
    FoundBeside,
    FoundMarks,
    NewRecords,
    ObserverCursor,
)
from laminar_core.sensors.observer.visible_output import FoundOutput, visible_sentence
from laminar_core.sensors.run_records import HANGS_MS, LEFT_TO_RUN_MS, newest_run

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


@dataclass(slots=True)
class Tick:
    """The output of a tick, filled step by step."""

    cursor: ObserverCursor
    events: list[Event] = field(default_factory=list[Event])
    partitions: list[str] = field(default_factory=list[str])
    """Partitions that must exist.

    They are added again, because an earlier tick may have died before it added them.
    """
    gone: list[str] = field(default_factory=list[str])
    """Partitions of checkpoints that are deleted."""
    said: list[str] = field(default_factory=list[str])

    def move(self, **numbers: int | str | tuple[int, ...] | HealthWatch) -> None:
        """Advance the cursor."""
        self.cursor = self.cursor.model_copy(update=numbers)


@dataclass(frozen=True, slots=True)
class Observer:
    """Reports on one stream to Dagster, in one tick."""

    instance: dg.DagsterInstance
    stream: str
    now_ms: int
    supervisor: str | None = None
    """The run that reports completed checkpoints itself."""

    def report(self, new: NewRecords) -> Tick:
        """Report what is new, and advance the cursor."""
        tick = Tick(new.cursor)
        self._attempts(tick, new)
        is_judging = self._is_judging(new.beside)
        self._marks(tick, new.marks, is_judging=is_judging)
        self._output(tick, new.output)
        self._beside(tick, new.beside, is_judging=is_judging)
        self._acts(tick, new)
        self._drills(tick, new)
        self._health(tick, new.health)
        return tick

    # --- checkpoints ----------------------------------------------------------------------------

    def _attempts(self, tick: Tick, new: NewRecords) -> None:
        if self.supervisor is not None:
            tick.said.append(f"run {self.supervisor} reports its checkpoints itself")
        completed: list[int] = []
        failed: list[Failed] = []
        is_settled = True
        for found in new.attempts:
            match found.attempt:
                case Pending():
                    is_settled = False
                case StoredCheckpoint() as stored:
                    tick.move(completed=max(found.checkpoint_id, tick.cursor.completed))
                    if self._is_left_to_run(stored) and not self._is_known(found):
                        is_settled = False
                    else:
                        tick.partitions.append(stored.partition)
                        completed += [found.checkpoint_id] if self._report(tick, found) else []
                case Failed() as attempt:
                    failed += [attempt] if self._report(tick, found) else []
                    if attempt.outcome in NEVER_COMPLETED:
                        tick.partitions.append(partition_of(found.checkpoint_id))
                case _:
                    pass
            if is_settled:
                newest = new.identity.newest_generation
                tick.move(attempt=found.checkpoint_id, attempted_by=newest)
        tick.said += _sentences(new, completed, failed)
        if new.attempts or new.listed:
            tick.move(new_ms=self.now_ms)
        if new.identity.has_started and not new.more:
            known = new.identity
            tick.move(generation=known.newest_generation, claim=known.newest_sha256)

    def _is_left_to_run(self, stored: StoredCheckpoint) -> bool:
        age_ms = self.now_ms - stored.manifest.completed_at_ms
        return self.supervisor is not None and age_ms < LEFT_TO_RUN_MS

    def _is_known(self, found: FoundAttempt) -> bool:
        return found.event is None or self._is_reported(found.event)

    def _report(self, tick: Tick, found: FoundAttempt) -> bool:
        """Whether it was new."""
        if found.event is None or self._is_reported(found.event):
            return False
        tick.events.append(found.event)
        return True

    def _is_judging(self, found: FoundBeside | None) -> bool:
        """Whether another checkpoint is judged than the last time."""
        if found is None or not found.verdicts:
            return False
        return not is_judged(self.instance, self.stream, found.checkpoint_id)

    def _marks(self, tick: Tick, found: FoundMarks | None, *, is_judging: bool) -> None:
        """Report marks before the other verdicts, because the last one marks all as reported."""
        if found is None:
            return
        tick.events += [event for event in found.events if not self._is_reported(event)]
        if is_judging or not says_the_same(self.instance, found.verdict):
            tick.events.append(found.verdict)
            if not found.verdict.passed:
                tick.said.append(f"{found.verdict.description}")
        tick.move(marks=found.checkpoint_ids, marks_ms=self.now_ms)

    def _output(self, tick: Tick, found: FoundOutput | None) -> None:
        if found is None:
            return
        new = [event for event in found.events if not self._is_reported(event)]
        tick.events += new
        tick.said += [sentence] if (sentence := visible_sentence(new)) else []
        if found.is_all:
            tick.move(output=found.checkpoint_id)

    def _beside(self, tick: Tick, found: FoundBeside | None, *, is_judging: bool) -> None:
        if found is None:
            return
        told = {each.asset_key for each in tick.events if isinstance(each, dg.AssetMaterialization)}
        tick.events += [
            event
            for event in found.events
            if event.asset_key not in told and not self._is_reported(event)
        ]
        if is_judging:
            tick.events += found.verdicts
            failed = [each.description for each in found.verdicts if not each.passed]
            tick.said += [f"checkpoint {found.checkpoint_id}: {problem}" for problem in failed]
        if found.is_all:
            tick.move(beside=found.checkpoint_id, beside_ms=self.now_ms)

    # --- the job --------------------------------------------------------------------------------

    def _health(self, tick: Tick, found: FoundHealth | None) -> None:
        """Report the state last, so that it is the newest observation of the deployment."""
        if found is None:
            return
        watch = found.watch
        for told in found.verdicts:
            if is_shown(self.instance, told):
                continue
            if told.check_name == RUNNING_CHECK:
                event = state_observation(told, watch)
                tick.events += [] if self._is_reported(event) else [event]
            tick.events.append(told)
            if not told.passed and told.severity is dg.AssetCheckSeverity.ERROR:
                tick.said.append(f"{told.check_name}: {told.description}")
        if not found.verdicts and is_outdated(self.instance, self.stream):
            watch = watch.model_copy(update={"state": "", "looked_ms": 0})
        fresh = found.fresh
        if fresh is not None and has_failed(self.instance, self.stream, FRESHNESS_CHECK):
            tick.events += [fresh] if fresh.passed else []
        tick.move(health=watch)

    def _acts(self, tick: Tick, new: NewRecords) -> None:
        reported: list[str] = []
        waits_for: str | None = None
        for act in new.acts:
            waits_for = next((run for each in act.happenings if (run := self._acting(each))), None)
            if waits_for is not None:
                break
            tick.move(audit=act.number)
            for each in act.happenings:
                if not self._is_shown(each):
                    tick.events.append(each.event)
                    reported.append(each.event.description or each.asset)
            tick.gone += [partition_of(checkpoint_id) for checkpoint_id in act.gone]
        if reported:
            more = f" and {len(reported) - 1} more" if len(reported) > 1 else ""
            tick.said.append(f"{reported[-1]}{more}")
        if waits_for is not None:
            tick.said.append(f"run {waits_for} is about to report what it did")

    def _acting(self, happening: Happening) -> str | None:
        """Return the unfinished run that did it, which may still fail before it has reported.

        Else None.
        """
        run = self._run_of(happening)
        hangs = self.now_ms - happening.at_ms > HANGS_MS
        return None if run is None or run.is_finished or hangs else run.run_id

    def _is_shown(self, happening: Happening) -> bool:
        run = self._run_of(happening)
        if run is not None and run.status == dg.DagsterRunStatus.SUCCESS:
            return True
        return self._is_reported(happening.event)

    def _run_of(self, happening: Happening) -> dg.DagsterRun | None:
        """Return the run that did it; None: no run, or one of another Dagster."""
        run_id = happening.reported_by
        return None if run_id is None else self.instance.get_run_by_id(run_id)

    def _is_reported(self, event: Report) -> bool:
        version = (event.tags or {})[DATA_VERSION_TAG]
        return is_reported(self.instance, event.asset_key, version)

    def _drills(self, tick: Tick, new: NewRecords) -> None:
        if not new.drills:
            return
        run = newest_run(self.instance, self.stream, "drill", self.now_ms)
        if run is not None and run.status == "in progress" and not run.hangs:
            tick.said.append(f"run {run.run_id} is a drill, and reports it itself")
            return
        shown = self._shown_drills()
        for drill in new.drills:
            tick.move(drill=drill.number)
            event = drill.event
            if (
                event is not None
                and str(drill.number) not in shown
                and not self._is_reported(event)
            ):
                tick.events.append(event)
                tick.said.append(f"{event.description}")

    def _shown_drills(self) -> set[str]:
        """Drills that the newest runs of this Dagster have shown."""
        key = asset_key(self.stream, "drill")
        records = self.instance.fetch_materializations(key, limit=2 * DRILLS_MAX).records
        shown = (record.asset_materialization for record in records)
        return {(each.tags or {}).get(DRILL_TAG, "") for each in shown if each is not None}


def _sentences(new: NewRecords, completed: list[int], failed: list[Failed]) -> list[str]:
    said: list[str] = []
    if new.problem is not None:
        said.append(f"which checkpoints count is unknown: {new.problem}")
    if completed:
        rest = ", more to come" if new.more else ""
        said.append(f"reported checkpoints {completed[0]} to {completed[-1]}{rest}")
    if failed:
        last = failed[-1]
        of_last = f"{last.checkpoint_id} {last.outcome}: {last.reason}"
        said.append(f"{len(failed)} other attempts, the last: {of_last}")
    return said


def partition_requests(
    instance: dg.DagsterInstance, stream: str, tick: Tick
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Return requests for partitions to add, and for existing ones to delete."""
    partitions = checkpoint_partitions(stream)
    assert partitions.name is not None
    gone = set(tick.gone)
    added = [key for key in tick.partitions if key not in gone]
    found: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    if added:
        found.append(partitions.build_add_request(added))
    there = [key for key in sorted(gone) if instance.has_dynamic_partition(partitions.name, key)]
    if there:
        found.append(partitions.build_delete_request(there))
    return found
