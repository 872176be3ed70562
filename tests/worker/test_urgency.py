"""Units of work are short while barriers overtake, and tasks rest while files are written."""

from laminar_core.link.messages import Abort, AlignmentTimeout, Announce, Completed, Trigger
from laminar_core.protocol.types import CheckpointId, CheckpointKind, Generation
from laminar_core.worker.slicing import WorkUnit
from laminar_core.worker.urgency import REST_MS_MAX, REST_SHARE_MAX, Urgency

GENERATION = Generation(1)


def trigger(number: int, budget_ms: int | None = 0) -> Trigger:
    return Trigger(
        generation=GENERATION,
        checkpoint_id=CheckpointId(number),
        kind=CheckpointKind.PERIODIC,
        created_ms=0,
        alignment_timeout_ms=budget_ms,
        unaligned=budget_ms == 0,
    )


def of_one() -> tuple[Urgency, WorkUnit]:
    unit = WorkUnit()
    return Urgency(lambda: [unit]), unit


def timeout(number: int) -> AlignmentTimeout:
    return AlignmentTimeout(generation=GENERATION, checkpoint_id=CheckpointId(number))


def test_barriers_that_overtake_at_once_shorten_units_until_the_part_is_added() -> None:
    urgency, unit = of_one()
    urgency.heard(trigger(1))
    assert unit.urgent
    urgency.over(CheckpointId(1))
    assert not unit.urgent


def test_units_are_short_before_the_trigger_comes() -> None:
    urgency, unit = of_one()
    urgency.heard(Announce(generation=GENERATION, checkpoint_id=CheckpointId(1)))
    assert unit.urgent
    urgency.heard(trigger(1))
    urgency.over(CheckpointId(1))
    assert not unit.urgent


def test_an_announced_number_that_another_generation_has_ends_with_the_next_checkpoint() -> None:
    urgency, unit = of_one()
    urgency.heard(Announce(generation=GENERATION, checkpoint_id=CheckpointId(1)))
    urgency.heard(trigger(2))
    urgency.over(CheckpointId(2))
    assert not unit.urgent


def test_an_aligned_checkpoint_is_urgent_only_once_its_budget_is_spent() -> None:
    urgency, unit = of_one()
    for budget_ms in (None, 1_000):
        urgency.heard(trigger(1, budget_ms))
        assert not unit.urgent
    urgency.heard(timeout(1))
    assert unit.urgent


def test_a_budget_spent_after_the_part_was_added_changes_nothing() -> None:
    urgency, unit = of_one()
    urgency.over(CheckpointId(1))
    urgency.heard(timeout(1))
    assert not unit.urgent


def test_a_checkpoint_that_ends_without_the_part_is_urgent_no_more() -> None:
    ends = (
        Abort(generation=GENERATION, checkpoint_id=CheckpointId(1)),
        Completed(generation=GENERATION, checkpoint_id=CheckpointId(1)),
    )
    for end in ends:
        urgency, unit = of_one()
        urgency.heard(trigger(1))
        urgency.heard(end)
        assert not unit.urgent


def test_the_end_of_an_earlier_checkpoint_leaves_a_later_one_urgent() -> None:
    urgency, unit = of_one()
    urgency.heard(trigger(1))
    urgency.heard(trigger(2))
    urgency.over(CheckpointId(1))
    assert unit.urgent


def test_tasks_rest_from_the_last_cut_until_the_part_is_added() -> None:
    urgency, _ = of_one()
    urgency.heard(trigger(1))
    assert not urgency.rest_ms(100)
    urgency.all_cut(CheckpointId(1), now_ms=100)
    assert urgency.rest_ms(100) == REST_MS_MAX
    assert urgency.rest_ms(105) == REST_MS_MAX - 5
    urgency.over(CheckpointId(1))
    assert not urgency.rest_ms(105)


def test_they_do_not_rest_longer_for_a_slow_store() -> None:
    urgency, _ = of_one()
    urgency.heard(trigger(1))
    urgency.all_cut(CheckpointId(1), now_ms=100)
    assert not urgency.rest_ms(100 + REST_MS_MAX)
    assert not urgency.rest_ms(10_000)


def test_they_rest_for_no_checkpoint_that_waits_for_rows() -> None:
    urgency, _ = of_one()
    urgency.heard(trigger(1, budget_ms=1_000))
    urgency.all_cut(CheckpointId(1), now_ms=100)
    assert not urgency.rest_ms(100)


def test_many_checkpoints_take_a_small_part_of_the_time() -> None:
    urgency, _ = of_one()
    rested_ms, now_ms = 0.0, 0.0
    for number in range(1, 101):
        urgency.heard(trigger(number))
        urgency.all_cut(CheckpointId(number), now_ms)
        rested_ms += urgency.rest_ms(now_ms)
        now_ms += 30
    assert REST_MS_MAX < rested_ms < REST_SHARE_MAX * now_ms + REST_MS_MAX


def test_the_end_of_an_earlier_checkpoint_ends_no_rest() -> None:
    urgency, _ = of_one()
    urgency.heard(trigger(1))
    urgency.heard(trigger(2))
    urgency.all_cut(CheckpointId(2), now_ms=0)
    urgency.over(CheckpointId(1))
    assert urgency.rest_ms(0)
