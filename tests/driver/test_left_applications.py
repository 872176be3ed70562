"""Which applications a new driver ends: those of dead drivers of this job, and no other."""

from dataclasses import replace

from laminar_core.driver.left_applications import LOOKED_AT_MAX, left_applications
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationBase, GenerationEnd
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.generation_summary import GenerationSummary
from tests.records.test_golden_records import NEWEST


def died(number: int, application: str | None = None, *, started: bool = True) -> GenerationSummary:
    """A generation without an end, whose driver had an application of its own."""
    spark = SparkApplication(application_id=application or f"app-{number}", master="spark://m:7077")
    closed_by = None if started else number + 1
    return GenerationSummary(
        Generation(number),
        claim=NEWEST.model_copy(update={"generation": number, "spark": spark}),
        base=GenerationBase(generation=number, base_checkpoint_id=None, closed_by=closed_by),
        heartbeat=None,
        end=None,
    )


def ended(number: int) -> GenerationSummary:
    end = GenerationEnd(generation=number, outcome="failed", reason="")
    return replace(died(number), end=end)


def ids(*older: GenerationSummary) -> list[str]:
    return [left.application.application_id for left in left_applications(older)]


def test_the_application_of_a_driver_that_died_is_left():
    (left,) = left_applications([died(3)])
    assert (left.generation, left.application.application_id) == (3, "app-3")


def test_a_driver_that_recorded_its_end_keeps_its_application():
    assert ids(ended(3), died(2)) == []


def test_the_search_goes_on_behind_a_driver_that_died_before_its_generation_started():
    assert ids(died(5, started=False), died(4), died(3)) == ["app-5", "app-4"]


def test_one_application_of_several_generations_is_named_once():
    assert ids(died(5, "app-1", started=False), died(4, "app-1")) == ["app-1"]


def test_a_claim_that_is_older_or_damaged_names_none():
    assert ids(replace(died(3), claim=None)) == []
    assert NEWEST.spark is not None
    older = NEWEST.model_copy(update={"spark": None})
    assert ids(replace(died(3), claim=older)) == []


def test_a_bounded_number_of_generations_is_looked_at():
    many = [died(number, started=False) for number in range(40, 10, -1)]
    assert len(ids(*many)) == LOOKED_AT_MAX
