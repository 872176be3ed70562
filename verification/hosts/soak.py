"""``python -m verification.hosts.soak --minutes 60 --seed 1``: random faults of hosts and links.

A stream runs over three hosts, and faults hit it one after the other, in an order that the seed
gives. In the end its output must be exact. The figures say how long no rows flowed after each
fault.
"""

import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from laminar_core.host.clock import SystemClock
from verification.hosts.answer import prepare
from verification.hosts.driver_events import Reaction
from verification.hosts.faults import FaultKind, Faults
from verification.hosts.needs import missing
from verification.hosts.network import Network
from verification.hosts.spark_cluster import ROOT, SparkCluster, shared_folders
from verification.hosts.stream import PACED, Stream
from verification.hosts.waiting import HostsError

WORKER_HOSTS = ("w1", "w2", "w3")
DRIVER_HOSTS = ("d", "d2")
ROWS_MIN = 200_000
WRONG_EXIT_CODE = 1
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Hit:
    """One fault that was drawn."""

    kind: FaultKind
    victim: int
    """Index of the worker whose host is hit."""
    seconds: float
    """Duration of a cut."""


@dataclass
class Figures:
    """The faults of a soak and what became of them."""

    seed: int
    hits: list[tuple[Hit, Reaction]] = field(default_factory=list[tuple[Hit, Reaction]])
    exact_rows: int | None = None
    """Rows of the output, which is exact; None: it is not, or the soak did not come to its end."""
    problem: str | None = None
    duration_ms: float = 0

    def as_json(self) -> dict[str, Any]:
        """Return all figures, with a summary for each kind of fault."""
        return {
            "seed": self.seed,
            "minutes": round(self.duration_ms / _MINUTE_MS, 1),
            "faults": len(self.hits),
            "exact_rows": self.exact_rows,
            "problem": self.problem,
            "kinds": {str(kind): self._summary(kind) for kind in FaultKind},
            "hits": [{**asdict(hit), **found.as_dict()} for hit, found in self.hits],
        }

    def _summary(self, kind: FaultKind) -> dict[str, Any]:
        reactions = [found for hit, found in self.hits if hit.kind is kind]
        times = [found.standstill_ms for found in reactions]
        if not times:
            return {"count": 0}
        middle = round(median(times))
        return {
            "count": len(times),
            "standstill_median_ms": middle,
            "standstill_max_ms": max(times),
            "generations_ended": sum(found.code is not None for found in reactions),
        }


def draw(seed: int) -> Iterator[Hit]:
    """Yield the faults of a seed without end; every kind comes once before one comes again."""
    chance = random.Random(f"soak {seed}")  # noqa: S311 - the same faults in every run
    while True:
        kinds = list(FaultKind)
        chance.shuffle(kinds)
        for kind in kinds:
            yield Hit(kind, chance.randrange(2), round(chance.uniform(1, 15), 1))


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="No fault begins after them.")
@click.option("--seed", default=1, show_default=True, help="Decides which faults come.")
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    default=ROOT / "build" / "hosts-soak.json",
    show_default=True,
    help="The file for the figures, written again after each fault.",
)
def soak(minutes: float, seed: int, figures: Path) -> None:
    """Hit a stream over three hosts with random faults, and compare its output in the end.

    Prints the figures as JSON. The exit code is 1 if the stream did not recover from a fault, or
    if its output is not exact.
    """
    if why := missing():
        raise click.ClickException(f"no hosts: {why}")
    found = Figures(seed)
    folder = Path(tempfile.mkdtemp(prefix="laminar-hosts-"))
    figures.parent.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        figures.write_text(json.dumps(found.as_json(), indent=1) + "\n")

    try:
        for hit, reaction in _run(folder, found, minutes):
            save()
            click.echo(f"{hit.kind}: {reaction.standstill_ms / 1000:.1f} s without rows", err=True)
    except HostsError as error:
        found.problem = str(error)
    finally:  # Also if the soak itself is broken.
        save()
    click.echo(json.dumps(found.as_json()))
    if found.problem is not None:
        click.echo(f"the logs are in {folder}", err=True)
        raise SystemExit(WRONG_EXIT_CODE)
    with suppress(OSError):
        shutil.rmtree(folder)


def _run(folder: Path, figures: Figures, minutes: float) -> Iterator[tuple[Hit, Reaction]]:
    """Yield each fault with its reaction once the stream is well again.

    Raises:
        HostsError: it is not, or its output is wrong.
    """
    clock = SystemClock()
    answer = prepare(folder, max(ROWS_MIN, round(60 * minutes * PACED)))
    with Network(folder, shared_folders()) as network:
        network.add("m", *WORKER_HOSTS, *DRIVER_HOSTS)
        cluster = SparkCluster(network, "m")
        cluster.start(*WORKER_HOSTS)
        stream = Stream(network, cluster.url, answer, str(folder / "store"))
        since_ms = stream.now_ms()
        stream.start(DRIVER_HOSTS[0])
        stream.wait_for_rows("the first rows", since_ms)
        faults = Faults(cluster, stream, DRIVER_HOSTS)
        began_ms = clock.monotonic_ms()
        for drawn in draw(figures.seed):
            if clock.monotonic_ms() - began_ms >= minutes * _MINUTE_MS:
                break
            hit = replace(drawn, kind=faults.possible(drawn.kind))
            found = faults.hit(hit.kind, victim=hit.victim, seconds=hit.seconds)
            figures.hits.append((hit, found))
            figures.duration_ms = clock.monotonic_ms() - began_ms
            yield figures.hits[-1]
        figures.exact_rows = stream.finish(stream.driver.host.name)


if __name__ == "__main__":
    soak()
