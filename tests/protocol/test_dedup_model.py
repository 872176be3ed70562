"""Against a set that remembers every row: nothing twice, nothing lost, and little remembered."""

from hypothesis import given
from hypothesis import strategies as st

from laminar_core.protocol.dedup import (
    Admitted,
    Expired,
    Retention,
    Run,
    SeenProducer,
    TooManyGaps,
    admit,
)

NUMBERS = st.integers(0, 20)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[int, list[Run]]]:
    """Rows of a few generations, in pieces that overlap and repeat."""

    def pieces() -> list[Run]:
        """Ascending and apart, as the rows of one batch are."""
        numbers = sorted(draw(st.sets(NUMBERS, min_size=1, max_size=6)))
        found: list[Run] = []
        for number in numbers:
            if found and found[-1][1] == number:
                found[-1] = (found[-1][0], number + 1)
            else:
                found.append((number, number + 1))
        return found

    return [(draw(st.integers(1, 5)), pieces()) for _ in range(draw(st.integers(0, 25)))]


def flat(runs) -> list[int]:
    return [number for start, stop in runs for number in range(start, stop)]


@given(steps(), st.integers(1, 5), st.integers(0, 5))
def test_every_row_is_fresh_once_as_long_as_its_generation_is_remembered(
    script: list[tuple[int, list[Run]]], generations_max: int, gaps_max: int
) -> None:
    retention = Retention(generations_max, gaps_max)
    seen, came = SeenProducer(), {}
    for generation, numbers in script:
        before = seen
        match admit(seen, generation, numbers, retention):
            case Admitted(seen, fresh):
                known = came.setdefault(generation, set())
                assert flat(fresh) == [n for n in flat(numbers) if n not in known]
                known.update(flat(numbers))
            case Expired(newest):
                remembered = [s.generation for s in seen.generations]
                assert generation <= newest < min(remembered)
                assert len(remembered) == generations_max
            case TooManyGaps(gaps, first):
                known = {*came.get(generation, ()), *flat(numbers)}
                holes = [n for n in known if n + 1 not in known and n != max(known)]
                assert gaps == len(holes) > gaps_max
                assert first == min(holes) + 1
                assert seen is before
        for remembered in seen.generations:
            assert flat(remembered.runs) == sorted(came[remembered.generation])
            assert remembered.gaps <= gaps_max
        assert len(seen.generations) <= generations_max
