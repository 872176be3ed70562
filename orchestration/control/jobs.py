"""Jobs that act on a stream: each has the effect of a command line, and waits for the result.

The form of each job is in ``laminar_core.orchestration.control.forms``.
"""

# A form is a Dagster ``Config``: a field of that type is unknown to a type checker.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import dagster as dg

from laminar_core.host.clock import SystemClock
from laminar_core.orchestration.acts import (
    ActForm,
    act_job,
    begin_act,
    form_schema,
    in_one_line,
)
from laminar_core.orchestration.control.command_choices import (
    Cancel,
    LastSavepoint,
    mode_text,
)
from laminar_core.orchestration.control.forms import (
    CommandForm,
    ExportForm,
    ModeForm,
    PauseForm,
    PinForm,
    SavepointForm,
    StopForm,
    UnpinForm,
)
from laminar_core.orchestration.group import Group
from laminar_core.records.actor import Actor
from laminar_core.records.commands import ControlResult
from laminar_core.records.limits import TIME_MS_MAX
from laminar_core.resources.checkpoints import CheckpointStoreResource
from laminar_core.resources.job_control import TIMEOUT_MS, Done, JobControl
from laminar_core.resources.names import (
    StreamJob,
    asset_key,
    checkpoint_key,
    partition_of,
)
from laminar_core.resources.run_actor import actor_of_run
from laminar_core.sensors.observer.savepoint_reports import savepoint_materialization
from laminar_core.sensors.pauses import Pause, record_pause
from laminar_core.units import duration_ms

F = TypeVar("F", bound=ActForm)


@dataclass(frozen=True, slots=True)
class Acting:
    """One run that acts on a stream."""

    context: dg.OpExecutionContext
    stream: str
    control: JobControl
    actor: Actor

    def observe_deployment(self, what: str, **facts: object) -> None:
        """Show on the stream's deployment what was done to it."""
        self._observe(asset_key(self.stream, "deployment"), None, what, facts)

    def observe_checkpoint(self, checkpoint_id: int, what: str, **facts: object) -> None:
        """Show on a checkpoint what was done to it."""
        self._observe(checkpoint_key(self.stream), partition_of(checkpoint_id), what, facts)

    def materialize_savepoint(self, uri: str) -> None:
        """Report a new savepoint as a materialisation."""
        made = savepoint_materialization(self.stream, uri)
        self.context.log_event(made)
        self.context.add_output_metadata(made.metadata)

    def log(self, what: str) -> None:
        """Show the result on the run's page and in its log."""
        self.context.log.info(what)
        self.show(what)

    def show(self, what: str, **facts: object) -> None:
        """Show on the run's page what came out."""
        known = {name: fact for name, fact in facts.items() if fact is not None}
        self.context.add_output_metadata({"what": what, **known})

    def _observe(
        self, key: dg.AssetKey, partition: str | None, what: str, facts: dict[str, object]
    ) -> None:
        known: dict[str, Any] = {name: fact for name, fact in facts.items() if fact is not None}
        by: dict[str, Any] = {"what": what, "actor": self.actor.name}
        event = dg.AssetObservation(key, partition=partition, metadata={**by, **known})
        self.context.log_event(event)


@dataclass(frozen=True, slots=True)
class Act(Generic[F]):
    """One job: what its form asks, and what it does."""

    name: StreamJob
    form: type[F]
    carry_out: Callable[[Acting, F], None]
    description: str

    def job(self, group: Group) -> dg.JobDefinition:
        """Return the job for the streams of a group."""

        @dg.op(
            name=group.job_name(self.name),
            config_schema=form_schema(self.form, group),
            description=self.description,
        )
        def op(
            context: dg.OpExecutionContext, laminar_checkpoints: CheckpointStoreResource
        ) -> None:
            self._run(context, group, laminar_checkpoints)

        return act_job(group, self.name, op, self.description)

    def _run(
        self, context: dg.OpExecutionContext, group: Group, checkpoints: CheckpointStoreResource
    ) -> None:
        spec, form = begin_act(context, group, self.name, self.form)
        stream, actor = spec.name, actor_of_run(context.run)
        with in_one_line():
            control = JobControl(
                checkpoints.open(stream),
                actor,
                SystemClock(),
                timeout_ms=_timeout_ms(form),
                progress=context.log.info,
            )
            self.carry_out(Acting(context, stream, control, actor), form)


def _timeout_ms(form: ActForm) -> int:
    return form.timeout_ms if isinstance(form, CommandForm) else TIMEOUT_MS


def control_definitions(group: Group) -> dg.Definitions:
    """Return the jobs with which users, schedules and sensors act on a stream."""
    return dg.Definitions(jobs=[*control_jobs(group).values()])


def control_jobs(group: Group) -> dict[StreamJob, dg.JobDefinition]:
    """Return these jobs by name."""
    return {act.name: act.job(group) for act in ACTS}


