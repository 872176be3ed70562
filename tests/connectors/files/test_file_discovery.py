"""Files that keep coming are found once and whole, whatever dies and whenever."""

import random
from dataclasses import replace

import pytest

from laminar_core.connectors.files.file_discovery import Memory, Rules, Step, step
from laminar_core.connectors.files.places import FileStat

SECOND = 1_000_000
DAY = 86_400 * SECOND


def file(name: str, at_s: int = 0, size: int = 1, arrived_s: int | None = None) -> FileStat:
    arrived_us = (at_s if arrived_s is None else arrived_s) * SECOND
    return FileStat(name, size, at_s * SECOND, arrived_us, f"{size}-{at_s}")


def names(found: Step) -> list[str]:
    return [one.name for one in found.new]


def again(memory: Memory) -> Memory:
    """The memory as a checkpoint brings it back."""
    return Memory.of(memory.as_state())


WHOLE = Rules(whole_at_once=True)


def test_a_file_counts_once_it_looked_the_same_in_two_steps() -> None:
    rules, memory = Rules(), Memory()
    for listed, expected in (
        ([file("a", 1, 5)], []),
        ([file("a", 2, 9)], []),
        ([file("a", 2, 9), file("b", 3)], ["a"]),
        ([file("a", 2, 9), file("b", 3)], ["b"]),
        ([file("a", 2, 9), file("b", 3)], []),
    ):
        found = step(again(memory), listed, rules)
        assert names(found) == expected
        memory = found.memory
    assert memory.waiting == ()
    assert memory.next_id == 2


def test_an_object_counts_when_it_is_listed() -> None:
    assert names(step(Memory(), [file("a")], WHOLE)) == ["a"]


def test_older_files_come_first_and_then_names_decide() -> None:
    listed = [file("a", 9), file("z", 1), file("c", 5), file("b", 5)]
    assert names(step(Memory(), listed, WHOLE)) == ["z", "b", "c", "a"]


def test_a_changed_file_is_named_in_each_step_and_never_read_again() -> None:
    found = step(Memory(), [file("a", 1), file("b", 1)], WHOLE)
    for _ in range(2):
        found = step(again(found.memory), [file("a", 2), file("b", 1, 7)], WHOLE)
        assert (names(found), found.changed) == ([], ("a", "b"))


def test_a_deleted_file_is_no_matter_and_is_not_read_again_when_it_comes_back() -> None:
    found = step(Memory(), [file("a", 1)], WHOLE)
    found = step(again(found.memory), [], WHOLE)
    assert names(step(again(found.memory), [file("a", 1)], WHOLE)) == []


class TestHorizon:
    """With a horizon old names are forgotten, and nothing is read twice for it."""

    RULES = replace(WHOLE, max_age_us=10 * SECOND)

    def test_names_behind_it_are_forgotten_and_their_files_stay_unread(self) -> None:
        listed = [file(f"f{n:03}", n) for n in range(100)]
        found = step(Memory(), listed, self.RULES)
        assert len(found.new) == 100
        assert len(found.memory.seen) == 11
        for _ in range(3):
            found = step(again(found.memory), listed, self.RULES)
            assert (names(found), found.changed, found.late) == ([], (), ())

    def test_a_file_that_comes_with_an_old_time_is_late(self) -> None:
        found = step(Memory(), [file("a", 100)], self.RULES)
        late = [file("a", 100), file("old", 50, arrived_s=101), file("b", 95)]
        found = step(again(found.memory), late, self.RULES)
        assert (names(found), found.late) == (["b"], ("old",))

    def test_after_a_long_pause_everything_that_came_meanwhile_is_new(self) -> None:
        found = step(Memory(), [file("a", 100)], self.RULES)
        listed = [file("a", 100), *(file(f"n{n}", 200 + 50 * n) for n in range(5))]
        assert len(step(again(found.memory), listed, self.RULES).new) == 5

    def test_it_never_goes_back(self) -> None:
        found = step(Memory(), [file("a", 100)], self.RULES)
        found = step(found.memory, [file("b", 95)], self.RULES)
        assert (found.memory.horizon_s, found.memory.newest_s) == (90, 100)


class TestOrdered:
    """Names only grow: the memory is the last one."""

    RULES = replace(WHOLE, ordered=True)

    def test_the_state_does_not_grow(self) -> None:
        memory, seen = Memory(), []
        for n in range(0, 500, 10):
            found = step(again(memory), [file(f"k{m:04}") for m in range(n, n + 10)], self.RULES)
            memory, seen = found.memory, seen + names(found)
        assert seen == [f"k{n:04}" for n in range(500)]
        assert (memory.last, len(memory.seen), memory.next_id) == ("k0499", 0, 500)

    def test_a_file_that_is_not_settled_holds_back_those_behind_it(self) -> None:
        rules = Rules(ordered=True)
        found = step(Memory(), [file("a"), file("b")], rules)
        assert names(found) == []
        found = step(again(found.memory), [file("a"), file("b", 1), file("c")], rules)
        assert names(found) == ["a"]
        found = step(again(found.memory), [file("a"), file("b", 1), file("c")], rules)
        assert names(found) == ["b", "c"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("rules", [Rules(), WHOLE, Rules(max_age_us=DAY)], ids=str)
def test_each_file_is_found_once_and_whole_over_random_crashes(rules: Rules, seed: int) -> None:
    """Writers append in steps, crashes go back to the last checkpoint."""
    draw = random.Random(seed)
    disk: dict[str, FileStat] = {}
    memory, taken = Memory(), list[FileStat]()
    saved, saved_count = memory.as_state(), 0
    now_s = 1_000
    for _ in range(300):
        now_s += 1
        act = draw.random()
        if act < 0.4:
            name = f"d{draw.randrange(3)}/f{len(disk):04}"
            disk[name] = file(name, now_s)
        elif act < 0.5 and disk and not rules.whole_at_once:
            last = list(disk)[-1]
            if last not in {one.name for one in taken} and last in dict(memory.waiting):
                disk[last] = file(last, now_s, disk[last].size_bytes + 1)
        elif act < 0.6:
            memory, taken = Memory.of(saved), taken[:saved_count]
        elif act < 0.75:
            saved, saved_count = memory.as_state(), len(taken)
        else:
            found = step(memory, disk.values(), rules)
            assert (found.changed, found.late) == ((), ())
            memory, taken = found.memory, [*taken, *found.new]
    for _ in range(2):
        found = step(memory, disk.values(), rules)
        memory, taken = found.memory, [*taken, *found.new]
    assert sorted(one.name for one in taken) == sorted(disk)
    assert all(disk[one.name] == one for one in taken)
    assert memory.next_id == len(taken)


def test_a_hundred_thousand_names_are_a_few_megabytes() -> None:
    found = step(Memory(), [file(f"day={n % 30}/part-{n}.json", n) for n in range(100_000)], WHOLE)
    state = found.memory.as_state()
    assert len(str(state["seen"])) < 2_200_000
    assert len(step(again(found.memory), [file("new", 1)], WHOLE).new) == 1
