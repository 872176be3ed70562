"""Fresh or a copy: by producer, generation and number, within a stated retention."""

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.protocol.dedup import (
    Admitted,
    Expired,
    Retention,
    SeenGeneration,
    SeenProducer,
    TooManyGaps,
    admit,
    subtract,
    unite,
)

RETENTION = Retention(generations_max=2, gaps_max=2)


def runs(text: str) -> tuple[tuple[int, int], ...]:
    """``3-5 8``: numbers from the first to the last, both included."""
    ends = [[int(end) for end in word.split("-")] for word in text.split()]
    return tuple((end[0], end[-1] + 1) for end in ends)


def trace(script: list[tuple[int, str]], retention: Retention = RETENTION) -> list[str]:
    """Fresh numbers of each step; ``expired`` and ``gaps`` for what is refused."""
    seen, happened = SeenProducer(), []
    for generation, numbers in script:
        match admit(seen, generation, runs(numbers), retention):
            case Admitted(after, fresh):
                seen = after
                ends = ((start, stop - 1) for start, stop in fresh)
                happened.append(" ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in ends))
            case Expired(newest):
                happened.append(f"expired {newest}")
            case TooManyGaps(gaps, first):
                happened.append(f"gaps {gaps} {first}")
    return happened


@pytest.mark.parametrize(
    ("script", "happened"),
    [
        ([(1, "0-4"), (1, "5-9")], ["0-4", "5-9"]),
        ([(1, "0-4"), (1, "0-4")], ["0-4", ""]),
        ([(1, "0-4"), (1, "3-6")], ["0-4", "5-6"]),
        ([(1, "2-4"), (1, "0-6")], ["2-4", "0-1 5-6"]),
        ([(1, "0 2 4"), (1, "0-5"), (1, "0-5")], ["0 2 4", "1 3 5", ""]),
        ([(1, "1-3"), (1, "1-3"), (1, "0")], ["1-3", "", "0"]),
    ],
    ids=["consecutive", "again", "overlap", "around", "holes", "from-one"],
)
def test_a_number_is_fresh_once(script, happened: list[str]) -> None:
    assert trace(script) == happened


def test_a_newer_generation_counts_anew_and_lets_no_older_copy_in() -> None:
    script = [(1, "0-4"), (2, "0-2"), (1, "3-6"), (1, "0-6"), (2, "0-3")]
    assert trace(script) == ["0-4", "0-2", "5-6", "", "3"]


def test_a_newer_generation_loses_no_older_row_that_is_still_to_come() -> None:
    """ERRATA 3.19: rows that were in flight come after newer ones of the same producer."""
    assert trace([(2, "0-9"), (1, "0-3"), (1, "0-3")]) == ["0-9", "0-3", ""]


def test_the_oldest_generation_is_forgotten_and_then_refused() -> None:
    script = [(1, "0-4"), (2, "0"), (3, "0"), (1, "0-4"), (1, "5"), (2, "0-1")]
    assert trace(script) == ["0-4", "0", "0", "expired 1", "expired 1", "1"]


def test_a_generation_between_the_remembered_ones_and_a_forgotten_one_is_refused() -> None:
    assert trace([(5, "0"), (7, "0"), (3, "0"), (6, "0"), (5, "0")]) == [
        "0",
        "0",
        "expired 4",
        "0",
        "expired 5",
    ]


def test_more_room_does_not_bring_back_what_was_forgotten() -> None:
    """Goal: a retention raised at a restart makes no copy of a forgotten generation fresh."""
    seen = SeenProducer((SeenGeneration(5, runs("0")),), newest_forgotten=4)
    assert admit(seen, 4, runs("9"), Retention(generations_max=9)) == Expired(4)
    assert isinstance(admit(seen, 6, runs("9"), Retention(generations_max=9)), Admitted)


def test_less_room_forgets_as_many_as_it_must() -> None:
    seen = SeenProducer(tuple(SeenGeneration(g, runs("0")) for g in (1, 2, 3)))
    after = admit(seen, 4, runs("0"), Retention(generations_max=2))
    assert isinstance(after, Admitted)
    assert [s.generation for s in after.seen.generations] == [3, 4]
    assert after.seen.newest_forgotten == 2


def test_too_many_gaps_are_refused_and_filling_them_is_not() -> None:
    script = [(1, "0 2 4"), (1, "6"), (1, "1"), (1, "6"), (1, "8 10"), (1, "0-10")]
    assert trace(script) == ["0 2 4", "gaps 3 1", "1", "6", "gaps 4 3", "3 5 7-10"]


def test_gaps_are_counted_per_generation() -> None:
    assert trace([(1, "0 2 4"), (2, "0 2 4")]) == ["0 2 4", "0 2 4"]


def test_what_is_known_leaves_the_state_as_it_was() -> None:
    seen = SeenProducer((SeenGeneration(1, runs("0-9")),))
    after = admit(seen, 1, runs("0-9"), RETENTION)
    assert isinstance(after, Admitted)
    assert after.seen is seen


@pytest.mark.parametrize("options", [{"generations_max": 0}, {"gaps_max": -1}, {"expired": "keep"}])
def test_a_retention_that_cannot_be_meant_is_refused(options) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Retention(**options)
    assert caught.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize(
    ("numbers", "known", "missing"),
    [
        ("0-9", "", "0-9"),
        ("0-9", "0-9", ""),
        ("0-9", "10-11", "0-9"),
        ("5-9", "0-4", "5-9"),
        ("5-9", "0-5", "6-9"),
        ("0-9", "2-3 5", "0-1 4 6-9"),
        ("0-1 4-9", "1-4 9", "0 5-8"),
        ("3", "0-9", ""),
    ],
)
def test_subtract(numbers: str, known: str, missing: str) -> None:
    assert subtract(runs(numbers), runs(known)) == runs(missing)


@pytest.mark.parametrize(
    ("first", "second", "united"),
    [("", "0-1", "0-1"), ("0-1", "2-3", "0-3"), ("2-3", "0", "0 2-3"), ("0 2", "1", "0-2")],
)
def test_unite(first: str, second: str, united: str) -> None:
    assert unite(runs(first), runs(second)) == runs(united)
