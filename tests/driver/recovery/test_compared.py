"""Each operator has one status when a pipeline is compared with a checkpoint."""

from laminar_core.driver.recovery.compared import operator_reports, took_part
from laminar_core.driver.recovery.compatibility import Mismatch
from laminar_core.driver.recovery.report import SourceReport
from laminar_core.errors import ErrorCode, IncompatibleStateError
from laminar_core.records.manifest_fields import CarriedOperator
from tests.driver.recovery.test_evolution import COUNTED, ONE, TWO, with_state

CHECKPOINT = with_state(TWO, sums=COUNTED, counts=COUNTED)


def statuses(**said) -> dict[str, str]:
    problem = IncompatibleStateError(ErrorCode.OPERATORS_CHANGED, "other keys")
    found = [Mismatch(problem, frozenset(said.get("problems", ())))]
    reports = operator_reports(
        said.get("checkpoint", CHECKPOINT),
        said.get("plan", TWO),
        found,
        said.get("carried", ()),
        said.get("dropped", ()),
        said.get("reset", ()),
    )
    return {report.operator_id: report.status for report in reports}


def test_operators_go_on_with_state_or_without() -> None:
    found = statuses()
    assert (found["sums"], found["sums-combine"]) == ("restored", "empty")


def test_operators_of_the_pipeline_come_first_then_those_of_the_checkpoint() -> None:
    found = statuses(plan=ONE, dropped={"counts"})
    assert list(found)[: len(ONE.operator_ids())] == ONE.operator_ids()
    assert found["counts"] == "dropped"
    assert statuses(plan=ONE, carried={"counts"})["counts"] == "carried"


def test_a_problem_an_addition_and_a_reset_are_told_apart() -> None:
    assert statuses(problems=["sums"])["sums"] == "unmapped"
    before = with_state(ONE, sums=COUNTED)
    assert statuses(checkpoint=before)["counts"] == "new"
    found = statuses(checkpoint=before, reset={"sums", "counts"})
    assert (found["sums"], found["counts"]) == ("reset", "reset")


def test_rows_of_sources_that_were_away_were_not_counted() -> None:
    carried = {"b": CarriedOperator(source="b", checkpoint_id=5)}
    checkpoint = CHECKPOINT.model_copy(update={"carried": carried})
    reports = [SourceReport("a"), SourceReport("b"), SourceReport("c", status="back")]
    assert [one.operator_id for one in took_part(reports, checkpoint)] == ["a"]
    assert list(took_part(reports, None)) == reports
