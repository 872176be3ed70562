"""Equal values have equal numbers."""

from verification.explorer.queues import EMPTY, Numbered, Queues


def test_a_value_keeps_its_number() -> None:
    numbered: Numbered[str] = Numbered()
    assert [numbered.number(v) for v in ("a", "b", "a")] == [0, 1, 0]
    assert (numbered[1], len(numbered)) == ("b", 2)


def test_a_key_stands_for_a_value_that_has_none() -> None:
    numbered: Numbered[list[int]] = Numbered()
    assert [numbered.number([1], "x"), numbered.number([2], "y"), numbered.number([1], "x")] == [
        0, 1, 0,
    ]  # fmt: skip


def test_queues_are_fifo_and_equal_contents_are_one_queue() -> None:
    queues = Queues()
    once = queues.push(queues.push(EMPTY, 5), 6)
    assert queues.items(once) == (5, 6)
    first, rest = queues.pop(once)
    assert (first, queues.items(rest)) == (5, (6,))
    assert rest == queues.push(EMPTY, 6)
    assert queues.pop(rest) == (6, EMPTY)
