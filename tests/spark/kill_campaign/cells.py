"""The cells of the campaign: target, kind of attack, phase, and the order in which they come."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle, islice, product

CELLS_PER_ROUND = 10


class Kind(StrEnum):
    """Whom the signal hits."""

    DRIVER = "driver"
    JVM = "jvm"
    DAEMON = "python-daemon"
    WORKER = "worker"
    DAGSTER_DAEMON = "dagster-daemon"
    CODE_SERVER = "code-server"

    @property
    def is_of_dagster(self) -> bool:
        """It watches the stream and is no part of it."""
        return self in (Kind.DAGSTER_DAEMON, Kind.CODE_SERVER)


class Phase(StrEnum):
    """When it does."""

    START = "start"
    RESTORE = "restore"
    RUN = "run"
    CUT = "cut"
    COMMIT = "commit"
    RETENTION = "retention"
    STOP = "stop"


class Act(StrEnum):
    """SIGKILL; or SIGSTOP, then SIGCONT after the sensor has looked."""

    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Cell:
    """One attack."""

    kind: Kind
    phase: Phase
    act: Act

    def __str__(self) -> str:
        return f"{self.act} {self.kind} at {self.phase}"


STREAM_KINDS = (Kind.DRIVER, Kind.JVM, Kind.DAEMON, Kind.WORKER)
DAGSTER_KINDS = (Kind.DAGSTER_DAEMON, Kind.CODE_SERVER)


def all_cells(kinds: tuple[Kind, ...]) -> list[Cell]:
    """Every combination."""
    return [Cell(*values) for values in product(kinds, Phase, Act)]


def in_order(seed: int, kinds: tuple[Kind, ...]) -> Iterator[Cell]:
    """All cells in the order that ``seed`` gives, then all of them again, for ever."""
    chance = random.Random(seed)
    while cells := all_cells(kinds):
        chance.shuffle(cells)
        yield from cells


def rounds(seed: int, kinds: tuple[Kind, ...]) -> Iterator[list[Cell]]:
    """The cells of each round; Dagster runs in every third one, and is all that is attacked there.

    So both get through all of their cells at about the same time.
    """
    stream = in_order(seed, tuple(kind for kind in kinds if not kind.is_of_dagster))
    dagster = in_order(seed, tuple(kind for kind in kinds if kind.is_of_dagster))
    for cells in cycle((stream, stream, dagster)):
        if some := list(islice(cells, CELLS_PER_ROUND)):
            yield some
