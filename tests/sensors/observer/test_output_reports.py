"""Events for output have Dagster's own names for one sink, and names of the sinks for several."""

from laminar_core.records.sink_outputs import EventTimeReached, SinkOutput
from laminar_core.sensors.observer.output_reports import sink_metadata

TOTALS = SinkOutput("totals", 7, EventTimeReached(9_000_000), (("n", "int64"),), "file:///totals")
LATE = SinkOutput("late", 2, EventTimeReached(5_000_000))


def test_a_single_sink_has_dagsters_own_names() -> None:
    found = sink_metadata([TOTALS])
    assert found.keys() == {
        "rows_out",
        "output_watermark",
        "dagster/row_count",
        "dagster/uri",
        "dagster/column_schema",
    }


def test_several_sinks_are_named_and_the_slowest_decides() -> None:
    found = sink_metadata([TOTALS, LATE])
    assert (found["rows_out"], found["row_count/totals"], found["row_count/late"]) == (9, 7, 2)
    assert found["output_watermark"].value == 5
    assert found["uri/totals"] == "file:///totals"
    assert not [name for name in found if name.startswith("dagster/")]


def test_a_wide_sink_has_no_columns_in_its_events() -> None:
    columns = tuple((f"c{n}", "int64") for n in range(101))
    wide = SinkOutput("wide", 1, EventTimeReached(None), columns)
    assert sink_metadata([wide]).keys() == {"rows_out", "dagster/row_count"}


def test_a_checkpoint_without_sinks_says_nothing() -> None:
    assert sink_metadata([]) == {}
