"""The report of a recovery: everything that fits and everything that does not.

A start, a dry run and a drill all use this report. ``problems`` contains all errors, not yet
raised, so that a user sees at once everything to be fixed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from laminar_core.connectors.base import Gap
from laminar_core.driver.events import RejectedCheckpoint
from laminar_core.driver.recovery.partial_reset import PartReset
from laminar_core.driver.recovery.state_reset import Reset
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    IncompatibleStateError,
    LaminarError,
)
from laminar_core.plan.plan import Plan
from laminar_core.protocol.recovery import Refuse, Rejected
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.records.manifest import CheckpointManifest
from laminar_core.records.record import JsonObject
from laminar_core.state.splits import rows_read, rows_total

Verdict = Literal["restore", "fresh", "refuse"]
SourceStatus = Literal["continues", "new", "back", "gone"]


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """The checkpoint that is restored."""

    checkpoint_id: int
    generation: int
    kind: str
    mode: str
    completed_at_ms: int
    age_ms: int
    size_bytes: int
    inflight_rows: int
    workers: int

    @classmethod
    def of(cls, manifest: CheckpointManifest, now_ms: int) -> "CheckpointReport":
        """Return the manifest's facts; ``now_ms`` is this machine's wall clock."""
        return cls(
            checkpoint_id=manifest.checkpoint_id,
            generation=manifest.generation,
            kind=manifest.kind.value,
            mode=manifest.mode,
            completed_at_ms=manifest.completed_at_ms,
            age_ms=now_ms - manifest.completed_at_ms,
            size_bytes=manifest.size_bytes,
            inflight_rows=manifest.inflight_rows,
            workers=manifest.workers,
        )


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """The recovery of one operator's state.

    ``restored``: it continues with its state. ``empty``: it had none. ``unmapped``: it has state
    that the pipeline would not, or must not, continue from. ``new``: the checkpoint does not
    contain it. ``reset``: it begins anew, with all that it hangs together with. ``carried``: it
    went with its source, and later checkpoints contain its state. ``dropped``: the
    pipeline lacks it, and a person gave up its state.
    """

    operator_id: str
    status: Literal["restored", "empty", "unmapped", "new", "reset", "carried", "dropped"]
    row_count: int = 0
    size_bytes: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class SourceReport:
    """The position at which a source continues. ``rows_left`` is None if it is unbounded.

    ``new``: it begins. ``back``: it had been removed, and continues. ``gone``: the pipeline lacks
    it, and later checkpoints contain its positions.
    """

    operator_id: str
    splits: int = 0
    rows_read: int = 0
    rows_left: int | None = None
    problem: str | None = None
    status: SourceStatus = "continues"
    gaps: tuple[Gap, ...] = ()
    """Rows that the checkpoint has not read and that are gone, accepted or not."""


@dataclass(frozen=True, slots=True)
class SinkReport:
    """The recovery of one sink's output.

    ``to_commit``: pre-committed output that is committed (again) first. ``visible_id``: the newest
    checkpoint with output there now. ``is_withdrawn``: output after the restored checkpoint is
    withdrawn and produced again. ``is_repeated``: it stays visible and is produced again.
    ``expires_at_ms``: the wall-clock time at which the target gives up what is to be committed.
    """

    operator_id: str
    to_commit: int = 0
    visible_id: int | None = None
    is_withdrawn: bool = False
    is_repeated: bool = False
    expires_at_ms: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result, or the preview, of a recovery. ``workers`` is the number to run with."""

    job: str
    workers: int
    checkpoint: CheckpointReport | None = None
    """The checkpoint to continue from.

    None if the job starts without state, or the start is refused.
    """
    rows_to_replay: int | None = None
    """Rows that the last run had read beyond the checkpoint; None: unknown."""
    operators: tuple[OperatorReport, ...] = ()
    evolved: tuple[str, ...] = ()
    """Changes of operators and of columns, each as one line."""
    sources: tuple[SourceReport, ...] = ()
    sinks: tuple[SinkReport, ...] = ()
    redriven_ids: tuple[int, ...] = ()
    """Checkpoints whose output is committed (again) before the job runs."""
    committed_beyond_ids: tuple[int, ...] = ()
    """Checkpoints after the restored one whose output was committed."""
    rejected: tuple[Rejected, ...] = ()
    reset: Reset | PartReset | None = None
    """State that is dropped on the user's request."""
    accepted: tuple[str, ...] = ()
    """Acceptances of this start, each as one line with its cost."""
    problems: tuple[LaminarError, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The outcome of a start: restore, fresh or refuse."""
        if self.problems:
            return "refuse"
        return "fresh" if self.checkpoint is None else "restore"

    @property
    def exit_code(self) -> int:
        """The exit code of a command that would start the job."""
        return self.problems[0].exit_code if self.problems else 0

    def raise_problem(self) -> None:
        """Refuse if anything is in the way.

        Raises:
            LaminarError: the first problem, in the order of PROTOCOL section 11.
        """
        if not self.problems:
            return
        first, *others = self.problems
        if not others:
            raise first
        more = f"; and {len(others)} more: `laminar recover --dry-run` names them all"
        raise type(first)(first.code, f"{first}{more}") from first

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values."""
        plain = {
            name: value
            for name, value in asdict(replace(self, problems=())).items()
            if name != "problems"
        }
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            **plain,
            "problems": [problem_as_dict(problem) for problem in self.problems],
        }


