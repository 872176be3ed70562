"""Detect the end of a loop with two waves of four counters (Mattern 1987, section 6).

A loop ends when its inputs from outside have ended and no batch is left in it, neither in a queue
nor on its way. No process can see that at once: the workers are asked in waves, one after the
other, and each answers, between two units of work, with what it knows of each loop:

* ``outside_ended``: every channel that enters the loop from outside has been read to its end;
* ``produced``: batches that its subtasks have put on the loop's edges so far, and those that they
  found there when they were restored;
* ``consumed``: batches that they have taken from the loop's edges and worked off; one less for each
  task in which rows wait, or a timer by the clock.

The loop is over when wave *k* found every outside input ended, and wave *k+1* counts as many
batches produced as wave *k* counted consumed.

Proof. Inside a loop batches come only of batches: event time does not travel in it, and what waits
for the clock counts as a batch that is not worked off. Let *t* be a moment between the two waves,
C(t) and P(t) the true totals then.
Counters never fall, so consumed(k) <= C(t) and P(t) <= produced(k+1). Nothing is consumed that was
not produced, C(t) <= P(t). If consumed(k) = produced(k+1), all of these are equal: at *t* nothing
was queued or on its way, and no worker was busy, as answers are given between units of work. What
enters from outside had been worked off before *t*. So there is nothing left that could start
anything. One wave alone proves nothing: a batch may be consumed where the wave has been, and its
offspring be counted where it comes later.

It ends. Once a loop is quiet with its outside inputs ended, counters stand still, and the second
wave from then on finds it over.

*Loop* means all that ends together: every vertex on a common cycle, so loops that are nested or
share a vertex are one. Loops in a row are several, and the second one ends after the first.

A wave concerns one generation. Answers of another round are ignored, so a coordinator that begins
again only has to count on from its own first round.

Source: PROTOCOL section 8; ERRATA 2.9 (end of input inside a loop never arrives by itself).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class LoopCounts:
    """Counters of one loop, of one worker or summed over all."""

    outside_ended: bool
    produced: int
    consumed: int


@dataclass(frozen=True, slots=True)
class TerminationState:
    """The wave under way, and what the last one found. Loops that are over are forgotten."""

    workers: frozenset[int]
    loops: frozenset[str]
    """Loops that are not over yet."""
    round_number: int = 0
    """Number of the newest wave; 0 before the first one."""
    missing: frozenset[int] = frozenset()
    """Workers that still have to answer it."""
    totals: tuple[tuple[str, LoopCounts], ...] = ()
    """Sums over the answers received so far, per loop."""
    consumed_before: tuple[tuple[str, int], ...] = ()
    """By loop, what the last wave counted, if it found all outside inputs ended."""


def initial(workers: Iterable[int], loops: Iterable[str]) -> TerminationState:
    """Return the state before the first wave."""
    return TerminationState(frozenset(workers), frozenset(loops))


def begin_wave(state: TerminationState) -> TerminationState:
    """Start the next wave; the last one has to be complete. Then ask every worker."""
    assert not state.missing, "two waves at once would count different moments"
    nothing = LoopCounts(outside_ended=True, produced=0, consumed=0)
    return replace(
        state,
        round_number=state.round_number + 1,
        missing=state.workers,
        totals=tuple((loop, nothing) for loop in sorted(state.loops)),
    )


def answer(
    state: TerminationState, round_number: int, worker: int, counts: Mapping[str, LoopCounts]
) -> tuple[TerminationState, frozenset[str]]:
    """Take a worker's answer; return the loops that are now known to be over, each once."""
    if round_number != state.round_number or worker not in state.missing:
        return state, frozenset()
    totals = tuple((loop, _add(total, counts[loop])) for loop, total in state.totals)
    state = replace(state, missing=state.missing - {worker}, totals=totals)
    if state.missing:
        return state, frozenset()
    before = dict(state.consumed_before)
    over = frozenset(loop for loop, total in totals if is_over(before.get(loop), total))
    known = tuple((loop, t.consumed) for loop, t in totals if t.outside_ended and loop not in over)
    return replace(state, loops=state.loops - over, consumed_before=known), over


def is_over(consumed_before: int | None, total: LoopCounts) -> bool:
    """Compare what the last wave saw consumed with what this one saw produced."""
    return consumed_before == total.produced


def _add(one: LoopCounts, other: LoopCounts) -> LoopCounts:
    return LoopCounts(
        one.outside_ended and other.outside_ended,
        one.produced + other.produced,
        one.consumed + other.consumed,
    )
