"""A window over payments of JSON, from topic to topic: Laminar beside the client and peers.

All systems stay up and take turns, so each is warm, and other work on the machine meets all of
them. CPU is summed over all processes of a system, without the broker. Each round has a run over
all messages and one over a tenth of them: their difference is the cost of further messages, without
start and end of a run. ``make servers`` gets the broker, and ``make peers`` the peers, which are
left out where they are not there. With more messages than by default:

    python -m benchmarks.kafka_to_kafka --messages 4000000
"""

# Futures of confluent-kafka have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow.compute import call_function

from benchmarks.peers import PEERS, is_there
from benchmarks.printed import print_record
from benchmarks.result import Result
from benchmarks.topics import flink_sql
from benchmarks.topics.system import Cost, System
from examples.kafka_to_kafka.topic import PARTITIONS, payments, read_totals, totals, write_topic
from examples.oracle import compare
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.spark.jvm import ensure_java
from verification.servers.kafka_broker import KafkaBroker, jars_of

MESSAGES = 1_000_000
ROUNDS = 3
TARGET = 1.3
_ROOT = Path(__file__).parents[1]
_FEW = 10
_SPARK_BATCH = 250_000
_SECONDS_MAX = 120
_DELAY = timedelta(minutes=1)
"""How much the watermark of each system is behind the newest payment."""
_MILLION = 1_000_000

Lines = Callable[[str, str], list[str]]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A system of the comparison: how it is started, and its lines for a pair of topics."""

    name: str
    command: list[str]
    lines: Lines
    environment: Mapping[str, str] | None = None
    settings: tuple[str, ...] = ()
    writes: bool = True
    closes_all: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """The costs of all messages, and of a tenth of them."""

    messages: int
    all_of_them: Cost
    few_of_them: Cost

    @property
    def cpu_s(self) -> float:
        """CPU seconds for a million messages, with start and end of the run."""
        return self.all_of_them.cpu_s / self.messages * _MILLION

    @property
    def further_cpu_s(self) -> float:
        """CPU seconds for a million more messages."""
        further = self.messages - self.messages // _FEW
        return (self.all_of_them.cpu_s - self.few_of_them.cpu_s) / further * _MILLION


def kafka_to_kafka() -> list[Result]:
    """Carry a million payments of JSON from topic to topic: Laminar, the client, and peers."""
    return measure(MESSAGES, ROUNDS)


def measure(messages: int, rounds: int) -> list[Result]:
    """Let all systems carry so many messages, in so many rounds, and compare what they wrote.

    Raises:
        RuntimeError: a system wrote something else than it should.
    """
    folder = _ROOT / "build" / "benchmark-kafka-to-kafka"
    shutil.rmtree(folder, ignore_errors=True)
    with _topics(folder, messages) as (bootstrap, every), ExitStack() as stack:
        entrants = list(_entrants(bootstrap, folder))
        systems = {e.name: stack.enter_context(_start(e, folder)) for e in entrants}
        turns = _Turns(bootstrap, every)
        for entrant in entrants:  # Warms the system.
            turns.take(entrant, systems[entrant.name], -1)
        for number in range(rounds):
            for entrant in entrants:
                turns.take(entrant, systems[entrant.name], number)
    return list(_results({name: found[1:] for name, found in turns.found.items()}))


class _Turns:
    """Gives each system its turn, with topics of its own to write to."""

    def __init__(self, bootstrap: str, every: pa.Table) -> None:
        self._bootstrap = bootstrap
        self._expected = totals(every)
        self._closed_until = call_function("max", [every["paid_at"]]).as_py() - _DELAY
        self._messages = every.num_rows
        self.found: dict[str, list[Round]] = {}

    def take(self, entrant: Entrant, system: System, number: int) -> None:
        """Carry a tenth of the messages, and all of them."""
        few, every = (f"{entrant.name}-{what}-{number + 1}" for what in ("few", "all"))
        _create(self._bootstrap, few, every)
        costs = [
            system.work(*entrant.lines(source, target))
            for source, target in (("payments-few", few), ("payments", every))
        ]
        self._check(entrant, every)
        took = ", ".join(f"{cost.wall_s:.2f} s ({cost.cpu_s:.2f} s of CPU)" for cost in costs)
        click.echo(f"kafka-to-kafka: {every}: {took}", err=True)
        self.found.setdefault(entrant.name, []).append(Round(self._messages, costs[1], costs[0]))

    def _check(self, entrant: Entrant, topic: str) -> None:
        if not entrant.writes:
            return
        found, expected = read_totals(self._bootstrap, topic), self._expected
        if not entrant.closes_all:
            expected = expected.filter(pc.field("window_end") <= self._closed_until)
        comparison = compare(expected, found)
        if not comparison.exact:
            raise RuntimeError(f"{entrant.name}: {'; '.join(comparison.differences)}")


@contextmanager
def _topics(folder: Path, messages: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield where the broker is, and its payments."""
    jars = jars_of(_ROOT)
    if jars is None:
        raise ConfigurationError(ErrorCode.NO_SUCH_PATH, "there is no Kafka here: make servers")
    with KafkaBroker(jars, folder / "broker") as broker:
        _create(broker.bootstrap, "payments", "payments-few")
        every = payments(messages)
        write_topic(broker.bootstrap, every, lambda _: None)
        few = payments(messages // _FEW)
        write_topic(broker.bootstrap, few, lambda _: None, "payments-few")
        yield broker.bootstrap, every


def _create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in topics]).values():
        created.result(_SECONDS_MAX)


