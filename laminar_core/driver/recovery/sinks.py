"""Decide whether a job may start with its sinks as they are.

The facts are the outlook of everything that is to be committed again, and the newest checkpoint
whose output readers see. ``judge`` decides: pure, and it names every problem. Nothing here changes
a target.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from laminar_core.connectors.base import Committer
from laminar_core.connectors.outlook import Committable, Doubtful, Lost, Outlook, Repeat
from laminar_core.driver.publication import committables_of
from laminar_core.driver.recovery.acceptance import Acceptance, AcceptanceKind, find_acceptance
from laminar_core.driver.recovery.report import SinkReport
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
    LaminarError,
)
from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class Pending:
    """Output that one checkpoint commits (again) in one sink, and its outlook."""

    checkpoint_id: CheckpointId
    committables: Sequence[JsonObject]
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """Everything that is known about one sink before a start."""

    operator_id: str
    repeat: Repeat
    pending: Sequence[Pending] = ()
    visible_id: CheckpointId | None = None
    """The newest checkpoint whose output readers see, according to the target."""
    recorded_id: CheckpointId | None = None
    """The newest checkpoint after the restored one that the store records as committed here."""
    failure: LaminarError | None = None
    """Why the sink could not be asked."""


@dataclass(frozen=True, slots=True)
class Going:
    """The direction of a start, as far as it matters to sinks."""

    job: str
    base_id: CheckpointId
    """Output up to this checkpoint stays visible; 0: none."""
    must_be_empty: bool = False
    """A fresh start without an explicit request: visible output is of another run."""
    left_before: frozenset[CheckpointId] = frozenset()
    """Visible checkpoints that an earlier start has gone back behind: it was accepted then."""
    is_reset: bool = False
    """Whether the sink begins anew with a part of the pipeline, while the rest continues."""


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """The decision for one sink."""

    report: SinkReport
    problems: tuple[LaminarError, ...] = ()
    left_out: tuple[JsonObject, ...] = ()
    """Committables that are not committed, because a person accepted that."""
    used: tuple[Acceptance, ...] = ()
    accepted: tuple[str, ...] = ()
    """One line for each acceptance, with what it costs."""


def read_sink(
    operator_id: str,
    committer: Committer,
    redrive: Iterable[CheckpointManifest],
    recorded_id: CheckpointId | None = None,
) -> SinkFacts:
    """Ask one sink; changes nothing.

    ``recorded_id`` is passed on, see :class:`SinkFacts`.

    Raises:
        StorageUnavailable: the target did not answer.
    """
    pending: list[Pending] = []
    try:
        for manifest in redrive:
            committables = committables_of(manifest, operator_id)
            settled_id = visible_up_to(manifest)
            outlook = committer.outlook(settled_id, committables)
            pending.append(Pending(settled_id, committables, outlook))
        visible_id = committer.last_committed()
    except (ConfigurationError, CorruptCheckpointError) as error:
        return SinkFacts(operator_id, committer.repeat, tuple(pending), failure=error)
    return SinkFacts(operator_id, committer.repeat, tuple(pending), visible_id, recorded_id)


def visible_up_to(manifest: CheckpointManifest) -> CheckpointId:
    """Return the checkpoint up to which output is visible once ``manifest`` is restored.

    A savepoint of this job has the number of its copy, and the output of the checkpoint it was
    made from, which is the parent.
    """
    if manifest.imported_from is None or manifest.parent_checkpoint_id is None:
        return manifest.checkpoint_id
    return manifest.parent_checkpoint_id


def judge(facts: SinkFacts, going: Going, accepted: Sequence[Acceptance]) -> SinkVerdict:
    """Decide whether the job may start with this sink as it is."""
    problems: list[LaminarError] = [] if facts.failure is None else [facts.failure]
    used: list[Acceptance] = []
    lines: list[str] = []
    left_out: list[JsonObject] = []
    for pending in facts.pending:
        found = _judge_pending(facts.operator_id, pending, accepted)
        if isinstance(found, LaminarError):
            problems.append(found)
        elif found is not None:
            used.append(found.acceptance)
            lines.append(found.line)
            left_out += found.left_out
    visible_id = _visible_id(facts)
    goes_back = visible_id is not None and visible_id > going.base_id
    if visible_id is not None and going.must_be_empty and not problems:
        problems.append(_foreign_output(going.job, facts.operator_id, visible_id))
    elif visible_id is not None and goes_back and facts.repeat == "visible":
        repeat = find_acceptance(accepted, AcceptanceKind.SINK_REPEAT, facts.operator_id)
        if repeat is not None:
            used.append(repeat)
            back = f"checkpoints {going.base_id + 1} to {visible_id}"
            lines.append(f"{repeat}: output of {back} is shown twice")
        elif visible_id not in going.left_before:
            problems.append(_repeated_output(facts.operator_id, going, visible_id))
    report = SinkReport(
        facts.operator_id,
        sum(len(pending.committables) for pending in facts.pending),
        visible_id,
        is_withdrawn=goes_back and facts.repeat == "withdrawn",
        is_repeated=goes_back and facts.repeat == "visible",
        expires_at_ms=_first_expiry(facts.pending),
        problem=str(problems[0]) if problems else None,
    )
    return SinkVerdict(report, tuple(problems), tuple(left_out), tuple(used), tuple(lines))


def _visible_id(facts: SinkFacts) -> CheckpointId | None:
    """Return the newest checkpoint whose output readers see.

    A target may forget its marker (Kafka does after seven days without renewal), and the rows are
    there all the same. Where nothing can be taken back, the store's own record counts as well.
    """
    known = [facts.visible_id, facts.recorded_id if facts.repeat == "visible" else None]
    return max((each for each in known if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Accepted:
    acceptance: Acceptance
    line: str
    left_out: tuple[JsonObject, ...]


def _judge_pending(
    operator_id: str, pending: Pending, accepted: Sequence[Acceptance]
) -> LaminarError | _Accepted | None:
    """Return why the checkpoint's output cannot be committed, or by what it need not be."""
    match pending.outlook:
        case Lost(rows, why, gone):
            by = find_acceptance(accepted, AcceptanceKind.SINK_LOST, operator_id)
            if by is None:
                return CorruptCheckpointError(ErrorCode.TRANSACTION_LOST, why)
            line = f"{by}: {rows} rows of checkpoint {pending.checkpoint_id} are lost"
            return _Accepted(by, line, tuple(gone))
        case Doubtful(why):
            by = find_acceptance(accepted, AcceptanceKind.SINK_DOUBT, operator_id)
            if by is None:
                return IncompatibleStateError(
                    ErrorCode.OUTPUT_DOUBTFUL,
                    f"sink {operator_id}: {why}; then start with --accept "
                    f"sink-doubt:{operator_id}=committed or =not",
                )
            was = "counts as committed" if by.how == "committed" else "is committed now"
            line = f"{by}: output of checkpoint {pending.checkpoint_id} {was}"
            left_out = tuple(pending.committables) if by.how == "committed" else ()
            return _Accepted(by, line, left_out)
        case _:
            return None


