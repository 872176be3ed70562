"""The system lists the possible steps of a state, and judges an end."""

from verification.explorer.system import Move, System
from verification.explorer.tasks import Classes
from verification.explorer.worlds import FAN_IN

SMALL = FAN_IN.variant("small", "")


def said(moves) -> set[str]:
    return {"; ".join(move.said) for move in moves}


def follow(system: System, *wanted: str) -> tuple[int, ...]:
    """Take these moves, each named by how it starts."""
    state = system.first()
    for start in wanted:
        moves: list[Move] = [*system.necessary(state), *system.possible(state)]
        state = next(m for m in moves if "; ".join(m.said).startswith(start)).state
    return state


def test_the_moves_of_the_first_state() -> None:
    system = System(SMALL, Classes())
    first = system.first()
    assert said(system.necessary(first)) == {
        "a emits a0; j receives a0 from a",
        "b emits b0; j receives b0 from b",
    }
    assert said(system.possible(first)) == {"a checkpoint is triggered"}
    assert not system.is_over(first)


def test_with_latency_an_arrival_is_a_move_of_its_own() -> None:
    system = System(SMALL.variant("far", "", latency=True), Classes())
    state = follow(system, "a emits a0")
    assert "j receives a0 from a" in said(system.necessary(state))


def test_after_the_trigger_budgets_may_end_and_all_may_crash() -> None:
    system = System(SMALL, Classes())
    state = follow(system, "a checkpoint")
    assert said(system.possible(state)) == {
        "the alignment budget is spent", "the checkpoint expires", "all crash, and restore",
    }  # fmt: skip
    cut = "a hears: trigger 1, cuts 1, completes its part of 1 (aligned)"
    assert {f"{cut}; j receives barrier 1 from a", "j hears: trigger 1"} <= said(
        system.necessary(state)
    )


def test_a_crash_leads_to_one_state_however_far_one_was() -> None:
    system = System(SMALL, Classes())
    near = follow(system, "a checkpoint", "all crash")
    far = follow(system, "a emits a0", "b emits b0", "a checkpoint", "a hears", "all crash")
    assert near == far
    assert system.is_over(near)


def test_an_end_is_judged() -> None:
    system = System(SMALL, Classes())
    assert "j has processed {} and not" in str(system.left_over(system.first()))
    moves = ["a emits", "a emits", "b emits", "b emits", *["j takes"] * 4]
    done = follow(system, *moves)
    assert list(system.necessary(done)) == []
    assert system.left_over(done) is None
