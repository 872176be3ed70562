"""Explore all orders of events of a generation that starts, while greetings are lost.

The real steps of ``protocol/greetings.py`` run in a coordinator and in each worker. Between two
workers a greeting may be under way, arrive, or be lost with its connection, and it is sent again.
Some connections may never carry anything. Messages between coordinator and workers come in order
and are never lost: ``link/reliable_delivery.py`` sees to that.

Rules that are checked in each state: a worker that has begun was reached by every other worker; a
pair that the coordinator names did not reach each other; and from each state in which every
connection works, all workers can still begin. A world in which the coordinator lets workers begin
without one greeting, or in which a lost greeting is not sent again, must be caught.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from laminar_core.protocol.greetings import (
    EndUnreachable,
    Greet,
    GreetingArrived,
    GreetingEffect,
    Greetings,
    LetBegin,
    Pair,
    Registered,
    Report,
    Reported,
    SendAddresses,
    TimePassed,
    WorkerGreetings,
    step,
    worker_step,
)

T = TypeVar("T")

_LATE_MS = 10_000_000.0


@dataclass(frozen=True, slots=True)
class GreetingWorld:
    """A world to explore: how many workers, what is lost, and by which rules."""

    workers: int = 3
    cut: frozenset[Pair] = frozenset()
    """Pairs between which nothing ever arrives."""
    lossy: frozenset[Pair] = frozenset()
    """Pairs between which a greeting may be lost, any number of times."""
    repeats: frozenset[int] = frozenset()
    """Workers that greet again, any number of times."""
    deadline: bool = False
    """Whether the time for greetings may be over, at any moment."""
    forgiving: bool = False
    """A planted fault: the workers begin although one greeting is missing."""


@dataclass(frozen=True, slots=True)
class _Worker:
    registered: bool = False
    greetings: WorkerGreetings | None = None
    """None: it does not know the addresses of the others."""
    inbox: tuple[SendAddresses | LetBegin, ...] = ()
    """Messages of the coordinator that it has not taken."""
    begun: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    coordinator: Greetings
    workers: tuple[_Worker, ...]
    under_way: frozenset[Pair] = frozenset()
    """Greetings on their way; two of the same pair count as one."""
    arrived: frozenset[Pair] = frozenset()
    """Greetings that have been received, as the world knows."""
    reports: tuple[tuple[frozenset[int], ...], ...] = ()
    """By worker, the reports on their way to the coordinator."""
    named: tuple[Pair, ...] | None = None
    """Pairs that were reported as unreachable."""


@dataclass(frozen=True, slots=True)
class GreetingReport:
    """The result of one world."""

    states: int
    begun: int
    """States in which all workers have begun."""
    violations: tuple[str, ...]


def explore_greetings(world: GreetingWorld) -> GreetingReport:
    """Return how many states there are, and what is wrong in them."""
    everybody = tuple(_Worker() for _ in range(world.workers))
    silent = ((),) * world.workers
    start = _State(Greetings(world.workers, limit_ms=0.0), everybody, reports=silent)
    todo, places = [start], {_key(start): 0}
    before: list[list[int]] = [[]]
    begun: list[int] = []
    violations: dict[str, None] = {}
    while todo:
        state = todo.pop()
        place = places[_key(state)]
        violations |= dict.fromkeys(_wrong_with(world, state))
        if all(worker.begun for worker in state.workers):
            begun.append(place)
        for following in _following(world, state):
            key = _key(following)
            if key not in places:
                places[key] = len(before)
                before.append([])
                todo.append(following)
            before[places[key]].append(place)
    if not world.cut and not world.deadline and len(_all_before(before, begun)) < len(places):
        violations["the workers can be stuck although every connection works"] = None
    return GreetingReport(len(places), len(begun), tuple(violations))


def _all_before(before: list[list[int]], places: list[int]) -> set[int]:
    """Return the states from which one of ``places`` can be reached."""
    found, todo = set(places), list(places)
    while todo:
        for earlier in before[todo.pop()]:
            if earlier not in found:
                found.add(earlier)
                todo.append(earlier)
    return found


def _following(world: GreetingWorld, state: _State) -> Iterator[_State]:
    for n, worker in enumerate(state.workers):
        if not worker.registered:
            registered = _with(state.workers, n, replace(worker, registered=True))
            yield _coordinated(world, replace(state, workers=registered), Registered(n, 0.0))
        if worker.inbox:
            yield _told(state, n)
        if n in world.repeats and worker.greetings is not None and not worker.begun:
            yield _timed(state, n)
    for pair in state.under_way:
        rest = replace(state, under_way=state.under_way - {pair})
        if pair in world.cut | world.lossy:
            yield rest
        if pair not in world.cut and state.workers[pair[1]].greetings is not None:
            yield _greeted(rest, pair)  # Before, it waits in the receiver's socket.
    for receiver, line in enumerate(state.reports):
        if line:
            rest = replace(state, reports=_with(state.reports, receiver, line[1:]))
            yield _coordinated(world, rest, Reported(receiver, line[0]))
    if world.deadline and state.coordinator.since_ms is not None:
        yield _coordinated(world, state, TimePassed(_LATE_MS))


def _coordinated(
    world: GreetingWorld, state: _State, event: Registered | Reported | TimePassed
) -> _State:
    if world.forgiving and isinstance(event, Reported) and len(event.missing) == 1:
        event = replace(event, missing=frozenset[int]())
    coordinator, effects = step(state.coordinator, event)
    state = replace(state, coordinator=coordinator)
    for effect in effects:
        state = _carried_out(state, effect)
    return state


def _carried_out(state: _State, effect: GreetingEffect) -> _State:
    match effect:
        case EndUnreachable(pairs):
            return replace(state, named=pairs)
        case SendAddresses() | LetBegin():
            workers = tuple(replace(w, inbox=(*w.inbox, effect)) for w in state.workers)
            return replace(state, workers=workers)


def _told(state: _State, n: int) -> _State:
    """A worker takes a message of the coordinator."""
    worker = state.workers[n]
    first, worker = worker.inbox[0], replace(worker, inbox=worker.inbox[1:])
    if isinstance(first, LetBegin):
        return replace(state, workers=_with(state.workers, n, replace(worker, begun=True)))
    worker = replace(worker, greetings=WorkerGreetings(n, len(state.workers)))
    return _timed(replace(state, workers=_with(state.workers, n, worker)), n)


def _timed(state: _State, n: int) -> _State:
    """Time passes for a worker that has not begun: it greets, and reports."""
    worker = state.workers[n]
    assert worker.greetings is not None
    due = replace(worker.greetings, greeting_due_ms=0.0, report_due_ms=0.0)
    greetings, effects = worker_step(due, TimePassed(0.0))
    greetings = replace(greetings, greeting_due_ms=0.0, report_due_ms=0.0)
    state = replace(state, workers=_with(state.workers, n, replace(worker, greetings=greetings)))
    return _with_effects(state, n, effects)


def _greeted(state: _State, pair: Pair) -> _State:
    """A greeting arrives."""
    sender, receiver = pair
    worker = state.workers[receiver]
    assert worker.greetings is not None
    state = replace(state, arrived=state.arrived | {pair})
    if worker.begun:
        return state
    greetings, effects = worker_step(worker.greetings, GreetingArrived(sender))
    worker = replace(worker, greetings=greetings)
    state = replace(state, workers=_with(state.workers, receiver, worker))
    return _with_effects(state, receiver, effects)


def _with_effects(state: _State, n: int, effects: tuple[Greet | Report, ...]) -> _State:
    for effect in effects:
        match effect:
            case Greet():
                sent = {(n, peer) for peer in range(len(state.workers)) if peer != n}
                state = replace(state, under_way=state.under_way | sent)
            case Report(missing):
                line = (*state.reports[n], missing)
                state = replace(state, reports=_with(state.reports, n, line))
    return state


def _wrong_with(world: GreetingWorld, state: _State) -> Iterator[str]:
    pairs = {(s, r) for s in range(world.workers) for r in range(world.workers) if s != r}
    if any(worker.begun for worker in state.workers):
        for sender, receiver in sorted(pairs - state.arrived):
            yield f"a worker has begun, and {sender} has not reached {receiver}"
    for sender, receiver in state.named or ():
        known = [p for p in state.coordinator.reports.get(receiver, {sender}) if p == sender]
        if not known:
            yield f"{sender} has reached {receiver}, as reported, and the pair is named"
    if state.named is not None and any(worker.begun for worker in state.workers):
        yield "the generation ends as unreachable, and a worker has begun"


def _key(state: _State) -> tuple[object, ...]:
    book = state.coordinator
    return (
        book.registered,
        tuple(sorted((receiver, *sorted(missing)) for receiver, missing in book.reports.items())),
        (book.since_ms, book.ended),
        state.workers,
        state.under_way,
        state.arrived,
        state.reports,
        state.named,
    )


def _with(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


_TWO = frozenset({0, 1})

GREETING_WORLDS: Mapping[str, GreetingWorld] = {
    "one worker": GreetingWorld(workers=1),
    "two workers, greetings are lost": GreetingWorld(
        workers=2, lossy=frozenset({(0, 1), (1, 0)}), repeats=_TWO
    ),
    "two workers, the time is over at any moment": GreetingWorld(
        workers=2, lossy=frozenset({(0, 1), (1, 0)}), repeats=_TWO, deadline=True
    ),
    "three workers, greetings of one are lost": GreetingWorld(
        lossy=frozenset({(0, 1), (0, 2)}), repeats=frozenset({0})
    ),
    "three workers, one direction is cut": GreetingWorld(
        cut=frozenset({(2, 0)}), repeats=frozenset({2}), deadline=True
    ),
}
"""In all of these, every order of events is right."""

GREETING_MUTANTS: Mapping[str, GreetingWorld] = {
    "begins without one greeting": GreetingWorld(repeats=frozenset({0}), forgiving=True),
    "a lost greeting is not sent again": GreetingWorld(workers=2, lossy=frozenset({(0, 1)})),
}
"""In each of these, some order of events is wrong."""
