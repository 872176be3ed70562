"""With an operator all is reset that hangs together with it, and nothing else."""

import pytest

from laminar_core.driver.recovery.partial_reset import (
    PartReset,
    decided_before,
    hanging_together,
    part_to_reset,
    require_no_position,
    together,
    without_part,
)
from laminar_core.driver.recovery.start_texts import Rename, ResetFrom
from laminar_core.errors import ConfigurationError, ErrorCode, IncompatibleStateError
from laminar_core.operators import agg
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.records.manifest_fields import CarriedOperator
from laminar_core.records.partial_reset import PartialReset
from laminar_core.testing.jobs import payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from tests.driver.recovery.test_source_changes import checkpoint_of


def plan_of(*joined: tuple[str, str], names: str = "abc", end: str = "out") -> Plan:
    """A sum per source, each with a sink; pairs of sources also meet in a union with a sink."""
    p = Pipeline("p")
    rows = {name: p.source(name, MemorySource(payments(1, 5))) for name in names}
    for name, stream in rows.items():
        totals = stream.key_by("key").aggregate(f"{name}-sum", agg.count())
        totals.sink(f"{name}-{end}", LedgerSink(Ledger(), f"{name}-{end}"))
    for one, other in joined:
        both = rows[one].union(rows[other], name=f"{one}{other}")
        both.sink(f"{one}{other}-out", LedgerSink(Ledger(), f"{one}{other}-out"))
    return p.plan()


APART, JOINED = plan_of(), plan_of(("a", "b"))


def named(*sources: str) -> list[ResetFrom]:
    return [ResetFrom(source) for source in sources]


def alone(name: str) -> set[str]:
    return {name, f"{name}-sum", f"{name}-sum-combine", f"{name}-out"}


def test_streams_that_never_meet_are_parts_of_their_own() -> None:
    for operator_id in alone("a"):
        assert hanging_together(checkpoint_of(APART), APART, [operator_id]) == alone("a")
    assert hanging_together(checkpoint_of(APART), APART, ["a", "c"]) == alone("a") | alone("c")


def test_what_they_feed_together_brings_the_other_source_and_all_that_it_feeds() -> None:
    part = hanging_together(checkpoint_of(JOINED), JOINED, ["a-sum"])
    assert part == alone("a") | alone("b") | {"ab", "ab-out"}


def test_what_met_in_the_checkpoint_or_meets_now_hangs_together() -> None:
    for before, now in ((JOINED, APART), (APART, JOINED)):
        assert alone("b") < hanging_together(checkpoint_of(before), now, ["a-sum"])


def test_a_part_is_taken_with_its_sources_and_sinks() -> None:
    part = part_to_reset(checkpoint_of(JOINED), JOINED, ["a-sum"], named("b", "a"))
    assert part is not None
    assert (part.sources, part.sinks) == (("a", "b"), ("a-out", "b-out", "ab-out"))
    assert part.record() == PartialReset(operators=part.operators)
    assert part.lines()[1].startswith("reset as well, because they hang together: a-sum-combine")


def test_everything_is_no_part() -> None:
    every = plan_of(("a", "b"), ("b", "c"))
    assert part_to_reset(checkpoint_of(every), every, ["a-sum"], named("a", "b", "c")) is None


def test_old_names_belong_to_it() -> None:
    part = part_to_reset(checkpoint_of(APART), APART, ["a"], named("a"), [Rename("sums", "a-sum")])
    assert part is not None
    assert "sums" in part.operators


@pytest.mark.parametrize(
    ("operators", "sources", "problem"),
    [
        (["a-sum"], ["a"], "b has to be read again, too, and .* say --reset-from b=beginning"),
        (["a-sum"], ["a", "b", "a"], "--reset-from names a source twice: a, b, a"),
        (["a-sum"], ["a", "b", "c"], "c is no source of what is reset with a-sum"),
        (["none"], ["a"], "there is no operator none to reset; there are: a, a-out"),
        (["a"], ["x"], "there is no operator x to reset"),
    ],
    ids=["too few", "twice", "too many", "no operator", "no source"],
)
def test_each_source_has_to_be_named_and_no_other(
    operators: list[str], sources: list[str], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem) as refused:
        part_to_reset(checkpoint_of(JOINED), JOINED, operators, named(*sources))
    assert refused.value.code is ErrorCode.INVALID_OPTION


