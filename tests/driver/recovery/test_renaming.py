"""A name is the identity of state, and a person may say that it is another one now."""

import pytest

from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.renaming import renamed
from laminar_core.driver.recovery.start_texts import Rename
from tests.driver.recovery.test_rechaining import plan_of
from tests.driver.recovery.test_source_changes import checkpoint_of

BEFORE, NOW = plan_of("sums", "counts"), plan_of("totals", "counts")
TOTALS = Rename("sums", "totals")


def test_an_aggregation_is_found_under_its_new_name_with_both_of_its_parts() -> None:
    found = renamed(checkpoint_of(BEFORE), NOW, [TOTALS])
    assert (found.lines, found.problems) == (("totals: was called sums",), ())
    now = NOW.descriptions()
    for operator_id in ("totals", "totals-combine"):
        assert found.manifest.operators_description[operator_id] == now[operator_id]
    assert "sums-combine" not in found.manifest.parallelism
    assert {"sums", "sums-combine"}.isdisjoint(
        name for e in found.manifest.edges for name in (e.upstream, e.downstream)
    )
    kept = [o for m in mismatches(found.manifest, NOW, 2) for o in m.operator_ids]
    assert "totals" not in kept


def test_a_rename_that_was_done_already_does_nothing() -> None:
    checkpoint = checkpoint_of(NOW)
    found = renamed(checkpoint, NOW, [TOTALS])
    assert found.manifest is checkpoint
    assert (found.lines, found.problems) == ((), ())


@pytest.mark.parametrize(
    ("before", "now", "problem"),
    [
        ("none", "totals", "checkpoint 7 has neither"),
        ("sums", "counts", "checkpoint 7 has both"),
        ("sums", "other", "the pipeline has no other"),
        ("counts", "totals", "the pipeline has both"),
        ("sums-out", "totals-out", "a sink knows its output by its name, so it keeps it"),
    ],
)
def test_a_rename_that_does_not_fit_is_refused(before: str, now: str, problem: str) -> None:
    checkpoint = checkpoint_of(BEFORE)
    found = renamed(checkpoint, NOW, [Rename(before, now)])
    assert found.manifest is checkpoint
    assert found.problems == (f"{before} cannot be renamed to {now}: {problem}",)


def test_two_operators_do_not_become_one() -> None:
    found = renamed(checkpoint_of(BEFORE), plan_of("totals"), [TOTALS, Rename("counts", "totals")])
    assert len(found.problems) == 2
