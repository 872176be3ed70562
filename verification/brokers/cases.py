"""Cases of the matrix: what happens, at which step, and what becomes of the process."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from verification.servers.fault_proxy import Fault, FaultKind
from verification.servers.kafka_requests import KafkaRequest

Life = Literal["lives", "dies", "sleeps"]
"""Fate of the process that meets the fault. One that sleeps wakes when its successor is done."""
Event = Literal["none", "broker-killed"] | FaultKind
"""The fault at the step: one of the network, or of the broker."""

EVENTS: tuple[Event, ...] = (*FaultKind, "broker-killed", "none")
LIVES: tuple[Life, ...] = ("lives", "dies", "sleeps")

OF_A_COMMIT = (
    KafkaRequest.PRODUCE,
    KafkaRequest.ADD_PARTITIONS,
    KafkaRequest.ADD_OFFSETS,
    KafkaRequest.COMMIT_OFFSETS,
    KafkaRequest.END_TRANSACTION,
)
"""Kinds of requests that publish staged rows."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. It can be run again from its fields."""

    seed: int
    connector: str
    event: Event
    step: str
    life: Life = "lives"
    requests: tuple[KafkaRequest, ...] = ()
    """The kind of request that a fault of the network waits for; empty: any."""
    seconds: float = 0.0
    rows: int = 40
    """Rows of a checkpoint, or of a partition."""

    @property
    def fault(self) -> Fault | None:
        """The fault of the network, if it is one."""
        if not isinstance(self.event, FaultKind):
            return None
        after = 200 if self.event is FaultKind.RESET and not self.requests else 0
        return Fault(self.event, self.requests, after, self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        event = self.event.value if isinstance(self.event, FaultKind) else self.event
        requests = [request.name.lower() for request in self.requests]
        return {**asdict(self), "event": event, "requests": requests}


def sink_case(
    seed: int,
    connector: str,
    steps: Sequence[str],
    requests: Sequence[KafkaRequest] = OF_A_COMMIT,
) -> Case:
    """Draw a case of a sink: every event at every step, over many seeds.

    ``requests``: the kinds that a fault of the network may wait for.
    """
    rng = random.Random(f"sink {seed}")  # noqa: S311 - the same case in every run
    event = rng.choices(EVENTS, [3, 4, 4, 4, 3, 2, 2])[0]
    life = rng.choice(LIVES)
    if event == "none" and life == "lives":
        life = "dies"
    waited_for = (rng.choice(requests),) if rng.random() < 0.6 else ()  # noqa: PLR2004
    return Case(
        seed, connector, event, rng.choice(steps), life, waited_for, _seconds(rng, event),
        rows=rng.choice([1, 40, 2_000]),
    )  # fmt: skip


def source_case(seed: int, connector: str, steps: Sequence[str]) -> Case:
    """Draw a case of a source."""
    rng = random.Random(f"source {seed}")  # noqa: S311
    step = rng.choice(steps)
    event = rng.choices(EVENTS, [3, 4, 4, 4, 3, 2, 2])[0]
    request = rng.choice([(KafkaRequest.FETCH,), ()])
    life: Life = rng.choice(["lives", "dies"])
    return Case(
        seed, connector, event, step, life, request, _seconds(rng, event),
        rows=rng.choice([50, 500, 5_000]),
    )  # fmt: skip


def _seconds(rng: random.Random, event: Event) -> float:
    match event:
        case FaultKind.LATENCY:
            return rng.choice([0.02, 0.2])
        case FaultKind.BLACK_HOLE:
            return rng.choice([0.3, 2.0, 5.0])
        case _:
            return 0.0
