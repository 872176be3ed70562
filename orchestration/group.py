"""A group: the streams of a code location that share jobs, sensors and schedules."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from laminar_core.orchestration.spec import StreamSpec
from laminar_core.resources.names import GROUP, StreamJob, job_name

_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Group:
    """Streams that share jobs, sensors and schedules; their names begin with ``name``.

    Raises:
        ValueError: it has no stream, or two of the same name, or its name is none for Dagster.
    """

    streams: tuple[StreamSpec, ...]
    name: str = GROUP

    def __post_init__(self) -> None:
        """Check the names."""
        names = [spec.name for spec in self.streams]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two streams have the name {twice[0]!r}: rename one of them")
        if not names:
            raise ValueError("a group needs a stream: pass at least one StreamSpec")
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r}: Dagster's names have letters, digits and _ only")

    def __iter__(self) -> Iterator[StreamSpec]:
        """Iterate over the streams."""
        return iter(self.streams)

    def stream(self, name: str) -> StreamSpec:
        """Return the stream of that name, which exists."""
        return next(spec for spec in self.streams if spec.name == name)

    def job_name(self, name: StreamJob) -> str:
        """Return the name of one of the shared jobs."""
        return job_name(name, self.name)