def _start(entrant: Entrant, folder: Path) -> System:
    system = System(entrant.command, folder / f"{entrant.name}.log", entrant.environment)
    for line in entrant.settings:
        system.work(line)
    return system


# --- who takes part -------------------------------------------------------------------------------


def _entrants(bootstrap: str, folder: Path) -> Iterator[Entrant]:
    """Yield all systems that are here, and name those that are not."""
    python = [sys.executable, "-m"]
    job = [*python, "benchmarks.topics.job", bootstrap, str(folder / "store")]
    yield Entrant("laminar", job, _pair)
    for name, how in (
        ("client_messages", ["messages"]),
        ("client", ["pyarrow"]),
        ("client_checked", ["checked"]),
        ("client_no_gc", ["pyarrow", "no-gc"]),
    ):
        client = [*python, "benchmarks.topics.client", bootstrap, *how]
        yield Entrant(name, client, _pair, writes=False)
    if is_there("spark", "kafka-to-kafka"):
        yield _spark(bootstrap, folder)
    if is_there("flink", "kafka-to-kafka"):
        yield _flink(bootstrap, folder)


def _pair(source: str, target: str) -> list[str]:
    return [f"{source} {target}"]


def _spark(bootstrap: str, folder: Path) -> Entrant:
    place = PEERS / "spark"
    program = Path(__file__).with_name("topics") / "structured_streaming.py"
    words = [bootstrap, str(folder / "spark"), str(place / "jars"), str(_SPARK_BATCH)]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment |= {
        "PYTHONPATH": str(place),
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(program), *words]
    return Entrant("structured_streaming", command, _pair, environment, closes_all=False)


def _flink(bootstrap: str, folder: Path) -> Entrant:
    command = flink_sql.command(ensure_java() / "bin" / "java", PEERS / "flink")
    settings = tuple(flink_sql.settings(folder / "flink"))

    def lines(source: str, target: str) -> list[str]:
        return flink_sql.statements(bootstrap, source, target)

    return Entrant("flink_sql", command, lines, settings=settings)


# --- figures --------------------------------------------------------------------------------------


def _results(found: Mapping[str, list[Round]]) -> Iterator[Result]:
    for name, rounds in found.items():
        speed = [r.messages / r.all_of_them.wall_s for r in rounds]
        yield Result.of_rounds(f"kafka_to_kafka_{name}", speed, "messages/s", "higher")
        for what, cpu_s in (
            ("cpu", [r.cpu_s for r in rounds]),
            ("cpu_further", [r.further_cpu_s for r in rounds]),
        ):
            unit = "s of CPU per million"
            yield Result.of_rounds(f"kafka_to_kafka_{name}_{what}", cpu_s, unit, "lower")
    for name, rounds in found.items():
        if name != "client":
            pairs = list(zip(rounds, found["client"], strict=True))
            target = TARGET if name == "laminar" else None
            yield _ratio(f"{name}_to_client", [r.cpu_s / c.cpu_s for r, c in pairs], target)
            further = [r.further_cpu_s / c.further_cpu_s for r, c in pairs]
            yield _ratio(f"{name}_to_client_further", further, target)
    pairs = list(zip(found["laminar"], found["client_no_gc"], strict=True))
    without = [r.further_cpu_s / c.further_cpu_s for r, c in pairs]
    yield _ratio("laminar_to_client_no_gc_further", without, None)


def _ratio(name: str, values: list[float], target: float | None) -> Result:
    return Result.of_rounds(f"kafka_to_kafka_{name}", values, "ratio of CPU", "lower", target)


def main() -> None:
    """Print the results as ``laminar bench --json`` does, in one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    print_record("kafka-to-kafka", lambda: measure(given.messages, given.rounds))


if __name__ == "__main__":
    main()
