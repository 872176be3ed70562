"""Drivers that expect the same generation, in every order of what they do to the store."""

from collections import Counter

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.objectstore.interleavings import Process, outcomes, sampled
from tests.store.stores import JOB, claim, claimant, elsewhere, open_job

UNEXPECTED, OWNED = ErrorCode.UNEXPECTED_GENERATION, ErrorCode.JOB_OWNED


def starter(number: int, expected: int | None, **options: object) -> Process:
    """A driver on a machine of its own; the number of its generation, or why it has none."""
    owner = elsewhere(number)

    def start(objects: ObjectStore) -> int | ErrorCode:
        store = CheckpointStore(objects, JOB)
        try:
            return store.claims.claim(
                claimant(owner),
                wait_ms=lambda _: None,
                expected=None if expected is None else Generation(expected),
                **options,
            )
        except ConfigurationError as error:
            return error.code

    return start


def after(generations: int) -> MemoryObjectStore:
    """The store of a job whose driver of that generation is gone and recorded no end."""
    store = open_job()
    for _ in range(generations):
        claim(store)
    assert isinstance(store.objects, MemoryObjectStore)
    return store.objects


@pytest.mark.parametrize("generations", [0, 2])
@pytest.mark.parametrize("other", ["same", "take-over", "savepoint"])
def test_of_two_that_expect_the_same_one_starts(generations: int, other: str) -> None:
    """Also if one of them goes on under the numbers of another job, from its savepoint."""
    options = {"savepoint": {"above": Generation(7)}}.get(other, {"take_over": True})
    processes = [
        starter(1, generations, take_over=True),
        starter(2, generations, **options | {"take_over": True}),
    ]
    seen = Counter()
    schedules = (
        outcomes(after(generations), processes)
        if other == "same"
        else sampled(after(generations), processes, range(300))
    )
    for left, results in schedules:
        started = [result for result in results if isinstance(result, int)]
        assert len(started) == 1, results
        assert [result for result in results if result not in started] == [UNEXPECTED]
        assert CheckpointStore(left, JOB).claims.newest() == started[0]
        seen[results.index(started[0])] += 1
    assert set(seen) == {0, 1}, seen


def test_who_expects_nothing_does_not_make_it_two() -> None:
    """It may be faster, or come later and take the job over; the other one never skips it."""
    seen = Counter()
    processes = [starter(1, 2, take_over=True), starter(2, None, take_over=True)]
    for _, results in sampled(after(2), processes, range(300)):
        seen[tuple(results)] += 1
    assert set(seen) == {(3, OWNED), (3, 4), (UNEXPECTED, 3)}, seen