# --- what each does -----------------------------------------------------------------------------


def _checkpoint(acting: Acting, form: CommandForm) -> None:
    _log_done(acting, acting.control.checkpoint(form.reason))


def _savepoint(acting: Acting, form: SavepointForm) -> None:
    _log_done(acting, acting.control.savepoint(form.target, form.reason))


def _stop(acting: Acting, form: StopForm) -> None:
    control, reason = acting.control, form.reason
    if isinstance(form.how, Cancel):
        done = control.cancel(reason)
    else:
        target = form.how.target if isinstance(form.how, LastSavepoint) else None
        done = control.stop(reason, target)
    end = control.store.generations.read_end(done.generation)
    outcome = "its result is not recorded" if end is None else end.outcome
    _log_done(acting, done, outcome=outcome)
    acting.observe_deployment(
        f"generation {done.generation}: {outcome}", generation=done.generation, reason=reason
    )


def _mode(acting: Acting, form: ModeForm) -> None:
    mode = mode_text(form.mode)
    done = acting.control.set_mode(mode, form.reason)
    _log_done(acting, done, mode=mode)
    acting.observe_deployment(
        str(done),
        generation=done.generation,
        mode=mode,
        reason=form.reason,
        **_known(done.result),
    )


def _pin(acting: Acting, form: PinForm) -> None:
    hold_ms = None if form.hold_for is None else duration_ms(form.hold_for)
    acting.control.pin(form.checkpoint_id, form.name, form.reason, hold_ms)
    how = "pinned" if form.hold_for is None else f"held for {form.hold_for}"
    what = f"checkpoint {form.checkpoint_id} is {how} as {form.name}"
    acting.log(what)
    acting.observe_checkpoint(form.checkpoint_id, what, pin=form.name, reason=form.reason)


def _unpin(acting: Acting, form: UnpinForm) -> None:
    acting.control.unpin(form.checkpoint_id, form.name, form.reason)
    what = f"checkpoint {form.checkpoint_id} is no longer pinned as {form.name}"
    acting.log(what)
    acting.observe_checkpoint(form.checkpoint_id, what, pin=form.name, reason=form.reason)


def _pause(acting: Acting, form: PauseForm) -> None:
    until_ms = None
    if form.hold_for is not None:
        until_ms = min(SystemClock().now_ms() + duration_ms(form.hold_for), TIME_MS_MAX)
    sensors = tuple(sorted(set(form.sensors)))
    pause = Pause(sensors=sensors, until_ms=until_ms, by=acting.actor.name, reason=form.reason)
    record_pause(acting.context.instance, acting.stream, pause)
    what = f"{', '.join(sensors)}: {pause}"
    acting.log(what)
    acting.observe_deployment(what, reason=form.reason)


def _resume(acting: Acting, form: ActForm) -> None:
    record_pause(acting.context.instance, acting.stream, Pause())
    what = "no sensor is paused any more"
    acting.log(what)
    acting.observe_deployment(what, reason=form.reason)


def _export(acting: Acting, form: ExportForm) -> None:
    uri = acting.control.export(form.checkpoint_id, form.target, form.reason)
    acting.log(f"checkpoint {form.checkpoint_id} is the savepoint {uri}")
    acting.materialize_savepoint(uri)


def _log_done(acting: Acting, done: Done, **facts: object) -> None:
    result = done.result
    acting.show(
        str(done),
        command=done.number,
        generation=done.generation,
        checkpoint_id=result.checkpoint_id,
        **facts,
        **_known(result),
    )
    if result.savepoint is not None:
        acting.materialize_savepoint(result.savepoint)


def _known(result: ControlResult) -> dict[str, object]:
    return {name: fact for name, fact in result.details.items() if fact is not None}


ACTS: tuple[Act[Any], ...] = (
    Act("checkpoint", CommandForm, _checkpoint, "Take a checkpoint of the running job now."),
    Act(
        "savepoint",
        SavepointForm,
        _savepoint,
        "Take a savepoint of the running job, which continues.",
    ),
    Act(
        "stop",
        StopForm,
        _stop,
        "Stop the running job: a last checkpoint, its output committed, then the end.",
    ),
    Act(
        "mode",
        ModeForm,
        _mode,
        "Change how the checkpoints of the running job align, from the next one on.",
    ),
    Act("pin", PinForm, _pin, "Keep a checkpoint: retention does not delete it."),
    Act("unpin", UnpinForm, _unpin, "Remove a pin, so that retention may delete the checkpoint."),
    Act(
        "pause",
        PauseForm,
        _pause,
        "Let sensors leave one stream alone for a while; they look after the others as before.",
    ),
    Act("resume", ActForm, _resume, "End a pause."),
    Act(
        "export_savepoint",
        ExportForm,
        _export,
        "Make a savepoint of a completed checkpoint, whether or not the job runs.",
    ),
)