def _first_expiry(pending: Iterable[Pending]) -> int | None:
    times = (p.outlook.expires_at_ms for p in pending if isinstance(p.outlook, Committable))
    return min((time for time in times if time is not None), default=None)


def _foreign_output(job: str, operator_id: str, visible_id: CheckpointId) -> ConfigurationError:
    """Return the error for a fresh job whose sink already has output of another job."""
    return ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"sink {operator_id} already shows output of another run (up to checkpoint {visible_id}), "
        f"and job {job} starts from nothing: write to another place, or empty this one",
    )


def _repeated_output(
    operator_id: str, going: Going, visible_id: CheckpointId
) -> IncompatibleStateError:
    if going.is_reset:
        return IncompatibleStateError(
            ErrorCode.OUTPUT_REPEATED,
            f"sink {operator_id} shows output up to checkpoint {visible_id} and cannot take it "
            "back, and what it is computed from is to be reset: readers would see rows twice. "
            f"Leave the reset out, or start with --accept sink-repeat:{operator_id}",
        )
    start = f"checkpoint {going.base_id}" if going.base_id else "nothing"
    return IncompatibleStateError(
        ErrorCode.OUTPUT_REPEATED,
        f"sink {operator_id} shows output up to checkpoint {visible_id} and cannot take it back, "
        f"and the job would continue from {start}: readers would see rows twice. Restore "
        f"checkpoint {visible_id} or a later one, or start with --accept sink-repeat:{operator_id}",
    )
