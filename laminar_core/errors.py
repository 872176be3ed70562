"""The exceptions of Laminar: one class per reaction, one append-only code per cause.

The class determines the caller's reaction; the code identifies the cause and is safe to match on,
because codes are only ever added.

    LaminarError
    ├── ConfigurationError       you asked for something that cannot be: change the call
    │   ├── IncompatibleStateError   the pipeline does not fit the checkpoint: change either
    │   └── MissingExtraError        an optional package is not installed: install the extra
    ├── DataError                a row or file the pipeline cannot use: fix the data or the pipeline
    ├── StorageUnavailable       the store did not answer: retry inside the deadline
    ├── CorruptCheckpointError   a stored object is damaged: fall back to an older checkpoint
    ├── CheckpointDeclined       this checkpoint is lost, the job goes on
    ├── FencedError              a newer generation owns the job: exit quietly
    ├── LinkBrokenError          a connection between workers stayed away: restart from a checkpoint
    ├── JobFailedError           the restart strategy gave up
    └── ProtocolError            a bug of ours: crash
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

__all__ = [
    "CheckpointDeclined",
    "ConfigurationError",
    "CorruptCheckpointError",
    "DataError",
    "ErrorCode",
    "FencedError",
    "IncompatibleStateError",
    "JobFailedError",
    "LaminarError",
    "LinkBrokenError",
    "MissingExtraError",
    "ProtocolError",
    "StorageUnavailable",
]


class ErrorCode(StrEnum):
    """Precise causes. Append-only: released codes keep their meaning for ever."""

    # Configuration
    INVALID_OPTION = "invalid-option"
    INVALID_PIPELINE = "invalid-pipeline"
    NO_SUCH_PATH = "no-such-path"
    WRONG_SCHEMA = "wrong-schema"
    UNSUPPORTED_TYPE = "unsupported-type"
    UNSUPPORTED_PARALLELISM = "unsupported-parallelism"
    NOT_ENOUGH_SLOTS = "not-enough-slots"
    SPARK_UNSUITABLE = "spark-unsuitable"
    NOT_ENCRYPTED = "not-encrypted"
    NO_JAVA = "no-java"
    MISSING_EXTRA = "missing-extra"
    JOB_OWNED = "job-owned-by-live-driver"
    NO_SUCH_CHECKPOINT = "no-such-checkpoint"
    STORE_NOT_WRITABLE = "store-not-writable"
    STORE_IGNORES_CONDITIONS = "store-ignores-conditions"
    RETENTION_PLAN_STALE = "retention-plan-stale"
    STORE_CREDENTIALS = "store-credentials-missing-or-refused"
    STORE_ACCESS_DENIED = "store-access-denied"
    STORE_WRONG_REGION = "store-wrong-region"
    NO_SUCH_BUCKET = "no-such-bucket"
    NO_SUCH_TOPIC = "no-such-topic"
    BROKER_ACCESS_DENIED = "broker-access-denied"
    STORE_NOT_SHARED = "store-not-shared"
    NOT_IMPORTABLE = "not-importable"
    VERSIONS_DIFFER = "versions-differ"
    LOOPBACK_ADDRESS = "loopback-address"

    NO_SUCH_SAVEPOINT = "no-such-savepoint"
    TARGET_NOT_EMPTY = "target-not-empty"
    NO_LIVE_DRIVER = "no-live-driver"
    COMMAND_NOT_DONE = "command-not-done"
    COMMAND_TIMEOUT = "command-timeout"
    UNEXPECTED_GENERATION = "unexpected-generation"

    # Pipeline against checkpoint
    OPERATORS_CHANGED = "operators-changed"
    SOURCE_CHANGED = "source-changed"
    NO_RESTORABLE_CHECKPOINT = "no-restorable-checkpoint"
    OUTPUT_DOUBTFUL = "output-doubtful"
    OUTPUT_REPEATED = "output-repeated"

    # Data
    UNREADABLE_FILE = "unreadable-file"
    NULL_EVENT_TIME = "null-event-time"
    NULL_KEY = "null-key"
    ARITHMETIC_OVERFLOW = "arithmetic-overflow"
    TOO_MANY_ROWS = "too-many-rows"
    SEQUENCE_GAPS = "sequence-gaps"
    GENERATION_FORGOTTEN = "generation-forgotten"
    BAD_ROW = "bad-row"
    TOO_MANY_BAD_ROWS = "too-many-bad-rows"
    NOT_ENCODABLE = "not-encodable"

    # Storage
    STORE_FULL = "store-full"
    STORE_READ_ONLY = "store-read-only"
    STORE_IO = "store-io"
    STORE_THROTTLED = "store-throttled"
    STORE_GONE = "store-gone"
    STORE_REPLACED = "store-replaced"
    BROKER_UNAVAILABLE = "broker-unavailable"
    OBJECT_EXISTS = "object-exists"
    SPILL_FAILED = "spill-failed"
    WORKING_STATE = "working-state"

    # Corruption
    MANIFEST_UNREADABLE = "manifest-unreadable"
    OBJECT_MISSING = "object-missing"
    LENGTH_DIFFERS = "length-differs"
    DIGEST_DIFFERS = "digest-differs"
    STATE_UNREADABLE = "state-unreadable"
    INFLIGHT_UNREADABLE = "inflight-unreadable"
    TRANSACTION_LOST = "transaction-lost"
    AUDIT_UNREADABLE = "audit-unreadable"
    OBJECT_TOO_LARGE = "object-too-large"
    NOT_A_FILE = "not-a-regular-file"
    CHECKPOINT_CORRUPT = "corrupt"

    # Checkpoint and job
    SNAPSHOT_FAILED = "snapshot-failed"
    BEING_DELETED = "being-deleted"
    DRILL_FAILED = "drill-failed"
    FENCED = "fenced"
    RESTARTS_EXHAUSTED = "restarts-exhausted"
    WORKER_LOST = "worker-lost"
    WORKER_FAILED = "worker-failed"
    START_FAILED = "start-failed"
    SPARK_LOST = "spark-lost"
    NO_PROGRESS = "no-progress"
    LINK_BROKEN = "link-broken"
    SLOW_START = "slow-start"
    WORKERS_UNREACHABLE = "workers-unreachable"
    NO_FREE_PORT = "no-free-port"
    CANCELLED = "cancelled"
    DUPLICATE_BARRIER = "duplicate-barrier"
    OUT_OF_ORDER = "out-of-order"
    ILLEGAL_EVENT = "illegal-event"


class LaminarError(Exception):
    """Base of all. ``str(error)`` is one line: what happened, and the remedy."""

    exit_code = 1

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type["LaminarError"], tuple[object, ...]]:
        """Keep the code when Spark carries the exception from a worker to the driver."""
        return type(self), (self.code, str(self))


class ConfigurationError(LaminarError):
    """The request cannot be carried out as it stands; nothing was started."""

    exit_code = 2


class IncompatibleStateError(ConfigurationError):
    """The pipeline and the checkpoint do not fit; nothing was started or deleted."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional package is not installed. Also an ``ImportError``, for callers that import."""


