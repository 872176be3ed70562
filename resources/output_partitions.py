"""Partitions of a stream's output by event time."""

from datetime import date, datetime, time, timedelta
from typing import Literal, Self
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import model_validator

from laminar_core.resources.values import Values


class OutputPartitions(Values):
    """The output of a stream has one partition per hour or day of event time.

    ``start``: the first day, in ``timezone``. Each partition from there on is reported once event
    time has passed its end, also if it has no rows.

    >>> hours = OutputPartitions(every="hour", start="2026-01-01")
    >>> hours.definition.get_first_partition_key()
    '2026-01-01-00:00'
    """

    every: Literal["hour", "day"]
    start: date
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _the_zone_is_known(self) -> Self:
        try:
            ZoneInfo(self.timezone)
        except (ValueError, OSError, LookupError) as error:
            raise ValueError(f"there is no time zone {self.timezone!r}") from error
        return self

    @property
    def definition(self) -> dg.TimeWindowPartitionsDefinition:
        """Dagster's definition of these partitions, also for assets below the output."""
        first = datetime.combine(self.start, time())
        if self.every == "hour":
            return dg.HourlyPartitionsDefinition(first, timezone=self.timezone)
        return dg.DailyPartitionsDefinition(first, timezone=self.timezone)

    @property
    def length(self) -> timedelta:
        """How long a partition is, but for the days on which clocks are changed."""
        return timedelta(hours=1) if self.every == "hour" else timedelta(days=1)
