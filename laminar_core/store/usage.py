"""Objects and traffic of a job in its store, for calculating the cost.

Every object is counted. Retention's reading provides the lengths of state and in-flight files; the
many small records are measured by a sample.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

from laminar_core.errors import CorruptCheckpointError
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import GenerationClaim
from laminar_core.records.record import JsonValue
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.records import read_record

SAMPLE_MAX = 400
GENERATIONS_MAX = 20
OUTCOMES_MAX = 100
_READERS = 16


@dataclass(frozen=True, slots=True)
class RecordUsage:
    """Manifests, history, commits, audit log, commands, and all other objects that are no state."""

    objects: int
    measured: int
    """Size of the sample that was measured, evenly spread over the names."""
    measured_bytes: int

    @property
    def size_bytes(self) -> int:
        """The estimated bytes of all records, from the mean of the sample."""
        return round(self.measured_bytes / self.measured * self.objects) if self.measured else 0


@dataclass(frozen=True, slots=True)
class GenerationTraffic:
    """The requests of one generation, by its last heartbeat."""

    generation: Generation
    claimed_at_ms: int
    last_sign_at_ms: int
    requests: RequestCounts
    """Requests of its workers and its driver up to then."""

    @property
    def duration_ms(self) -> int:
        """The time from the claim to the last heartbeat, by the driver's clock."""
        return self.last_sign_at_ms - self.claimed_at_ms


def read_record_usage(
    store: CheckpointStore, files: AbstractSet[str], sample_max: int = SAMPLE_MAX
) -> RecordUsage:
    """Count everything of the job that is none of ``files`` (paths below the job's folder).

    Raises:
        StorageUnavailable: the store did not answer.
    """
    known = {store.paths.absolute(path) for path in files}
    keys = [key for key in store.objects.list(f"{store.job}/") if key not in known]
    step = max(-(-len(keys) // sample_max), 1)
    with ThreadPoolExecutor(_READERS) as pool:
        sizes = [size for size in pool.map(store.objects.size, keys[::step]) if size is not None]
    return RecordUsage(len(keys), len(sizes), sum(sizes))


def read_traffic(store: CheckpointStore, most: int = GENERATIONS_MAX) -> list[GenerationTraffic]:
    """Return the traffic of the newest generations, oldest first.

    Those without counts are left out.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    newest = store.claims.newest() or 0
    numbers = range(max(newest - most, 0) + 1, newest + 1)
    found = [_traffic(store, Generation(number)) for number in numbers]
    return [traffic for traffic in found if traffic is not None]


def checkpoint_interval_ms(store: CheckpointStore, most: int = OUTCOMES_MAX) -> float | None:
    """Return the mean time between completions of the newest checkpoints of the newest generation.

    None if there are fewer than two. Deleted checkpoints count as long as their history is kept.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    generation = store.claims.newest()
    ended_ms: list[int] = []
    for checkpoint_id in store.attempts.ended_ids()[-most:]:
        try:
            record = store.attempts.read_outcome(checkpoint_id)
        except CorruptCheckpointError:
            continue
        if record and record.generation == generation and record.outcome == "completed":
            ended_ms.append(record.ended_at_ms)
    if len(ended_ms) < 2:  # noqa: PLR2004 - there is something between two
        return None
    return (ended_ms[-1] - ended_ms[0]) / (len(ended_ms) - 1)


def _traffic(store: CheckpointStore, generation: Generation) -> GenerationTraffic | None:
    heartbeat = store.generations.read_heartbeat(generation)
    try:
        claim = read_record(store.objects, store.paths.claim(generation), GenerationClaim)
    except CorruptCheckpointError:
        return None
    if heartbeat is None or claim is None:
        return None
    said = heartbeat.progress.get("requests")
    if not isinstance(said, dict):
        return None
    return GenerationTraffic(generation, claim.claimed_at_ms, heartbeat.at_ms, _counts(said))


def _counts(said: Mapping[str, JsonValue]) -> RequestCounts:
    known = {field.name: said.get(field.name) for field in fields(RequestCounts)}
    return RequestCounts(**{name: n for name, n in known.items() if isinstance(n, int)})
