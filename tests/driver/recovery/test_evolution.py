"""The table of ``docs/state.md``: which changes of operators fit a checkpoint."""

from collections.abc import Collection

import pytest

from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.evolution import Evolution, evolution, only_aggregates_differ
from laminar_core.driver.recovery.inserting import arranged
from laminar_core.driver.recovery.source_changes import source_changes
from laminar_core.operators import agg
from laminar_core.operators.base import JsonObject
from laminar_core.operators.running import RunningAggregate
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest import CheckpointManifest
from tests.driver.recovery.test_rechaining import plan_of
from tests.driver.recovery.test_source_changes import checkpoint_of

ONE, TWO = plan_of("sums"), plan_of("sums", "counts")


def with_state(plan: Plan, **kept: JsonObject) -> CheckpointManifest:
    """A checkpoint in which these operators kept something, by their name with _ for -."""
    checkpoint = checkpoint_of(plan)
    by_name = {name.replace("_", "-"): facts for name, facts in kept.items()}
    return checkpoint.model_copy(
        update={
            "subtasks": tuple(
                entry.model_copy(update=by_name.get(entry.operator_id, {}))
                for entry in checkpoint.subtasks
            )
        }
    )


def compared(
    checkpoint: CheckpointManifest, plan: Plan, *accepted: str, committed: Collection[str] = ()
) -> Evolution:
    changes = source_changes(arranged(checkpoint, plan), plan)
    accept = tuple(map(parse_acceptance, accepted))
    return evolution(changes.fitted, plan, changes, accept, committed)


COUNTED: JsonObject = {"properties": {"key_groups": [0, 64]}}
PENDING: JsonObject = {"committables": ({"file": 1},)}


def test_the_same_pipeline_has_not_changed() -> None:
    found = compared(checkpoint_of(TWO), TWO)
    assert (found.lines, found.problems, found.new, found.dropped) == ((), (), (), ())


def test_operators_that_are_added_begin_without_state() -> None:
    found = compared(checkpoint_of(ONE), TWO)
    assert found.new == ("counts", "counts-combine", "counts-out")
    assert found.problems == ()
    assert found.lines[0] == "counts: new, it gets what comes after checkpoint 7"


def test_operators_without_state_go_without_a_word() -> None:
    found = compared(checkpoint_of(TWO), ONE)
    assert (found.lines, found.problems) == ((), ())


def test_state_of_an_operator_that_is_removed_is_dropped_only_if_that_is_accepted() -> None:
    checkpoint = with_state(TWO, counts=COUNTED)
    ((operator_id, problem),) = compared(checkpoint, ONE).problems
    assert operator_id == "counts"
    assert "give it up with --accept state-drop:counts and a --reason" in problem
    found = compared(checkpoint, ONE, "state-drop:counts")
    assert (found.problems, found.dropped) == ((), ("counts",))
    assert found.accepted == ("state-drop:counts: 0 rows of state are dropped",)
    assert "counts" not in found.fitted.parallelism
    assert all(entry.operator_id != "counts" for entry in found.fitted.subtasks)
    assert "counts" not in {entry.vertex_id for entry in found.fitted.alignment}


def test_what_is_there_cannot_be_given_up() -> None:
    assert compared(with_state(TWO, sums=COUNTED), TWO, "state-drop:sums").used == ()


def test_a_sink_goes_only_when_its_output_is_committed() -> None:
    checkpoint = with_state(TWO, counts_out=PENDING)
    for accepted in ((), ("state-drop:counts-out",)):
        ((operator_id, problem),) = compared(checkpoint, ONE, *accepted).problems
        assert operator_id == "counts-out"
        assert "has output of counts-out that may not be committed" in problem
    assert compared(checkpoint, ONE, committed={"counts-out"}).problems == ()


def test_state_does_not_go_to_other_rows() -> None:
    """The watermark of one source must not become that of another."""
    checkpoint = with_state(ONE, time=COUNTED)
    moved = checkpoint.model_copy(
        update={
            "subtasks": tuple(sorted(checkpoint.subtasks, key=lambda e: e.operator_id == "time"))
        }
    )
    ((operator_id, problem),) = compared(moved, ONE).problems
    assert operator_id == "time"
    assert "time followed sums in checkpoint 7, and now a" in problem


def described(*aggregates) -> JsonObject:
    return RunningAggregate("r", ("k",), aggregates).describe()


SUM = agg.sum("v")


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        (described(SUM), described(SUM, agg.max("v")), True),
        (described(SUM), described(agg.sum("v", name="total")), True),
        (described(SUM, agg.count("v")), described(agg.avg("v")), True),
        (described(SUM), described(SUM), False),
        (described(SUM), {**described(agg.max("v")), "keys": ["other"]}, False),
        (described(SUM), {**described(agg.max("v")), "kind": "other"}, False),
    ],
    ids=["added", "renamed", "put together", "the same", "other keys", "another kind"],
)
def test_aggregates_may_differ_over_the_same_groups(before, now, *, fits: bool) -> None:
    assert only_aggregates_differ(before, now) is fits


@pytest.mark.parametrize("changed", [{"code": "b"}, {"code": "a", "version": 2}])
def test_other_code_of_a_users_aggregate_is_another_aggregate(changed: JsonObject) -> None:
    user = {"function": "user", "column": "v", "name": "u", "state": "user_u", "code": "a"}
    before = {**described(SUM), "aggregates": [user]}
    now = {**described(SUM), "aggregates": [user | changed, *described(SUM)["aggregates"]]}
    assert not only_aggregates_differ(before, now)
    assert only_aggregates_differ(before, {**now, "aggregates": [user | {"name": "w"}]})