class DataError(LaminarError):
    """Input that the pipeline cannot use. A restart would meet the same rows again."""

    exit_code = 3


class StorageUnavailable(LaminarError):  # noqa: N818 - a condition of the store, not a fault of the caller
    """The store failed or refused. Retry inside the deadline, then give up the checkpoint."""

    exit_code = 4


class CorruptCheckpointError(LaminarError):
    """A stored object is missing, damaged or unreadable. Fall back to an older checkpoint."""

    exit_code = 5


class DamagedFileError(CorruptCheckpointError):
    """A file of the restored checkpoint is not what was written. ``path`` is as in the manifest."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        path: str = "",
        problem: Literal["missing", "length", "digest"] = "digest",
    ) -> None:
        super().__init__(code, message)
        self.path = path
        self.problem: Literal["missing", "length", "digest"] = problem

    def __reduce__(self) -> tuple[type["LaminarError"], tuple[object, ...]]:
        """Keep the file, too."""
        return type(self), (self.code, str(self), self.path, self.problem)


class CheckpointDeclined(LaminarError):  # noqa: N818 - an outcome that the job survives
    """This checkpoint is lost; the next one may succeed."""


class FencedError(LaminarError):
    """A newer generation owns the job. Exit without writing anything."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """A connection on which nothing of ``sender`` arrives at ``receiver``; both are workers."""

    sender: int
    sender_host: str
    receiver: int
    receiver_host: str


class LinkBrokenError(LaminarError):
    """A connection between two workers stayed away for too long. ``links`` are those it may be."""

    def __init__(self, code: ErrorCode, message: str, links: tuple[BrokenLink, ...] = ()) -> None:
        super().__init__(code, message)
        self.links = links

    def __reduce__(self) -> tuple[type["LaminarError"], tuple[object, ...]]:
        """Keep the links, too."""
        return type(self), (self.code, str(self), self.links)


class JobFailedError(LaminarError):
    """The job failed and the restart strategy allows no further attempt."""


class WorkerTraceback(Exception):  # noqa: N818 - no error: where one came from
    """The traceback of a worker's error, as the cause of the error that the driver raises."""

    def __str__(self) -> str:
        """Return it behind a line break, as Python shows it beneath the name of the class."""
        return f"\n{self.args[0]}"


class ProtocolError(LaminarError):
    """An event that the protocol forbids: a bug in Laminar. Crash, and keep the evidence."""

    exit_code = 70


_DATA_CODES = {
    ErrorCode.UNREADABLE_FILE,
    ErrorCode.NULL_EVENT_TIME,
    ErrorCode.NULL_KEY,
    ErrorCode.ARITHMETIC_OVERFLOW,
    ErrorCode.TOO_MANY_ROWS,
    ErrorCode.SEQUENCE_GAPS,
    ErrorCode.GENERATION_FORGOTTEN,
    ErrorCode.BAD_ROW,
    ErrorCode.TOO_MANY_BAD_ROWS,
    ErrorCode.NOT_ENCODABLE,
}
_CONFIGURATION_CODES = {
    ErrorCode.STORE_NOT_SHARED,
    ErrorCode.NOT_IMPORTABLE,
    ErrorCode.VERSIONS_DIFFER,
    ErrorCode.LOOPBACK_ADDRESS,
}


def is_refusal(code: ErrorCode) -> bool:
    """Return whether a worker that fails with this code cannot run on its host as it stands."""
    return code in _CONFIGURATION_CODES


def error_for(code: ErrorCode, message: str) -> LaminarError:
    """Return the exception for a failure that a worker reported by its code."""
    if is_refusal(code):
        return ConfigurationError(code, message)
    return DataError(code, message) if code in _DATA_CODES else JobFailedError(code, message)
