"""Facts about topics, as values."""

from dataclasses import dataclass

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now."""

    topic_id: str
    """Identity of the topic. It changes if the topic is deleted and created again."""
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of a partition that can be read now."""

    low: int
    """The first one that retention has left."""
    stable_end: int
    """Behind the last one that a reader of committed messages can see."""
    end: int
    """Behind the last one, open transactions included."""
