"""Hours and days of an output are Dagster's own partitions."""

import dagster as dg
import pytest

from laminar_core.resources.output_partitions import OutputPartitions


def test_they_equal_the_partitions_that_a_user_writes() -> None:
    hours = OutputPartitions(every="hour", start="2026-01-01")
    assert hours.definition == dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    days = OutputPartitions(every="day", start="2026-01-01", timezone="Europe/Berlin")
    assert days.definition == dg.DailyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["Europe/Paderborn", "", "../etc/passwd", "a\0b"])
def test_a_zone_that_nobody_knows_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone"):
        OutputPartitions(every="hour", start="2026-01-01", timezone=zone)


@pytest.mark.parametrize("field", [{"every": "week"}, {"start": "soon"}, {"until": "2027-01-01"}])
def test_other_values_are_refused_by_their_field(field: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        OutputPartitions.model_validate({"every": "day", "start": "2026-01-01", **field})
