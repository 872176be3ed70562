"""The job that starts a stream from a savepoint: of another environment, or of its own past.

Before anything is stopped or started, it reports the savepoint and the effect of a start, reads
every byte, and compares it with the pipeline. ``laminar run --from-savepoint`` then does the start.
"""

# A form is a Dagster ``Config``: a field of that type is unknown to a type checker.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from dataclasses import dataclass

import dagster as dg
from pydantic import Field

from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.host.clock import SystemClock
from laminar_core.objectstore.opening import open_object_store
from laminar_core.orchestration.acts import in_one_line
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.launching.dry_run import dry_run
from laminar_core.orchestration.launching.launch import Drivers, StartedDriver, start_driver
from laminar_core.orchestration.launching.move_job import Move, move_job
from laminar_core.orchestration.launching.restore_forms import RestartForm
from laminar_core.orchestration.launching.running_driver import (
    Refuse,
    decide_settlement,
    last_driver,
    nobody_left,
    settle,
)
from laminar_core.orchestration.launching.standby import without_standby
from laminar_core.orchestration.launching.supervised_run import Context
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import Generation
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.job_control import JobControl
from laminar_core.resources.names import GROUP, asset_key
from laminar_core.resources.run_actor import actor_of_run, child_environment
from laminar_core.resources.values import Place
from laminar_core.sensors.observer.savepoint_reports import savepoint_metadata
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.savepoint_import import floor_of, is_of_this_job, uses_of_savepoints
from laminar_core.store.savepoints import FoundSavepoint, read_savepoint

_DESCRIPTION = (
    "Start the stream from a savepoint, for example of another environment; a dry run reads it "
    "whole and reports the effect of a start."
)


class ImportForm(RestartForm):
    """The savepoint to start from."""

    savepoint: Place = Field(
        description="Its place: a directory or s3://bucket/prefix that Dagster and the driver can "
        "reach."
    )
    claim: bool = Field(
        default=False,
        description="Delete the savepoint once a checkpoint builds on it; else it is only read.",
    )
    dry_run: bool = Field(
        default=False, description="Only read it whole and report the effect of a start."
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A savepoint, and what a start from it does to the job."""

    found: FoundSavepoint
    effect: str


def judge_savepoint(store: CheckpointStore, uri: str) -> Judged:
    """Read what is known of a savepoint, and whether the job may go over to it; changes nothing.

    Raises:
        ConfigurationError: there is none.
        IncompatibleStateError: going over to it would lose or repeat output; or the job has gone
            over to it before, and the command line would go on from where the job is by now.
        CorruptCheckpointError: its record is damaged.
        StorageUnavailable: one of the stores does not answer.
    """
    found = read_savepoint(open_object_store(uri))
    origin = found.record.origin
    what = f"checkpoint {origin.checkpoint_id} of job {origin.job} in {origin.store}"
    if is_of_this_job(store, origin):
        floor_of(store, found)
        effect = f"job {store.job} goes back to {what}: later output is withdrawn"
        return Judged(found, effect)
    if any(use.sha256 == found.sha256 for use in uses_of_savepoints(store)):
        raise IncompatibleStateError(
            ErrorCode.NO_RESTORABLE_CHECKPOINT,
            f"job {store.job} has already started from the savepoint {found.objects.uri}: "
            "start it from its newest checkpoint",
        )
    floor_of(store, found)
    return Judged(found, f"job {store.job} begins with the state of {what}")


def build_import_job(group: Group) -> dg.JobDefinition:
    """Make ``laminar_import_savepoint``."""
    return move_job(group, "import_savepoint", ImportForm, _import, _DESCRIPTION)


def _import(move: Move[ImportForm]) -> None:
    importing = Importing(
        move.context, move.spec, move.checkpoints, move.drivers, move.form, move.group
    )
    judged = importing.judge()
    importing.show(judged)
    if move.form.dry_run:
        importing.read_whole()
    else:
        importing.log_start(judged, importing.start())


@dataclass(frozen=True, slots=True)
class Importing:
    """One run of the job."""

    context: Context
    spec: StreamSpec
    checkpoints: CheckpointStoreResource
    drivers: Drivers
    form: ImportForm
    group: str = GROUP

    def judge(self) -> Judged:
        """Judge whether the job may start from the savepoint.

        Raises:
            dagster.Failure: it may not, or there is none.
        """
        with in_one_line():
            return judge_savepoint(self.checkpoints.open(self.spec.name), self.form.savepoint)

    def show(self, judged: Judged) -> None:
        """Report the savepoint before anything is stopped or started."""
        facts = savepoint_metadata(judged.found)
        log = self.context.log.info
        log("%s; %s bytes, %s rows", judged.effect, facts["size_bytes"], facts["state_rows"])
        for row in facts["operators"].records:
            log(
                "operator %(operator)s: %(rows)s rows in %(size_bytes)s bytes, "
                "%(subtasks)s subtasks",
                row.data,
            )
        outcome = "dry run: nothing was started" if self.form.dry_run else "started"
        self.context.add_output_metadata({**facts, "effect": judged.effect, "outcome": outcome})

    def read_whole(self) -> None:
        """Let the program read every byte, and compare it with pipeline and output.

        Raises:
            dagster.Failure: it does not fit, or is damaged.
        """
        environment = child_environment(actor_of_run(self.context.run))
        words = ["--from-savepoint", self.form.savepoint]
        dry_run(self.spec, self.checkpoints.uri, environment, words).require_start()
        self.context.log.info("every byte was read, and it fits the pipeline")

    def start(self) -> StartedDriver:
        """Find the running driver, verify the savepoint, end that driver, start another one.

        Raises:
            dagster.Failure: it was not started.
        """
        form, clock, log = self.form, SystemClock(), self.context.log.info
        with in_one_line():
            store = self.checkpoints.open(self.spec.name)
            last = last_driver(store, clock)
            expected = form.expected_generation
            expected = last.generation if expected is None else expected
            store.claims.check_expected(Generation(expected))
            settlement = decide_settlement(last, form.running_driver)
            if isinstance(settlement, Refuse):
                settle(store, settlement, self._control(store), form.reason)
        self.read_whole()  # Before anybody is stopped for it.
        alone = without_standby(settlement, self.drivers.detached, store, clock, self.context.log)
        with in_one_line(), alone:
            settled = settle(store, settlement, self._control(store), form.reason)
        log(settled.what)
        words = ["--from-savepoint", form.savepoint, *(["--claim"] if form.claim else [])]
        with nobody_left(settlement, self.group):
            return start_driver(
                self.context,
                self.spec,
                self.checkpoints,
                self.drivers,
                first=[*settled.words, *words],
                expected_generation=expected,
                reason=form.reason,
            )

    def log_start(self, judged: Judged, started: StartedDriver) -> None:
        """Show on the stream's assets what was done."""
        log_event, stream = self.context.log_event, self.spec.name
        log_event(
            dg.AssetMaterialization(
                asset_key(stream, "deployment"),
                metadata={**started.metadata(), "effect": judged.effect},
                tags={"dagster/data_version": str(started.generation)},
            )
        )
        log_event(
            dg.AssetObservation(
                asset_key(stream, "savepoint"),
                metadata={
                    "what": f"{judged.effect}, as generation {started.generation}",
                    "savepoint": dg.PathMetadataValue(judged.found.objects.uri),
                    "generation": started.generation,
                },
                tags={"dagster/data_version": judged.found.sha256},
            )
        )

    def _control(self, store: CheckpointStore) -> JobControl:
        actor, log = actor_of_run(self.context.run), self.context.log.info
        return JobControl(store, actor, SystemClock(), progress=log)
