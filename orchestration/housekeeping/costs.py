"""Calculate the cost of a stream's checkpoints from stored bytes and requests; no I/O.

A month has 730 hours, and a GB of a price list 2^30 bytes. As in the price lists of object stores,
listings cost as much as writes, length requests as much as reads, and deletions nothing.
"""

from dataclasses import dataclass

from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.orchestration.spec import PriceTable
from laminar_core.store.usage import GenerationTraffic

MONTH_MS = 730 * 3_600_000
GB = 2**30
DURATION_MIN_MS = 60_000
"""A shorter run does not represent a month, because it begins with a restore."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Objects of one kind."""

    kind: str
    objects: int
    size_bytes: int
    is_estimated: bool = False
    """Whether the length is estimated by a sample; the objects are counted."""


@dataclass(frozen=True, slots=True)
class CostFacts:
    """The inputs of the calculation; requests are the newest generation's, if counted."""

    stored: tuple[Stored, ...]
    traffic: tuple[GenerationTraffic, ...]
    """By generation, oldest first."""
    newest_generation: int
    checkpoint_interval_ms: float | None
    reclaimable_bytes: int
    """Bytes that retention would delete now."""


@dataclass(frozen=True, slots=True)
class CostReport:
    """Money in the currency of the price table; None: there is nothing to reckon it from."""

    stored_objects: int
    stored_bytes: int
    storage_per_month: float
    requests_per_month: float | None
    """Money, if the newest generation went on as so far."""
    per_checkpoint: float | None
    """Requests between the end of one and the end of the next."""
    retention_saves_per_month: float

    @property
    def per_month(self) -> float | None:
        """The cost per month of current storage and requests; None if requests are unknown."""
        if self.requests_per_month is None:
            return None
        return self.storage_per_month + self.requests_per_month


def reckon(facts: CostFacts, prices: PriceTable) -> CostReport:
    """Calculate the costs."""
    stored_bytes = sum(stored.size_bytes for stored in facts.stored)
    per_ms = request_cost_per_ms(facts, prices)
    interval_ms = facts.checkpoint_interval_ms
    return CostReport(
        stored_objects=sum(stored.objects for stored in facts.stored),
        stored_bytes=stored_bytes,
        storage_per_month=storage_cost(stored_bytes, prices),
        requests_per_month=None if per_ms is None else per_ms * MONTH_MS,
        per_checkpoint=None if per_ms is None or interval_ms is None else per_ms * interval_ms,
        retention_saves_per_month=storage_cost(facts.reclaimable_bytes, prices),
    )


def storage_cost(size_bytes: int, prices: PriceTable) -> float:
    """Return the cost of storing this much for a month.

    >>> storage_cost(2 * GB, PriceTable(gb_month=0.5))
    1.0
    """
    return size_bytes / GB * prices.gb_month


def request_cost(requests: RequestCounts, prices: PriceTable) -> float:
    """Return the cost of these requests.

    >>> prices = PriceTable(put_per_1000=4, get_per_1000=1)
    >>> request_cost(RequestCounts(puts=900, lists=100, gets=300, heads=700, deletes=5), prices)
    5.0
    """
    writes, reads = requests.puts + requests.lists, requests.gets + requests.heads
    return (writes * prices.put_per_1000 + reads * prices.get_per_1000) / 1000


def request_cost_per_ms(facts: CostFacts, prices: PriceTable) -> float | None:
    """Return the newest generation's cost per millisecond.

    None: not counted, or not long enough.
    """
    for traffic in facts.traffic:
        is_newest = traffic.generation == facts.newest_generation
        if is_newest and traffic.duration_ms >= DURATION_MIN_MS:
            return request_cost(traffic.requests, prices) / traffic.duration_ms
    return None
