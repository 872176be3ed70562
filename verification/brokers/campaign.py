"""The matrix: drawn cases of all connectors, losses, and canaries that have to be caught."""

from collections.abc import Callable, Mapping
from functools import partial

from verification.brokers.cases import Case, sink_case, source_case
from verification.brokers.incoming import (
    STEPS,
    read_poison,
    read_through,
    start_after_loss,
)
from verification.brokers.judge import Verdict
from verification.brokers.outgoing import DELIVERIES, FLAWED, publish_through
from verification.brokers.place import Place

SOURCE = "source"
CONNECTORS: tuple[str, ...] = (SOURCE, *DELIVERIES)
"""The rows of the matrix. Seeds go through them in turn."""


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    connector = CONNECTORS[seed % len(CONNECTORS)]
    if connector == SOURCE:
        return source_case(seed, connector, STEPS)
    delivery = DELIVERIES[connector]
    return sink_case(seed, connector, delivery.steps, delivery.requests)


def run(place: Place, case: Case) -> Verdict:
    """Run a case."""
    if case.connector == SOURCE:
        return read_through(place, case)
    return publish_through(place, {**DELIVERIES, **FLAWED}[case.connector], case)


LOSSES: Mapping[str, Callable[[Place], Verdict]] = {
    "retention passed": partial(start_after_loss, recreated=False),
    "topic recreated": partial(start_after_loss, recreated=True),
    "messages that are no rows": read_poison,
}
"""Things that happen to a topic while a job is down, or before: each has one right answer."""

CANARIES: Mapping[str, Callable[[Place], Verdict]] = {
    "no marker": lambda place: run(place, Case(0, "no-marker", "none", "committed", "dies")),
    "marker outside the transaction": lambda place: run(
        place, Case(0, "marker-outside", "none", "flushed", "dies")
    ),
    "ends some transactions": lambda place: run(
        place, Case(0, "ends-some", "none", "marker-set", "dies")
    ),
    "auto.offset.reset=latest": partial(start_after_loss, recreated=False, trusting=True),
    "bare JSON": partial(read_poison, bare=True),
}
"""Connectors that are wrong on purpose: the judge must not find them exact."""
