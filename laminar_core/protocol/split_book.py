"""Deal splits that are found while the job runs, and decide what a checkpoint remembers of them.

Invariant: in every checkpoint each found split is in exactly one place. Either the workers have it,
as part of their positions, or the kept state of the discovery finds it again. This holds because

    - ``AddSplits`` and the trigger of a checkpoint travel on one ordered line per worker, and
    - a checkpoint keeps the discovery's state *as of sending the trigger*.

With the state as of the checkpoint's completion, a split that was sent behind the trigger would be
in no worker's position and yet count as found: it would be lost. ``verification.splits`` explores
all orders of events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from laminar_core.protocol.types import CheckpointId


@dataclass(frozen=True, slots=True)
class FoundSoFar:
    """The state of one source's discovery, as a checkpoint stores it."""

    state: Mapping[str, object] = field(default_factory=dict[str, object])
    """Opaque state of the discovery. It continues from it without finding a split twice."""
    next_split_id: int = 0
    """No split has had this number or a higher one."""
    complete: bool = False
    """Nothing more will ever be found."""


@dataclass(frozen=True, slots=True)
class FoundSplit:
    """A split that has no owner yet. ``rows_unread`` is None if unknown or without bound."""

    split_id: int
    rows_unread: int | None = None


@dataclass(frozen=True, slots=True)
class _Load:
    """The rows that a worker has to read, as far as the driver knows."""

    reported_rows: int = 0
    """Its last report."""
    splits_taken: int = 0
    """The number of added splits that this report includes."""
    on_the_way: tuple[int, ...] = ()
    """Rows of the splits that were sent and that this report does not include."""

    @property
    def rows_unread(self) -> int:
        return self.reported_rows + sum(self.on_the_way)


@dataclass(frozen=True, slots=True)
class SplitBook:
    """The state: one source of one generation."""

    found: FoundSoFar
    loads: tuple[_Load, ...]


def opened(workers: int, found: FoundSoFar) -> SplitBook:
    """Return the book of a generation that continues after ``found``, or begins after it."""
    return SplitBook(found, (_Load(),) * workers)


# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A step of the discovery returned these splits and its next state."""

    splits: Sequence[FoundSplit]
    state: Mapping[str, object]
    complete: bool = False


@dataclass(frozen=True, slots=True)
class TriggerSent:
    """The trigger of a checkpoint goes out to the workers now."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker reports its unread rows, and how many added splits they include."""

    worker: int
    splits_taken: int
    rows_unread: int


Event = Found | TriggerSent | Reported


# --- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddSplits:
    """Send these splits to their owner."""

    worker: int
    split_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NothingMore:
    """Tell every worker that it has all its splits."""


@dataclass(frozen=True, slots=True)
class KeepState:
    """Make this part of the checkpoint."""

    checkpoint_id: CheckpointId
    found: FoundSoFar


Effect = AddSplits | NothingMore | KeepState


def step(book: SplitBook, event: Event) -> tuple[SplitBook, tuple[Effect, ...]]:
    """Take one event; return the next book, and what is to be done, in this order.

    A split goes to the worker with the fewest unread rows. Of several such workers the split's
    number chooses one, so splits of unknown length are dealt in turn.
    """
    match event:
        case Found():
            return _deal(book, event)
        case TriggerSent(checkpoint_id):
            return book, (KeepState(checkpoint_id, book.found),)
        case Reported():
            return _with_report(book, event), ()


def _deal(book: SplitBook, event: Found) -> tuple[SplitBook, tuple[Effect, ...]]:
    if book.found.complete:
        return book, ()
    loads, owned = list(book.loads), [list[int]() for _ in book.loads]
    next_id = book.found.next_split_id
    for split in event.splits:
        unread = [load.rows_unread for load in loads]
        least = [worker for worker, rows in enumerate(unread) if rows == min(unread)]
        owner = least[split.split_id % len(least)]
        on_the_way = (*loads[owner].on_the_way, split.rows_unread or 0)
        loads[owner] = replace(loads[owner], on_the_way=on_the_way)
        owned[owner].append(split.split_id)
        next_id = max(next_id, split.split_id + 1)
    found = FoundSoFar(event.state, next_id, event.complete)
    effects: list[Effect] = [AddSplits(n, tuple(ids)) for n, ids in enumerate(owned) if ids]
    if event.complete:
        effects.append(NothingMore())
    return SplitBook(found, tuple(loads)), tuple(effects)


def _with_report(book: SplitBook, event: Reported) -> SplitBook:
    """A report may be older than splits that are on their way: those are counted as before."""
    loads, load = list(book.loads), book.loads[event.worker]
    newly_taken = max(event.splits_taken - load.splits_taken, 0)
    taken = load.splits_taken + newly_taken
    loads[event.worker] = _Load(event.rows_unread, taken, load.on_the_way[newly_taken:])
    return replace(book, loads=tuple(loads))
