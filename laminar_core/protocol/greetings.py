"""Decide when the workers of a generation begin: once everybody is known to reach everybody.

A worker that registers has reached the coordinator, which says nothing about the other workers. So
each worker sends a greeting to every other one, on the connection that will carry its rows, and the
receiver reports whose greetings have arrived. When all have, the coordinator lets the workers
begin. If some are missing after a time, the generation ends, and the pairs are named.

A greeting that is lost with its connection is sent again until the sender begins.

Invariants, checked in every order of events by ``verification/greetings.py``:

G1  A worker begins only after every worker has received a greeting from every other one.
G2  If no connection stays away for ever, every worker begins, whatever else is lost.
G3  A pair that is reported as unreachable has a greeting that did not arrive.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

GREETING_INTERVAL_MS = 1_000.0
"""Time between two greetings to the same worker, and between two reports of some that arrived."""

Pair = tuple[int, int]
"""(sender, receiver) of a greeting."""


# --- the coordinator ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greetings:
    """The state of the coordinator: who has registered, and whose greetings have arrived where."""

    workers: int
    limit_ms: float
    """How long greetings may take, from the moment at which all workers have registered."""
    registered: frozenset[int] = frozenset()
    reports: Mapping[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    """By receiver, the senders whose greetings were missing in its last report."""
    since_ms: float | None = None
    """When all workers had registered; None: they have not yet."""
    ended: bool = False
    """Whether the workers have begun, or the time was over."""

    def missing(self) -> Iterator[Pair]:
        """Yield the pairs whose greeting has not arrived, by receiver."""
        everybody = frozenset(range(self.workers))
        for receiver in range(self.workers):
            for sender in sorted(self.reports.get(receiver, everybody - {receiver})):
                yield sender, receiver

    @property
    def complete(self) -> bool:
        """Whether all greetings have arrived; a worker alone has none to wait for."""
        all_reported = len(self.reports) == self.workers and not any(self.reports.values())
        return all_reported or self.workers == 1


@dataclass(frozen=True, slots=True)
class Registered:
    """A worker has registered."""

    worker: int
    now_ms: float


@dataclass(frozen=True, slots=True)
class Reported:
    """A worker reports whose greetings have not arrived yet."""

    receiver: int
    missing: frozenset[int]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is ``now_ms``."""

    now_ms: float


@dataclass(frozen=True, slots=True)
class SendAddresses:
    """Send every worker the addresses of all others."""


@dataclass(frozen=True, slots=True)
class LetBegin:
    """Let every worker begin."""


@dataclass(frozen=True, slots=True)
class EndUnreachable:
    """End the generation: these greetings did not arrive in time."""

    pairs: tuple[Pair, ...]
    waited_ms: float


GreetingEvent = Registered | Reported | TimePassed
GreetingEffect = SendAddresses | LetBegin | EndUnreachable


def step(state: Greetings, event: GreetingEvent) -> tuple[Greetings, tuple[GreetingEffect, ...]]:
    """Return the next state of the coordinator, and what to do now, in order."""
    if state.ended:
        return state, ()
    match event:
        case Registered(worker, now_ms):
            return _registered(state, worker, now_ms)
        case Reported(receiver, missing):
            return _let_begin(replace(state, reports={**state.reports, receiver: missing}))
        case TimePassed(now_ms):
            if state.since_ms is None or now_ms - state.since_ms <= state.limit_ms:
                return state, ()
            waited_ms = now_ms - state.since_ms
            late = EndUnreachable(tuple(state.missing()), waited_ms)
            return replace(state, ended=True), (late,)


def _registered(
    state: Greetings, worker: int, now_ms: float
) -> tuple[Greetings, tuple[GreetingEffect, ...]]:
    state = replace(state, registered=state.registered | {worker})
    if len(state.registered) < state.workers or state.since_ms is not None:
        return state, ()
    state, begin = _let_begin(replace(state, since_ms=now_ms))
    return state, (SendAddresses(), *begin)


def _let_begin(state: Greetings) -> tuple[Greetings, tuple[GreetingEffect, ...]]:
    if state.since_ms is None or not state.complete:
        return state, ()
    return replace(state, ended=True), (LetBegin(),)


# --- a worker -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerGreetings:
    """The state of a worker that knows the addresses of the others and has not begun."""

    me: int
    workers: int
    arrived: frozenset[int] = frozenset()
    """The workers whose greetings have arrived here."""
    reported: frozenset[int] = frozenset()
    """The part of ``arrived`` that the coordinator knows."""
    greeting_due_ms: float = 0.0
    report_due_ms: float = 0.0

    @property
    def missing(self) -> frozenset[int]:
        """The others whose greetings have not arrived."""
        return frozenset(range(self.workers)) - self.arrived - {self.me}


@dataclass(frozen=True, slots=True)
class GreetingArrived:
    """A greeting of this worker has arrived."""

    sender: int


@dataclass(frozen=True, slots=True)
class Greet:
    """Send a greeting to every other worker."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report to the coordinator whose greetings have not arrived yet."""

    missing: frozenset[int]


def worker_step(
    state: WorkerGreetings, event: GreetingArrived | TimePassed
) -> tuple[WorkerGreetings, tuple[Greet | Report, ...]]:
    """Return the next state of a worker, and what to do now.

    The last greeting is reported at once. Earlier ones are reported only if it stays away: they
    show which one is missing.
    """
    match event:
        case GreetingArrived(sender):
            if sender == state.me or sender not in range(state.workers):
                return state, ()
            state = replace(state, arrived=state.arrived | {sender})
            if state.missing or state.reported == state.arrived:
                return state, ()
            return replace(state, reported=state.arrived), (Report(state.missing),)
        case TimePassed(now_ms):
            return _on_time(state, now_ms)


def _on_time(
    state: WorkerGreetings, now_ms: float
) -> tuple[WorkerGreetings, tuple[Greet | Report, ...]]:
    effects: list[Greet | Report] = []
    next_ms = now_ms + GREETING_INTERVAL_MS
    if now_ms >= state.report_due_ms:
        if state.reported != state.arrived:
            effects.append(Report(state.missing))
        state = replace(state, reported=state.arrived, report_due_ms=next_ms)
    if now_ms >= state.greeting_due_ms:
        state = replace(state, greeting_due_ms=next_ms)
        effects.append(Greet())
    return state, tuple(effects)
