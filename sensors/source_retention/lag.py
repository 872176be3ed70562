"""Decide whether a source catches up after a start of the job. Facts and decision.

After an outage a source has a backlog. If the job is slower than its input, the backlog does not
get smaller. Checkpoints complete all the same, so this would go unnoticed. A source that has caught
up once is not watched any more in that generation.
"""

from collections.abc import Mapping

from pydantic import Field

from laminar_core.records.source_numbers import SourceNumbers
from laminar_core.resources.values import Values
from laminar_core.sensors.alerting.alerts import Incident
from laminar_core.sensors.cursor import ClockMs, Number
from laminar_core.sensors.facts.source_facts import KnownSources
from laminar_core.sensors.policy import AlertPolicy
from laminar_core.units import duration_ms


class LeastLag(Values):
    """The smallest lag of a source in a generation; the time is by the driver's clock."""

    rows: int
    since_ms: ClockMs


class LagWatch(Values):
    """The lags of one generation, between ticks."""

    generation: Number = 0
    least: dict[str, LeastLag] = Field(default_factory=dict[str, LeastLag])
    """By source, as long as it has not caught up."""
    caught_up: tuple[str, ...] = ()


def follow_lags(before: LagWatch, known: KnownSources | None, policy: AlertPolicy) -> LagWatch:
    """Return what is remembered after these numbers. Pure.

    A lag that is not known at the moment changes nothing.
    """
    if known is None:
        return before
    watch = before if before.generation == known.generation else LagWatch()
    least: dict[str, LeastLag] = {}
    caught_up = [source for source in watch.caught_up if source in known.numbers]
    for source, numbers in known.numbers.items():
        smallest = watch.least.get(source)
        if source in caught_up:
            continue
        if _has_caught_up(numbers, policy):
            caught_up.append(source)
        elif numbers.lag_rows is None:
            if smallest is not None:
                least[source] = smallest
        elif smallest is None or numbers.lag_rows < smallest.rows:
            least[source] = LeastLag(rows=numbers.lag_rows, since_ms=known.beat_at_ms)
        else:
            least[source] = smallest
    return LagWatch(generation=known.generation, least=least, caught_up=tuple(caught_up))


def lag_incidents(
    watch: LagWatch, known: KnownSources | None, policy: AlertPolicy
) -> list[Incident]:
    """Return the sources whose lag has not shrunk for too long since the start. Pure."""
    if known is None or known.generation != watch.generation:
        return []
    return [
        _incident(source, watch.generation, least, known.numbers)
        for source, least in watch.least.items()
        if known.beat_at_ms - least.since_ms >= duration_ms(policy.lag_shrinks_within)
    ]


def _has_caught_up(numbers: SourceNumbers, policy: AlertPolicy) -> bool:
    if numbers.lag_rows == 0:
        return True
    seconds = numbers.lag_seconds
    return seconds is not None and 1000 * seconds <= duration_ms(policy.lag_caught_up)


def _incident(
    source: str, generation: int, least: LeastLag, numbers: Mapping[str, SourceNumbers]
) -> Incident:
    now = numbers[source].lag_rows if source in numbers else None
    lag = "an unknown number of" if now is None else f"{now:,}"
    return Incident(
        cause=f"source-lag:{source}:{generation}",
        anchor="source-lag",
        severity="warning",
        title=f"source {source} does not catch up after the start",
        text=f"source {source} is {lag} rows behind, and was never less than {least.rows:,} rows "
        f"behind since generation {generation} started: find the slow operator, or use more "
        "workers",
        facts={"generation": generation, "lag_rows_least": least.rows},
    )