def problem_as_dict(problem: LaminarError) -> dict[str, str | int]:
    """Return the problem as JSON-compatible values."""
    return {
        "code": problem.code.value,
        "exit_code": problem.exit_code,
        "message": str(problem),
    }


def rows_to_replay(progress: Mapping[str, object], sources: tuple[SourceReport, ...]) -> int | None:
    """Return the rows that the last run read beyond these positions, by its last heartbeat."""
    rows_in = progress.get("rows_in")
    if not isinstance(rows_in, int):
        return None
    return max(rows_in - sum(source.rows_read for source in sources), 0)


def source_report(
    operator_id: str,
    pinned: pa.Table | None,
    problem: LaminarError | None,
    gaps: tuple[Gap, ...] = (),
) -> SourceReport:
    """Return the positions as rows; ``pinned`` are the splits, None if unknown."""
    said = None if problem is None else str(problem)
    if pinned is None:
        return SourceReport(operator_id, problem=said)
    read, total = rows_read(pinned), rows_total(pinned)
    left = None if total is None else total - read
    return SourceReport(operator_id, pinned.num_rows, read, left, said, gaps=gaps)


def refusal(job: str, request: RestoreRequest, refused: Refuse) -> LaminarError:
    """Return the error: there is none, there never was one, none can be read."""
    time = "" if request.before_ms is None else f" ({_instant(request.before_ms)})"
    message = f"job {job} is not started: {refused.reason}{time}"
    match refused.cause:
        case "damaged":
            return CorruptCheckpointError(ErrorCode.NO_RESTORABLE_CHECKPOINT, message)
        case "never-completed":
            return ConfigurationError(ErrorCode.NO_SUCH_CHECKPOINT, message)
        case "orphan" | "being-deleted":
            return IncompatibleStateError(ErrorCode.NO_RESTORABLE_CHECKPOINT, message)


def damaged_checkpoints(report: RecoveryReport) -> tuple[RejectedCheckpoint, ...]:
    """Return the damaged checkpoints to report; orphans were never candidates."""
    return tuple(
        RejectedCheckpoint(checkpoint_id=r.checkpoint_id, reason=r.reason)
        for r in report.rejected
        if not r.orphan
    )


def _instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def bad_row_rules(plan: Plan, skip_bad: Iterable[object]) -> JsonObject:
    """Return which messages a generation may lose, and on whose decision."""
    rules: JsonObject = {}
    if dropping := [n.operator_id for n in plan.sources() if n.bad_rows.drops]:
        rules["drops_bad_rows_of"] = list(dropping)
    if skipped := [str(message) for message in skip_bad]:
        rules["skip_bad"] = list(skipped)
    return rules


def workers_before(restored: CheckpointManifest | None, workers: int) -> int | None:
    """Return the number of workers of the checkpoint, if it is another one now."""
    return None if restored is None or restored.workers == workers else restored.workers
