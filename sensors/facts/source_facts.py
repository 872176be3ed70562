"""Numbers of the sources, as the driver of the newest generation last reported them."""

from collections.abc import Mapping
from dataclasses import dataclass

from laminar_core.protocol.types import Generation
from laminar_core.records.source_numbers import SourceNumbers, sources_of
from laminar_core.sensors.judgements import Headroom
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.generation_summary import read_generation


@dataclass(frozen=True, slots=True)
class KnownSources:
    """The numbers in a heartbeat. It stays in the store when its driver is gone."""

    generation: Generation
    beat_at_ms: int
    """By the driver's clock."""
    numbers: Mapping[str, SourceNumbers]
    """By operator."""


def read_sources(store: CheckpointStore) -> KnownSources | None:
    """Return the numbers of the newest generation; None if it has none, or has read everything.

    Raises:
        StorageUnavailable: the store did not answer.
    """
    generation = store.claims.last()
    if generation is None:
        return None
    found = read_generation(store.objects, store.paths, generation)
    is_finished = found.end is not None and found.end.outcome == "finished"
    if found.heartbeat is None or is_finished:
        return None
    return KnownSources(generation, found.heartbeat.at_ms, sources_of(found.heartbeat.progress))


def headrooms(known: KnownSources | None, now_ms: int) -> tuple[Headroom, ...]:
    """Return the headroom of each source that has one; time has passed since the heartbeat."""
    if known is None:
        return ()
    age_s = max(now_ms - known.beat_at_ms, 0) / 1000
    return tuple(
        Headroom(
            source,
            numbers.headroom_checkpoint_id,
            numbers.headroom_rows,
            None if numbers.headroom_seconds is None else numbers.headroom_seconds - age_s,
        )
        for source, numbers in known.numbers.items()
        if numbers.headroom_checkpoint_id is not None
    )
