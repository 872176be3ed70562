"""The job that restores a checkpoint in a scratch Spark job, to prove that it can be restored.

It runs ``laminar drills run``, which leaves a record in the job's store whether it passed or not.
"""

# A form is a Dagster ``Config``: a field of that type is unknown to a type checker.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any

import dagster as dg
from pydantic import Field, ValidationError

from laminar_core.driver.drill.drill import BATCHES_MAX
from laminar_core.host.clock import Clock
from laminar_core.host.private_folders import PrivateFolder, temporary_root
from laminar_core.options import words_of
from laminar_core.orchestration.acts import ActForm, reason_words
from laminar_core.orchestration.checkpoint_choices import AtRandom, Drilled, Numbered
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.chores import Chore, chore_job
from laminar_core.orchestration.housekeeping.report_tables import table_of
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.records.drill import DrillRecord
from laminar_core.resources.drivers.laminar_command import CommandResult, run_command
from laminar_core.resources.names import DRILL_POOL, DRILL_TAG
from laminar_core.resources.run_actor import child_environment
from laminar_core.sensors.judgements import judge_restorable

_SEED_BITS = 31


class DrillForm(ActForm):
    """The checkpoint to drill, and how."""

    which: Drilled = Field(
        discriminator="kind",
        description="newest: that a restore would take. random: drawn from all. checkpoint: the "
        "one with a number.",
    )
    workers: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Of the scratch job  [default: the stream's]."
    )
    batches: Annotated[int, Field(ge=0)] = Field(
        default=BATCHES_MAX, description="New ones to read from each source, per worker."
    )
    scratch: str | None = Field(
        default=None,
        description="An empty place for the copy that the workers reach, too  [default: a "
        "temporary directory of this machine].",
    )


def build_drill_job(group: Group, clock: Clock) -> dg.JobDefinition:
    """Make ``laminar_drill``; drills wait for each other where the pool has a limit."""
    return chore_job(
        group,
        "drill",
        DrillForm,
        drill,
        clock,
        description="Prove that a checkpoint of a stream can be restored.",
        pool=DRILL_POOL,
    )


def drill(chore: Chore, form: DrillForm) -> None:
    """Run a drill, and report it on ``[stream, drill]``; one that did not pass fails the run.

    Raises:
        dagster.Failure: it did not pass, or did not come to its end.
    """
    seed, which = None, form.which
    if isinstance(which, AtRandom):
        seed = seed_of(chore.context.run.run_id) if which.seed is None else which.seed
        chore.context.log.info("the seed is %s", seed)
    result = _run(chore, form, seed)
    record = parse_record(result)
    if record is None:
        raise dg.Failure(_without_a_record(result), allow_retries=False)
    metadata = drill_metadata(record)
    if seed is not None:
        metadata["seed"] = seed
    chore.materialize("drill", metadata, {DRILL_TAG: str(record.number)})
    verdict = judge_restorable(record, chore.clock.now_ms(), chore.spec.alerts)
    chore.evaluate("restorable", verdict)
    if record.outcome == "failed":
        raise dg.Failure(
            f"drill {record.number} failed: {'; '.join(record.problems) or result.problem}",
            metadata={"error_code": record.error_code or ""},
            allow_retries=False,
        )


def seed_of(text: str) -> int:
    """Return a reproducible random number for a text.

    >>> seed_of("2026-11-21T04:43Z")
    293947591
    """
    return int.from_bytes(sha256(text.encode()).digest()[:8]) >> (64 - _SEED_BITS)


def drill_command(spec: StreamSpec, store_uri: str, form: DrillForm, seed: int | None) -> list[str]:
    """Return the command line of the drill."""
    choice: Sequence[str] = ()
    if isinstance(form.which, Numbered):
        choice = ("--checkpoint", str(form.which.number))
    elif seed is not None:
        choice = ("--random", str(seed))
    return [
        *(*spec.laminar, "drills", "run", *spec.target_words()),
        *("--store", store_uri, "--job", spec.name, *choice),
        *("--workers", str(form.workers or spec.workers), "--batches", str(form.batches)),
        *(() if form.scratch is None else ("--scratch", form.scratch)),
        *words_of(spec.spark),
        *(*reason_words(form.reason), "--json"),
    ]


def parse_record(result: CommandResult) -> DrillRecord | None:
    """Return the record that the command wrote; None if it failed before that."""
    _, brace, rest = result.stdout.partition("{")
    try:
        return DrillRecord.model_validate_json(brace + rest)
    except ValidationError:
        return None


def drill_metadata(record: DrillRecord) -> dict[str, Any]:
    """Return the results of a drill; numbers are plotted."""
    metadata: dict[str, Any] = {
        "outcome": record.outcome,
        "drill": record.number,
        "checkpoint_id": record.checkpoint_id or 0,
        "duration_s": round(record.duration_ms / 1000, 3),
        "size_bytes": record.size_bytes,
        "rows_restored": sum(one.rows_restored for one in record.operators),
        "inflight_rows": record.inflight_rows,
        "rows_read": record.rows_read,
        "workers": record.workers,
        "workers_before": record.workers_before,
        "started_at": dg.MetadataValue.timestamp(record.started_at_ms / 1000),
        "reason": record.reason,
    }
    if record.problems:
        metadata["problems"] = dg.MetadataValue.json(list(record.problems))
    if record.operators:
        metadata["operators"] = table_of(
            [
                {
                    "operator": one.operator_id,
                    "rows": one.rows_restored,
                    "rows in the checkpoint": one.rows_expected,
                    "digest": one.digest_restored,
                    "the same": one.is_equal,
                }
                for one in record.operators
            ]
        )
    return metadata


def _run(chore: Chore, form: DrillForm, seed: int | None) -> CommandResult:
    with PrivateFolder.open(temporary_root(), "drill-") as folder:
        # The copy goes with it, also if the drill is killed.
        return run_command(
            drill_command(chore.spec, chore.store_uri, form, seed),
            env={**child_environment(chore.actor), "TMPDIR": str(folder)},
            log=chore.context.log,
            clock=chore.clock,
        )


def _without_a_record(result: CommandResult) -> str:
    said = f": {result.problem}" if result.problem else ""
    if result.exit_code < 0:
        return f"the drill was killed by signal {-result.exit_code}{said}"
    if result.exit_code:
        return f"the drill ended with exit code {result.exit_code}{said or ' and printed nothing'}"
    return f"the drill printed no record of a drill{said}"
