"""A set that grows costs little; the state finds, changes and drops what is pending."""

import hypothesis.strategies as st
from hypothesis import given

from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import SubtaskId
from laminar_core.protocol.coordinator_state import CoordinatorState, Pending, SubtaskSet
from laminar_core.protocol.types import CheckpointId, CheckpointKind

subtasks = st.builds(SubtaskId, st.sampled_from("ab"), st.integers(0, 20))


@given(st.lists(st.frozensets(subtasks, max_size=6), max_size=30))
def test_it_is_a_set(added) -> None:
    grown, model = SubtaskSet(), frozenset()
    for some in added:
        grown, model = grown.add(some), model | some
        assert len(grown) == len(model) == sum(map(len, grown.parts)), "disjoint parts"
        assert all(s in grown for s in model)
        sizes = [len(part) for part in grown.parts]
        assert sizes == sorted(set(sizes), reverse=True), "few parts"
    assert SubtaskId("c", 0) not in grown
    assert grown == SubtaskSet().add(model)
    assert hash(grown) == hash(SubtaskSet().add(model))
    assert grown != SubtaskSet().add(model | {SubtaskId("c", 0)})


def test_what_is_in_already_changes_nothing() -> None:
    one = SubtaskSet().add({SubtaskId("a", 0)})
    assert one.add({SubtaskId("a", 0)}) is one


def test_pending_checkpoints_are_found_changed_and_dropped() -> None:
    one, two = (
        Pending(CheckpointId(n), CheckpointKind.PERIODIC, (), triggered_ms=n) for n in (1, 2)
    )
    state = CoordinatorState(
        CoordinatorConfig(None, max_concurrent=3), frozenset(), CheckpointId(3), None, (one, two)
    )
    assert state.find(CheckpointId(2)) is two
    assert state.find(CheckpointId(3)) is None
    later = Pending(CheckpointId(1), CheckpointKind.PERIODIC, (), triggered_ms=9)
    assert state.having(later).pending == (later, two)
    assert state.without(one).pending == (two,)
