"""Committables of a Kafka sink that writes into transactions, and the names of these.

A transactional id is ``laminar.{job}.{sink}.{run}.g{generation}.s{subtask}.{slot}``. Brokers keep
an id for seven days after its last use, so a subtask uses few of them again and again. The run of
the job is in it because a job that is made anew begins with generation 1 again.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from laminar_core.connectors.kafka.transactions import TransactionFacts, TransactionState
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.operators.base import JsonObject
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.pre_committed import EXPIRES_AT_MS, ROWS


@dataclass(frozen=True, slots=True)
class TransactionalIds:
    """The transactional ids of one sink of one run of a job."""

    group: str
    """The consumer group of the sink's marker."""
    run_id: str

    def of(self, generation: Generation, subtask_index: int, slot: int) -> str:
        """Return an id."""
        return f"{self.group}.{self.run_id}.g{generation}.s{subtask_index}.{slot}"

    def older_than(self, generation: Generation) -> Callable[[str], bool]:
        """Return a test for ids of generations before this one."""
        form = re.compile(rf"{re.escape(self.group)}\.{re.escape(self.run_id)}\.g(\d+)\.s\d+\.\d+")

        def matches(name: str) -> bool:
            found = form.fullmatch(name)
            return found is not None and int(found[1]) < generation

        return matches


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One committable: the rows of one subtask and one checkpoint interval."""

    checkpoint_id: CheckpointId
    """The first checkpoint that contains them."""
    rows: int
    """Messages."""
    transactional_id: str
    producer_id: int
    epoch: int
    expires_at_ms: int | None = field(default=None, compare=False)
    """When the brokers abort it, by their clock; None: an older version has written it."""

    def to_json(self) -> JsonObject:
        """Return the form stored in a checkpoint."""
        written: JsonObject = {
            "checkpoint_id": self.checkpoint_id,
            ROWS: self.rows,
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
        }
        known = self.expires_at_ms is not None
        return {**written, EXPIRES_AT_MS: self.expires_at_ms} if known else written

    @classmethod
    def from_json(cls, committable: JsonObject) -> "OpenTransaction":
        """Read a committable.

        Raises:
            CorruptCheckpointError: no transaction is described.
        """
        numbers = [committable.get(n) for n in ("checkpoint_id", ROWS, "producer_id", "epoch")]
        name = committable.get("transactional_id")
        whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
        if len(whole) < len(numbers) or not isinstance(name, str):
            raise CorruptCheckpointError(
                ErrorCode.MANIFEST_UNREADABLE, f"this is no transaction: {committable}"
            )
        checkpoint_id, rows, producer_id, epoch = whole
        expires = committable.get(EXPIRES_AT_MS)
        expires_at_ms = expires if isinstance(expires, int) else None
        return cls(CheckpointId(checkpoint_id), rows, name, producer_id, epoch, expires_at_ms)


def transactions_after(
    marker: CheckpointId, committables: Iterable[JsonObject]
) -> list[OpenTransaction]:
    """Return what is newer than the marker, each transaction once, in the order of checkpoints.

    Raises:
        CorruptCheckpointError: a committable is no transaction.
    """
    found = dict.fromkeys(map(OpenTransaction.from_json, committables))
    newer = (each for each in found if each.checkpoint_id > marker)
    return sorted(newer, key=lambda each: (each.checkpoint_id, each.transactional_id))


class Fate(Enum):
    """The state of one committable in the brokers."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


def fate_of(
    transaction: OpenTransaction, facts: TransactionFacts | None, *, marker_known: bool
) -> Fate:
    """Decide what became of a transaction that is newer than the marker.

    A subtask uses its id again only after the marker has passed the checkpoint. So with a marker,
    anything else under the id means that the transaction was aborted: it expired, or a later
    generation fenced the id, and both raise the epoch. Without the marker, the id may have been
    used again, or the broker has forgotten both.
    """
    if facts is None:
        return Fate.UNKNOWN
    same = facts.producer_id == transaction.producer_id
    if same and facts.epoch == transaction.epoch:
        match facts.state:
            case TransactionState.ONGOING:
                return Fate.OPEN
            case TransactionState.COMMITTED:
                return Fate.COMMITTED
            case TransactionState.ABORTED | TransactionState.NONE:
                return Fate.ABORTED
    return Fate.ABORTED if marker_known else Fate.UNKNOWN


@dataclass(frozen=True, slots=True)
class Fates:
    """The transactions of one commit, by what became of them."""

    open: Sequence[OpenTransaction]
    aborted: Sequence[OpenTransaction]
    unknown: Sequence[OpenTransaction]
    expires_at_ms: int | None
    """The first time at which an open one expires; wall clock of the broker."""


def fates_of(
    transactions: Iterable[OpenTransaction],
    facts: Mapping[str, TransactionFacts],
    *,
    marker_known: bool,
) -> Fates:
    """Sort the transactions by what became of them."""
    by_fate: dict[Fate, list[OpenTransaction]] = {fate: [] for fate in Fate}
    for each in transactions:
        fate = fate_of(each, facts.get(each.transactional_id), marker_known=marker_known)
        by_fate[fate].append(each)
    times = [facts[each.transactional_id].expires_at_ms for each in by_fate[Fate.OPEN]]
    return Fates(
        by_fate[Fate.OPEN],
        by_fate[Fate.ABORTED],
        by_fate[Fate.UNKNOWN],
        min((time for time in times if time is not None), default=None),
    )
