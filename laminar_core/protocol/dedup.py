"""Deduplicate rows: exactly once from a source that delivers at least once.

A row is identified by its producer, the generation of that producer, and its number in the sequence
that the generation counts; never by a checkpoint or an epoch. Rows that were in flight at a cut are
replayed in a later one, and dropping what an older epoch sent would lose them (ERRATA 3.19).

Received numbers are kept as runs of consecutive numbers. The first run is the low-water mark: every
number below its end has been received. Further runs are separated by gaps, which are rows still
missing. So memory does not grow with the rows but with disorder, and both kinds of disorder are
bounded:

- A generation has at most ``gaps_max`` gaps. One more is ``TooManyGaps``, an error: the numbers are
  not consecutive, or rows are being lost, and forgetting a gap would lose its rows silently.
- A producer has at most ``generations_max`` generations. A newer one makes it forget the oldest,
  whose rows are ``Expired`` from then on, whether they are copies or not: that is unknown by then.

This state is a part of the operator's snapshot, like any other, so it goes back together with the
source's offsets (ERRATA 3.20); recognising and remembering a row are one step (ERRATA 3.21).

Invariants, checked by ``tests/protocol/test_dedup_model.py``:

I1  A number of a generation is fresh at most once, whatever generations come in between.
I2  A number that never came before is fresh, unless its generation has been forgotten.
I3  A producer's state has at most ``generations_max * (gaps_max + 1)`` runs.
I4  A refused step leaves the state as it was.

Source: ERRATA 3.19 to 3.21 on "exactly-once via epoch-based deduplication" of document 003.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from laminar_core.errors import ConfigurationError, ErrorCode

Run = tuple[int, int]
"""Consecutive numbers of a sequence, half-open: start <= number < stop."""

_stop_of = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds of the state per producer, and what happens to rows beyond them."""

    generations_max: int = 4
    gaps_max: int = 1024
    """Gaps allowed in one generation; one more is an error."""
    expired: Literal["fail", "drop"] = "fail"
    """``drop`` counts rows of a forgotten generation as late; they may be the only copy."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigurationError: a value is out of range.
        """
        for name in ("generations_max", "gaps_max"):
            if not isinstance(getattr(self, name), int):
                raise ConfigurationError(ErrorCode.INVALID_OPTION, f"{name} must be a whole number")
        if self.generations_max < 1 or self.gaps_max < 0:
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION,
                "a retention is of at least one generation and of no negative number of gaps,"
                f" not of {self.generations_max} and {self.gaps_max}",
            )
        if type(self.expired) is not str or self.expired not in ("fail", "drop"):
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"expired is 'fail' or 'drop', not {self.expired!r}"
            )


@dataclass(frozen=True, slots=True)
class SeenGeneration:
    """Numbers of one generation that have come: disjoint runs, ascending, no two adjacent."""

    generation: int
    runs: tuple[Run, ...] = ()

    @property
    def gaps(self) -> int:
        """The number of gaps between the lowest received number and the highest."""
        return len(self.runs) - 1


@dataclass(frozen=True, slots=True)
class SeenProducer:
    """The received numbers of one producer; generations ascending."""

    generations: tuple[SeenGeneration, ...] = ()
    newest_forgotten: int | None = None
    """Newest generation whose runs were dropped. Its rows, and older ones, can no longer
    be distinguished from copies.
    """


@dataclass(frozen=True, slots=True)
class Admitted:
    """The next state, and the runs of numbers that had not been received before."""

    seen: SeenProducer
    fresh: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Expired:
    """The generation has been forgotten: rows of it may be new, or copies."""

    newest_forgotten: int


@dataclass(frozen=True, slots=True)
class TooManyGaps:
    """The numbers that have come of the generation would be scattered too widely."""

    gaps: int
    first_missing: int


Outcome = Admitted | Expired | TooManyGaps


def admit(
    seen: SeenProducer, generation: int, numbers: Sequence[Run], retention: Retention
) -> Outcome:
    """Separate the fresh rows of one generation from copies. Pure.

    ``numbers`` are ascending, disjoint runs as in ``SeenGeneration``: duplicates within one
    call are for the caller to remove.
    """
    known = {s.generation: s for s in seen.generations}
    floor = _forgotten(seen, retention)
    if generation not in known and floor is not None and generation <= floor:
        return Expired(floor)
    before = known.get(generation, SeenGeneration(generation))
    fresh = subtract(numbers, before.runs)
    if not fresh:
        return Admitted(seen, ())
    after = SeenGeneration(generation, unite(before.runs, fresh))
    if after.gaps > retention.gaps_max:
        return TooManyGaps(after.gaps, after.runs[0][1])
    known[generation] = after
    return Admitted(_retained(known, seen.newest_forgotten, retention), fresh)


def _forgotten(seen: SeenProducer, retention: Retention) -> int | None:
    """Newest generation that is not remembered although a row of it may have come.

    If there is room for no other generation, one older than all that are remembered would be the
    first to go: it is forgotten before it begins.
    """
    if len(seen.generations) < retention.generations_max:
        return seen.newest_forgotten
    return seen.generations[0].generation - 1


def _retained(
    known: dict[int, SeenGeneration], newest_forgotten: int | None, retention: Retention
) -> SeenProducer:
    kept = sorted(known)
    if surplus := kept[: -retention.generations_max]:
        newest_forgotten = surplus[-1]
    return SeenProducer(tuple(known[g] for g in kept if g not in surplus), newest_forgotten)


def subtract(numbers: Iterable[Run], known: Sequence[Run]) -> tuple[Run, ...]:
    """Return the numbers that are in no run of ``known``; both arguments ascend and are disjoint.

    >>> subtract([(0, 10)], [(2, 4), (8, 12)])
    ((0, 2), (4, 8))
    """
    missing: list[Run] = []
    for start, stop in numbers:
        at = start
        for known_start, known_stop in known[bisect_right(known, start, key=_stop_of) :]:
            if known_start >= stop:
                break
            if at < known_start:
                missing.append((at, known_start))
            at = known_stop
        if at < stop:
            missing.append((at, stop))
    return tuple(missing)


def unite(first: Sequence[Run], second: Sequence[Run]) -> tuple[Run, ...]:
    """Return the union of two disjoint sets of runs, with as few runs as possible.

    >>> unite([(0, 2), (6, 8)], [(2, 4), (9, 10)])
    ((0, 4), (6, 8), (9, 10))
    """
    united: list[Run] = []
    for start, stop in sorted((*first, *second)):
        if united and united[-1][1] == start:
            united[-1] = (united[-1][0], stop)
        else:
            united.append((start, stop))
    return tuple(united)