def test_a_sink_that_is_gone_could_not_take_its_output_back() -> None:
    moved = plan_of(end="elsewhere")
    with pytest.raises(IncompatibleStateError, match="a-out has output of what is reset"):
        part_to_reset(checkpoint_of(APART), moved, ["a-sum"], named("a"))


def test_positions_of_a_source_that_is_gone_are_given_up_first() -> None:
    carried = {"d": CarriedOperator(source="d", checkpoint_id=5)}
    checkpoint = checkpoint_of(APART).model_copy(update={"carried": carried})
    with pytest.raises(IncompatibleStateError, match="--accept source-drop:d"):
        part_to_reset(checkpoint, APART, ["a-sum"], named("a"))


def test_nothing_is_left_of_a_part_in_the_checkpoint() -> None:
    part = alone("a")
    left = without_part(checkpoint_of(APART), part)
    assert part.isdisjoint(left.parallelism)
    assert part.isdisjoint(left.operators_description)
    assert part.isdisjoint(left.fingerprint)
    assert part.isdisjoint(entry.operator_id for entry in left.subtasks)
    assert part.isdisjoint(entry.vertex_id for entry in left.alignment)
    assert part.isdisjoint(name for e in left.edges for name in (e.upstream, e.downstream))
    assert left.parallelism.keys() == checkpoint_of(plan_of(names="bc")).parallelism.keys()
    assert without_part(left, part) == left


def test_decisions_of_several_starts_are_one_part() -> None:
    checkpoint = checkpoint_of(APART)
    assert decided_before(checkpoint, APART, []) is None
    a, b = (PartialReset(operators=tuple(alone(name))) for name in "ab")
    found = decided_before(checkpoint, APART, [(3, a), (5, b)])
    assert found is not None
    assert (found.sources, found.generations) == (("a", "b"), (3, 5))
    assert found.lines()[0].startswith("a part begins anew as generations 3 and 5 decided")
    asked = PartReset(7, ("c", "c-out"), ("c",), ("c-out",), named=("c",))
    both = together(asked, found)
    assert both is not None
    assert (both.sources, both.named, both.generations) == (("a", "b", "c"), ("c",), (3, 5))
    assert together(None, None) is None
    assert together(None, found) is found
    assert together(asked, None) is asked


def test_a_stated_position_is_recorded_and_said() -> None:
    stated = [ResetFrom("a", "row 7"), ResetFrom("b")]
    part = part_to_reset(checkpoint_of(JOINED), JOINED, ["a-sum"], stated)
    assert part is not None
    assert part.record().positions == {"a": "row 7"}
    assert "a: read again from row 7" in part.lines()
    assert "b: read again from its beginning" in part.lines()


def test_the_newest_decision_says_from_where_a_source_is_read() -> None:
    checkpoint, of_a = checkpoint_of(APART), tuple(alone("a"))
    at_7, at_9 = (PartialReset(operators=of_a, positions={"a": str(n)}) for n in (7, 9))
    anew, of_b = PartialReset(operators=of_a), PartialReset(operators=tuple(alone("b")))
    for decisions, expected in (
        ([at_7, of_b], {"a": "7"}),
        ([at_7, at_9], {"a": "9"}),
        ([at_7, anew], {}),
    ):
        found = decided_before(checkpoint, APART, [*enumerate(decisions, 3)])
        assert found is not None
        assert found.positions == expected
    asked = part_to_reset(checkpoint, APART, ["a-sum"], named("a"))
    both = together(asked, decided_before(checkpoint, APART, [(3, at_7)]))
    assert both is not None
    assert both.positions == {}


def test_there_is_no_position_where_everything_is_reset() -> None:
    every = plan_of(("a", "b"), ("b", "c"))
    stated = [ResetFrom("a", "row 7"), *named("b", "c")]
    with pytest.raises(ConfigurationError, match=r"everything is reset, .*: say a=beginning, and"):
        part_to_reset(checkpoint_of(every), every, ["a-sum"], stated)
    require_no_position(named("a"))
