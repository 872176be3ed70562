"""All interleavings of small loops with the waves that ask whether they are over.

The world: workers in a ring that send each other messages over FIFO channels, and outside inputs
that end. A message is the tuple of messages that follow from it, so ``()`` leaves the loop and
``((), ())`` becomes two that leave it. A worker answers a wave between two messages. The claims: a
loop that is called over has nothing left in it, and one with nothing left is called over.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from laminar_core.protocol import termination
from laminar_core.protocol.termination import (
    LoopCounts,
    TerminationState,
    answer,
    begin_wave,
    initial,
)

LOOP = "loop"
WAVES_MAX = 2

Message = tuple["Message", ...]
LAST: Message = ()
ONE_MORE: Message = (LAST,)
TWO_MORE: Message = (ONE_MORE,)
SPLITS: Message = (LAST, LAST)


@dataclass(frozen=True)
class Worker:
    outside: Message
    """The message that still comes from outside; then that input ends."""
    ended: bool = False
    produced: int = 0
    consumed: int = 0

    @property
    def counts(self) -> LoopCounts:
        return LoopCounts(self.ended, self.produced, self.consumed)


@dataclass(frozen=True)
class World:
    workers: tuple[Worker, ...]
    channels: tuple[tuple[tuple[int, int], Message], ...]
    """By (sender, receiver)."""
    detector: TerminationState
    asked: frozenset[int] = frozenset()
    answers: frozenset[tuple[int, int, LoopCounts]] = frozenset()
    called_over: bool = False

    @property
    def quiet(self) -> bool:
        return all(w.ended for w in self.workers) and not any(m for _, m in self.channels)


def world(*outside: Message, restored: Message = ()) -> World:
    """``restored`` messages are on their way from the last worker to the first."""
    count = len(outside)
    channels = {(sender, (sender + 1) % count): () for sender in range(count)}
    channels[count - 1, 0] = restored
    workers = [Worker(messages) for messages in outside]
    workers[0] = replace(workers[0], produced=len(restored))
    return World(tuple(workers), tuple(channels.items()), initial(range(count), {LOOP}))


def steps(now: World) -> Iterator[World]:
    yield from work(now)
    yield from waves(now)


def work(now: World) -> Iterator[World]:
    for index, worker in enumerate(now.workers):
        if worker.outside:
            first, *rest = worker.outside
            yield send(now, index, replace(worker, outside=tuple(rest)), first)
        elif not worker.ended:
            yield put(now, index, replace(worker, ended=True))
    for channel, messages in now.channels:
        if messages:
            receiver = channel[1]
            worker = now.workers[receiver]
            popped = with_channel(now, channel, messages[1:])
            taken = replace(worker, consumed=worker.consumed + 1)
            yield send(popped, receiver, taken, messages[0])


def waves(now: World) -> Iterator[World]:
    detector = now.detector
    if not detector.missing and detector.loops and detector.round_number < WAVES_MAX:
        begun = begin_wave(detector)
        yield replace(now, detector=begun, asked=begun.workers)
    for worker in now.asked:
        told = (detector.round_number, worker, now.workers[worker].counts)
        yield replace(now, asked=now.asked - {worker}, answers=now.answers | {told})
    for told in now.answers:
        round_number, worker, counts = told
        after, over = answer(detector, round_number, worker, {LOOP: counts})
        left = now.answers - {told}
        yield replace(now, detector=after, answers=left, called_over=now.called_over or bool(over))


def send(now: World, sender: int, worker: Worker, messages: Message) -> World:
    channel = (sender, (sender + 1) % len(now.workers))
    queued = dict(now.channels)[channel]
    now = put(now, sender, replace(worker, produced=worker.produced + len(messages)))
    return with_channel(now, channel, (*queued, *messages))


def put(now: World, index: int, worker: Worker) -> World:
    return replace(now, workers=(*now.workers[:index], worker, *now.workers[index + 1 :]))


def with_channel(now: World, channel: tuple[int, int], messages: Message) -> World:
    return replace(now, channels=tuple({**dict(now.channels), channel: messages}.items()))


def explore(first: World) -> tuple[set[World], bool]:
    """Every reachable world, and whether the loop was called over before it was."""
    seen, todo, early = {first}, [first], False
    while todo:
        now = todo.pop()
        early = early or (now.called_over and not now.quiet)
        for following in steps(now):
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return seen, early


WORLDS = {
    "one worker": world((TWO_MORE, ONE_MORE)),
    "two workers": world((TWO_MORE,), (ONE_MORE,)),
    "two hops each": world((TWO_MORE,), (TWO_MORE,)),
    "only one has an input": world((SPLITS,), ()),
    "nothing at all": world((), ()),
    "restored messages": world((ONE_MORE,), (), restored=(SPLITS, LAST)),
    "three workers": world(((SPLITS,),), (), (ONE_MORE,)),
}


explore_once = cache(explore)


@pytest.mark.parametrize("name", WORLDS)
def test_no_loop_is_called_over_while_something_is_in_it(name: str) -> None:
    seen, early = explore_once(WORLDS[name])
    assert not early
    assert any(now.called_over for now in seen)


@pytest.mark.parametrize("name", WORLDS)
def test_a_quiet_loop_is_called_over_by_the_second_wave_that_begins_then(name: str) -> None:
    seen, _ = explore_once(WORLDS[name])
    for now in seen:
        if now.quiet and not now.called_over and not now.detector.missing:
            assert ends_within_two_waves(now)


def ends_within_two_waves(now: World) -> bool:
    detector, over = now.detector, frozenset()
    for _ in range(2):
        detector = begin_wave(detector)
        for index, worker in enumerate(now.workers):
            counts = {LOOP: worker.counts}
            detector, ended = answer(detector, detector.round_number, index, counts)
            over |= ended
    return over == {LOOP}


MUTANTS = {
    "one wave is enough": lambda _, total: total.produced == total.consumed,
    "one wave is enough when nothing comes in": (
        lambda _, total: total.outside_ended and total.produced == total.consumed
    ),
    "the second wave's own counts": (
        lambda before, total: before is not None and total.produced == total.consumed
    ),
    "the same number consumed twice": lambda before, total: before == total.consumed,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_exploration_finds_what_is_wrong_with_simpler_rules(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "is_over", MUTANTS[mutant])
    assert any(explore(first)[1] for first in WORLDS.values())


def test_the_exploration_finds_that_the_input_from_outside_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(termination, "_add", lambda a, b: replace(_add(a, b), outside_ended=True))
    assert explore(WORLDS["two workers"])[1]


_add = termination._add
