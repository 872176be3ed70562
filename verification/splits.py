"""Explore all orders of events of a source whose splits are found while the job runs.

The real ``SplitBook`` is in the driver. Around it are the discovery's input, one ordered line of
messages per worker, workers that have splits, checkpoints, and deaths of the whole job, which goes
on from its newest checkpoint with another number of workers. At every cut, each split that the
discovery counts as found is in exactly one worker's position.

Two rules make this true, and a world without one of them must be caught: what was found is kept as
of *sending* the trigger, and nothing overtakes on a line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from laminar_core.protocol.split_book import (
    AddSplits,
    Found,
    FoundSoFar,
    FoundSplit,
    KeepState,
    NothingMore,
    Reported,
    SplitBook,
    TriggerSent,
    opened,
    step,
)
from laminar_core.protocol.types import CheckpointId

T = TypeVar("T")
Kept = Literal["trigger", "completion"]
Message = tuple[Literal["add", "end", "cut"], int]
"""Kind and number: add this split; end, where the number means nothing; cut for this checkpoint."""


@dataclass(frozen=True, slots=True)
class SplitWorld:
    """A world to explore: how much of everything there is, and by which rules."""

    splits: int = 3
    workers: tuple[int, ...] = (2,)
    """Numbers of workers, of one generation after the other."""
    checkpoints: int = 2
    kept: Kept = "trigger"
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class _Cut:
    """A checkpoint that is under way or complete."""

    checkpoint_id: int
    found: FoundSoFar
    parts: tuple[frozenset[int] | None, ...]
    ended: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _State:
    generation: int
    book: SplitBook
    lines: tuple[tuple[Message, ...], ...]
    has: tuple[frozenset[int], ...]
    ended: tuple[bool, ...]
    """Workers that know that they have all splits."""
    running: _Cut | None = None
    base: _Cut | None = None
    """The newest complete checkpoint."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """The result of one world."""

    states: int
    cuts: int
    """Complete checkpoints, over all orders of events."""
    violations: tuple[str, ...]


def explore_splits(world: SplitWorld) -> SplitReport:
    """Return how many states there are, and what is wrong in them."""
    start = _started(world, 0, None)
    todo, seen, cuts = [start], {_key(start)}, 0
    violations: dict[str, None] = {}
    while todo:
        state = todo.pop()
        for following in _following(world, state):
            if following.base is not state.base and following.base is not None:
                cuts += 1
                violations |= dict.fromkeys(_wrong_with(world, following.base))
            if (key := _key(following)) not in seen:
                seen.add(key)
                todo.append(following)
    return SplitReport(len(seen), cuts, tuple(violations))


def _started(world: SplitWorld, generation: int, base: _Cut | None) -> _State:
    """Deal the splits of the checkpoint anew; a fresh start begins without any."""
    workers = world.workers[generation]
    splits = sorted(s for part in (base.parts if base else ()) for s in part or ())
    ended = base is not None and all(base.ended)
    return _State(
        generation,
        opened(workers, FoundSoFar({"found": 0}) if base is None else base.found),
        ((),) * workers,
        tuple(frozenset(splits[n::workers]) for n in range(workers)),
        (ended or (base is not None and base.found.complete),) * workers,
        base=base,
    )


def _following(world: SplitWorld, state: _State) -> Iterator[_State]:
    yield from _discovered(world, state)
    done = 0 if state.base is None else state.base.checkpoint_id
    if state.running is None and done < world.checkpoints:
        yield _triggered(state, CheckpointId(done + 1))
    for worker, line in enumerate(state.lines):
        for place in range(len(line) if not world.ordered else min(1, len(line))):
            yield _taken(world, state, worker, place)
    if state.generation + 1 < len(world.workers):
        yield _started(world, state.generation + 1, state.base)


def _discovered(world: SplitWorld, state: _State) -> Iterator[_State]:
    """Find one more split, all that are left, or that there are no more."""
    so_far = state.book.found
    found = so_far.state["found"]
    assert isinstance(found, int)
    if so_far.complete:
        return
    for there in {min(found + 1, world.splits), world.splits}:
        new = [FoundSplit(n, 1) for n in range(found, there)]
        event = Found(new, {"found": there}, complete=there == world.splits)
        book, effects = step(state.book, event)
        lines: list[tuple[Message, ...]] = list(state.lines)
        for effect in effects:
            match effect:
                case AddSplits(worker, split_ids):
                    added: tuple[Message, ...] = tuple(("add", n) for n in split_ids)
                    lines[worker] = (*lines[worker], *added)
                case NothingMore():
                    lines = [(*line, ("end", 0)) for line in lines]
                case KeepState():
                    raise AssertionError("no checkpoint was triggered")
        yield replace(state, book=book, lines=tuple(lines))


def _triggered(state: _State, checkpoint_id: CheckpointId) -> _State:
    lines = tuple((*line, ("cut", int(checkpoint_id))) for line in state.lines)
    cut = _Cut(int(checkpoint_id), _kept(state.book), (None,) * len(lines), (False,) * len(lines))
    return replace(state, lines=lines, running=cut)


def _kept(book: SplitBook) -> FoundSoFar:
    _, (effect,) = step(book, TriggerSent(CheckpointId(1)))
    assert isinstance(effect, KeepState)
    return effect.found


def _taken(world: SplitWorld, state: _State, worker: int, place: int) -> _State:
    """A worker takes a message of its line."""
    line = state.lines[worker]
    kind, value = line[place]
    lines = _with(state.lines, worker, line[:place] + line[place + 1 :])
    state = replace(state, lines=lines)
    has = state.has[worker]
    if kind == "end":
        return replace(state, ended=_with(state.ended, worker, True))  # noqa: FBT003 - a value
    if kind == "add":
        state = replace(state, has=_with(state.has, worker, has | {value}))
        report = Reported(worker, len(has) + 1, len(has) + 1)
        book, _ = step(state.book, report)
        return replace(state, book=book)
    assert state.running is not None, "a trigger of no checkpoint"
    cut = replace(
        state.running,
        parts=_with(state.running.parts, worker, has),
        ended=_with(state.running.ended, worker, state.ended[worker]),
    )
    if None in cut.parts:
        return replace(state, running=cut)
    if world.kept == "completion":
        cut = replace(cut, found=_kept(state.book))
    return replace(state, running=None, base=cut)


def _wrong_with(world: SplitWorld, cut: _Cut) -> Iterator[str]:
    placed = sorted(split for part in cut.parts for split in part or ())
    found = cut.found.state["found"]
    assert isinstance(found, int)
    if placed != list(range(found)):
        yield f"the discovery has found {found}, and the workers have {placed}"
    if any(cut.ended) and not cut.found.complete:
        yield "a worker has ended, and more may be found"
    if cut.found.complete and found != world.splits:
        yield "the discovery is complete, and splits are left"


def _key(state: _State) -> tuple[object, ...]:
    """Everything that decides what can follow: loads of workers are part of the book."""
    found = tuple(sorted(_plain(state.book.found.state)))
    return (
        state.generation,
        found,
        state.book.found.complete,
        state.book.loads,
        state.lines,
        state.has,
        state.ended,
        _cut_key(state.running),
        _cut_key(state.base),
    )


def _cut_key(cut: _Cut | None) -> tuple[object, ...] | None:
    if cut is None:
        return None
    found = tuple(sorted(_plain(cut.found.state)))
    return cut.checkpoint_id, found, cut.found.complete, cut.parts, cut.ended


def _plain(state: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in state.items():
        yield name, repr(value)


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


SPLIT_WORLDS: Mapping[str, SplitWorld] = {
    "two workers": SplitWorld(),
    "one, three, two workers": SplitWorld(splits=2, workers=(1, 3, 2)),
    "two, one, two workers": SplitWorld(workers=(2, 1, 2)),
}
"""In all of these, every order of events is right."""

MUTANTS: Mapping[str, SplitWorld] = {
    "what was found, as of the completion": SplitWorld(kept="completion"),
    "messages that overtake": SplitWorld(ordered=False),
}
"""In each of these, some order of events is wrong."""
