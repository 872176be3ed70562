"""A source that does not catch up after a start is reported, and one that does is left alone."""

from laminar_core.protocol.types import Generation
from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.sensors.facts.source_facts import KnownSources
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.sensors.source_retention.lag import LagWatch, follow_lags, lag_incidents

POLICY = AlertPolicy(lag_shrinks_within="10 minutes", lag_caught_up="1 minute")
MINUTE_MS = 60_000


class Watching:
    """Looks at one source, ``in``, minute by minute of the driver's clock."""

    def __init__(self) -> None:
        self.watch = LagWatch()

    def look(
        self,
        minute: int,
        rows: int | None,
        seconds: float | None = 3_600,
        generation: int = 1,
        source: str = "in",
    ) -> list[str]:
        numbers = {source: SourceNumbers(lag_rows=rows, lag_seconds=seconds)}
        known = KnownSources(Generation(generation), minute * MINUTE_MS, numbers)
        self.watch = follow_lags(self.watch, known, POLICY)
        return [found.cause for found in lag_incidents(self.watch, known, POLICY)]


def test_a_backlog_that_shrinks_slowly_is_no_problem() -> None:
    job = Watching()
    assert [job.look(minute, 1_000 - minute) for minute in range(0, 100, 9)] == [[]] * 12


def test_a_backlog_that_stays_or_grows_is_reported_once_per_generation() -> None:
    job = Watching()
    assert job.look(0, 1_000) == []
    assert job.look(9, 1_500) == []
    assert job.look(10, 1_200) == ["source-lag:in:1"]
    assert job.look(60, 1_000) == ["source-lag:in:1"]
    assert job.look(61, 999) == [], "it shrinks again"
    assert job.look(62, 5_000, generation=2) == [], "another start, another backlog"
    assert job.look(72, 5_000, generation=2) == ["source-lag:in:2"]


def test_a_source_that_has_caught_up_is_not_watched_any_more() -> None:
    for rows, seconds in ((0, None), (0, 0.0), (900, 59.0)):
        job = Watching()
        job.look(0, 1_000)
        job.look(1, rows, seconds)
        assert job.look(60, 9_000) == job.look(90, 9_000) == []
        assert job.watch.caught_up == ("in",)


def test_a_lag_that_is_not_known_for_a_while_neither_helps_nor_hurts() -> None:
    job = Watching()
    assert job.look(0, None, None) == []
    assert job.look(20, None, None) == [], "it was never known"
    job.look(21, 1_000)
    job.look(25, None, None)
    assert job.look(31, 1_000) == ["source-lag:in:1"]


def test_a_driver_that_is_silent_makes_no_time_pass() -> None:
    job = Watching()
    assert [job.look(0, 1_000) for _ in range(100)] == [[]] * 100


def test_a_source_that_is_gone_is_forgotten() -> None:
    job = Watching()
    job.look(0, 1_000)
    assert job.look(20, 5, source="other") == []
    assert set(job.watch.least) == {"other"}


def test_without_numbers_nothing_is_known() -> None:
    watch = LagWatch(generation=3)
    assert follow_lags(watch, None, POLICY) == watch
    assert lag_incidents(watch, None, POLICY) == []


def test_the_text_names_the_lag_now_and_the_least_one() -> None:
    known = KnownSources(Generation(1), 0, {"in": SourceNumbers(lag_rows=1_000)})
    watch = follow_lags(LagWatch(), known, POLICY)
    later = KnownSources(Generation(1), 600_000, {"in": SourceNumbers(lag_rows=2_500)})
    (found,) = lag_incidents(follow_lags(watch, later, POLICY), later, POLICY)
    assert "is 2,500 rows behind, and was never less than 1,000 rows behind" in found.text
    assert found.facts == {"generation": 1, "lag_rows_least": 1_000}
