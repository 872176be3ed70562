"""Functions that all Dagster runs acting on a stream have in common."""

# Dagster's decorators and functions are only partly typed.
# pyright: reportUnknownMemberType=false

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, cast

import dagster as dg
from pydantic import Field, ValidationError

from laminar_core.errors import LaminarError
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.locked_database import until_unlocked
from laminar_core.resources.names import ACT_TAG, ACTS_ON_TAG, STREAM_FIELD, StreamJob

CheckpointNumber = Annotated[int, Field(ge=1)]

_RUNTIME_S_MAX = 6 * 3600
"""Enough to read, copy or restore much state; a run that hangs can be terminated with force."""
_MARGIN_S = 1800

_STARTS = {"run", "start", "recover", "rollback", "rescale", "import_savepoint"}
HOUSEKEEPING: tuple[StreamJob, ...] = ("retention", "drill", "audit", "orphans", "costs")
_TEMPORARY_HOME = ".tmp_dagster_home_"
_REASON_LENGTH_MAX = 10_000
"""Characters of a reason on a command line, where Linux takes 131,071 bytes of an argument."""


class ActForm(dg.Config):
    """Config of every act on a stream; the launchpad shows it as a form."""

    reason: str = Field(
        default="requested in Dagster",
        min_length=1,
        description="Why: recorded in the job's audit log, with your name and this run.",
    )


F = TypeVar("F", bound=dg.Config)


def form_schema(form: type[F], group: Group) -> dg.Shape:
    """Return the config of a shared job: the stream, one of the group's, and then the form.

    A group with a single stream needs no choice.
    """
    names = [spec.name for spec in group]
    choice = dg.Enum(f"{group.name}_stream", [dg.EnumValue(name) for name in names])
    only: dict[str, Any] = {"default_value": names[0]} if len(names) == 1 else {}
    stream = dg.Field(choice, description="The stream to act on.", **only)
    fields: dict[str, Any] = cast("Any", form.to_config_schema().as_field().config_type).fields
    return cast("dg.Shape", dg.Shape({STREAM_FIELD: stream, **fields}))


def begin_act(
    context: dg.OpExecutionContext, group: Group, act: StreamJob, form: type[F]
) -> tuple[StreamSpec, F]:
    """Return the stream that a run of a shared job acts on, and its form.

    The run gets the tags of that stream, so that sensors find it: Dagster cannot know them before.

    Raises:
        dagster.Failure: a value is invalid, or Dagster would forget the run.
    """
    refuse_temporary_instance(context.instance)
    values = dict(context.op_config)
    spec = group.stream(values.pop(STREAM_FIELD))
    missing = act_tags(spec, act).items() - context.run.tags.items()
    if missing:
        run_id, tags = context.run.run_id, dict(missing)
        until_unlocked(lambda: context.instance.add_run_tags(run_id, tags))
    return spec, valid_form(form, values)


def act_job(
    group: Group,
    name: StreamJob,
    op: dg.OpDefinition,
    description: str,
    tags: Mapping[str, str] | None = None,
) -> dg.JobDefinition:
    """Return a job with a single op of its name; only a user may run it a second time.

    ``tags`` precede the tags of every act.
    """
    known_as = group.job_name(name)

    # Only jobs and their graphs may share a name, or an op and a job whose graph has another one.
    @dg.graph(name=f"{known_as}_graph")
    def graph() -> None:
        op()

    return graph.to_job(
        name=known_as,
        description=description,
        executor_def=dg.in_process_executor,
        tags={ACT_TAG: name, "dagster/max_retries": "0", **(tags or {})},
    )


def act_tags(spec: StreamSpec, name: StreamJob) -> dict[str, str]:
    """Return the tags of a run of the named job that acts on the stream.

    If a run's process is killed together with its code server, only the run's time limit detects
    it. A run that supervises has no limit. Housekeeping has its own.
    """
    tags = {**spec.tags, ACTS_ON_TAG: spec.name}
    if name in HOUSEKEEPING or (name in _STARTS and (spec.launch == "supervised" or name == "run")):
        return tags
    return {**tags, "dagster/max_runtime": str(_runtime_s_max(spec))}


def _runtime_s_max(spec: StreamSpec) -> int:
    """A run that starts a driver reads its checkpoint before, for as long as the start may take."""
    return max(_RUNTIME_S_MAX, 2 * spec.start_timeout_ms // 1000 + _MARGIN_S)


def reason_words(reason: str) -> list[str]:
    """Return a reason as an option of a command; it may hold the message of any error.

    >>> reason_words("generation 3 failed: no column merchant")
    ['--reason', 'generation 3 failed: no column merchant']
    """
    text = reason.replace("\0", "\ufffd")
    is_long = len(text) > _REASON_LENGTH_MAX
    return ["--reason", f"{text[: _REASON_LENGTH_MAX - 1]}…" if is_long else text]


@contextmanager
def in_one_line() -> Iterator[None]:
    """End the run with the one-line message of a Laminar error, without retries.

    Raises:
        dagster.Failure: there was an error.
    """
    try:
        yield
    except LaminarError as error:
        raise dg.Failure(
            str(error), metadata={"error_code": error.code.value}, allow_retries=False
        ) from error


def valid_form(form: type[F], values: Mapping[str, object]) -> F:
    """Validate the values of a form.

    Raises:
        dagster.Failure: a value is invalid; one line with the name of each field.
    """
    try:
        return form(**values)
    except ValidationError as error:
        problems = [
            ": ".join((*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")))
            for each in error.errors()
        ]
        raise dg.Failure(f"config: {'; '.join(problems)}", allow_retries=False) from error


def refuse_temporary_instance(instance: dg.DagsterInstance) -> None:
    """Refuse the temporary instance that Dagster's commands use without a configuration.

    Raises:
        dagster.Failure: it is temporary; the message says where to start Dagster instead.
    """
    if not instance.is_ephemeral and _TEMPORARY_HOME in instance.root_directory:
        raise dg.Failure(
            "Dagster keeps this run in a temporary directory and forgets it: start dagster in the "
            "folder of dagster.yaml, or set DAGSTER_HOME",
            allow_retries=False,
        )
