"""Numbers of bad rows add up, and a checkpoint has those of its sources."""

from laminar_core.records.bad_rows import NO_BAD_ROWS, BadRowTotals, bad_rows_of
from laminar_core.records.manifest_fields import SubtaskEntry
from tests.records.manifests import manifest


def test_totals_become_properties_and_again_totals() -> None:
    totals = BadRowTotals(letters=1, dropped=20, skipped=3)
    assert BadRowTotals.of_properties(totals.as_properties()) == totals
    assert str(totals) == "1 letters, 20 bad rows dropped, 3 bad rows skipped"


def test_a_source_without_bad_rows_has_no_property() -> None:
    assert NO_BAD_ROWS.as_properties() == {}
    assert BadRowTotals.of_properties({"other": 1}) == NO_BAD_ROWS
    assert not NO_BAD_ROWS


def test_a_checkpoint_has_the_sum_over_the_subtasks_of_each_source() -> None:
    def entry(operator_id: str, index: int, letters: int) -> SubtaskEntry:
        return SubtaskEntry(
            operator_id=operator_id,
            subtask_index=index,
            properties=BadRowTotals(letters=letters).as_properties(),
            sync_ms=0,
            async_ms=0,
        )

    subtasks = (entry("a", 0, 2), entry("a", 1, 3), entry("b", 0, 0))
    found = bad_rows_of(manifest().model_copy(update={"subtasks": subtasks}))
    assert found == {"a": BadRowTotals(letters=5)}
