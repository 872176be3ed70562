"""All records of one generation, for display; damage is reported, not raised."""

from dataclasses import dataclass
from typing import TypeVar

from laminar_core.errors import CorruptCheckpointError
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import (
    GenerationBase,
    GenerationClaim,
    GenerationEnd,
    Heartbeat,
    Record,
)
from laminar_core.records.paths import JobPaths
from laminar_core.store.records import read_record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """All that is recorded of one generation; what cannot be read is None and in ``problems``."""

    generation: Generation
    claim: GenerationClaim | None
    base: GenerationBase | None
    heartbeat: Heartbeat | None
    end: GenerationEnd | None
    problems: tuple[str, ...] = ()


def read_generation(
    objects: ObjectStore, paths: JobPaths, generation: Generation
) -> GenerationSummary:
    """Read all records of a generation, with four requests."""
    problems: list[str] = []

    def read(key: str, record_type: type[R]) -> R | None:
        try:
            return read_record(objects, key, record_type)
        except CorruptCheckpointError as error:
            problems.append(str(error))
            return None

    return GenerationSummary(
        generation,
        claim=read(paths.claim(generation), GenerationClaim),
        base=read(paths.base(generation), GenerationBase),
        heartbeat=read(paths.heartbeat(generation), Heartbeat),
        end=read(paths.end(generation), GenerationEnd),
        problems=tuple(problems),
    )
