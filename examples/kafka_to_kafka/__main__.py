"""``make demo-kafka``: from topic to topic; broker, workers and driver are killed.

    python -m examples.kafka_to_kafka --rows 1000000

Everything is below ``build/demo-kafka``. ``make servers`` gets the broker.
"""

# A function of rich takes any number as progress.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.kafka_to_kafka.kills import KillPlan, Victim
from examples.kafka_to_kafka.topic import (
    OUTPUT,
    TOPIC,
    create_topics,
    payments,
    read_totals,
    totals,
    write_topic,
)
from examples.oracle import Comparison, compare
from verification.servers.kafka_broker import KafkaBroker, jars_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "demo-kafka"
_STARTS_MAX = 10


class Demo:
    """One demonstration with so many payments."""

    def __init__(self, folder: Path, rows: int, rows_per_second: int, console: Console) -> None:
        self._folder = folder
        self._rows = rows
        self._rows_per_second = rows_per_second
        self._console = console
        self.kills = KillPlan(rows)
        self.restored: list[int] = []
        """The checkpoints that generations continued from."""
        self._threads = ThreadPoolExecutor(1)
        self._broker_is_back: Future[None] | None = None

    def run(self, jars: Path, bar: Progress) -> Comparison:
        """Write the topic, stream it through all kills, and compare the output.

        Raises:
            RuntimeError: the broker or the job did not go on.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        table = payments(self._rows)
        with KafkaBroker(jars, self._folder / "broker") as broker:
            task = bar.add_task("writing payments to Kafka", total=self._rows)
            create_topics(broker.bootstrap)
            write_topic(broker.bootstrap, table, lambda rows: bar.advance(task, rows))
            task = bar.add_task("stream in Spark", total=self._rows)
            self._stream(broker, lambda rows: bar.update(task, completed=rows))
            if self._broker_is_back is not None:
                self._broker_is_back.result()
            return compare(totals(table), read_totals(broker.bootstrap))

    def _stream(self, broker: KafkaBroker, progress: Any) -> None:  # noqa: ANN401 - a function
        for _ in range(_STARTS_MAX):
            driver = self._start(broker.bootstrap)
            for event in _events(driver):
                if event["event"] == "progress":
                    progress(event["rows_in"])
                if event["event"] == "generation-started" and event["restored_checkpoint_id"]:
                    self.restored.append(event["restored_checkpoint_id"])
                if (victim := self.kills.hear(event)) is not None:
                    self._kill(victim, broker, driver)
            if driver.wait() == 0:
                progress(self._rows)
                return
            if driver.returncode != -signal.SIGKILL:
                raise RuntimeError(f"the job ended with {driver.returncode}: see {self._log}")
        raise RuntimeError(f"the job was started {_STARTS_MAX} times: see {self._log}")

    @property
    def all_survived(self) -> bool:
        """Whether each planned kill was done, and each of a process of the job led to a restart."""
        done = self.kills.done
        restarts = len(done) - done.count("broker")
        return len(done) == len(self.kills.plan) and len(self.restored) == restarts

    @property
    def _log(self) -> Path:
        return self._folder / "driver.log"

    def _start(self, bootstrap: str) -> subprocess.Popen[str]:
        arguments = {
            "input": f"kafka://{bootstrap}/{TOPIC}?until=latest",
            "output": f"kafka://{bootstrap}/{OUTPUT}",
            "rows_per_second": str(self._rows_per_second),
        }
        command = [sys.executable, "-m", "laminar_core.cli", "run", "jobs/payments.py", "--json"]
        command += ["--store", str(self._folder / "store"), "--checkpoint-interval", "1 second"]
        for name, value in arguments.items():
            command += ["--set", f"{name}={value}"]
        with self._log.open("a") as log:
            return subprocess.Popen(  # noqa: S603 - its own words
                command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=log
            )

    def _kill(self, victim: Victim, broker: KafkaBroker, driver: subprocess.Popen[str]) -> None:
        self._console.print(f"SIGKILL for the {victim}")
        if victim == "broker":
            broker.kill()
            # The stream goes on meanwhile, and its events are not to be old when they are read.
            self._broker_is_back = self._threads.submit(broker.start)
        elif victim == "driver":
            driver.kill()
        else:
            with suppress(ProcessLookupError):
                os.kill(self.kills.worker_pids[0], signal.SIGKILL)


def _events(driver: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("{"):
            yield json.loads(line)


@click.command()
@click.option("--rows", default=1_000_000, help="Payments to write.")
@click.option("--rows-per-second", default=25_000, help="Pace, so that there is time to kill.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER)
def main(rows: int, rows_per_second: int, folder: Path) -> None:
    """Run the demo; the exit code is 0 if the output is exact and every kill was survived."""
    console = Console()
    jars = jars_of(ROOT)
    if jars is None:
        console.print("demo: there is no Kafka here: make servers", style="red")
        sys.exit(1)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        demo = Demo(folder, rows, rows_per_second, console)
        comparison = demo.run(jars, bar)
    killed = ", ".join(demo.kills.done) or "nothing"
    continued = ", ".join(map(str, demo.restored)) or "none"
    console.print(f"killed: {killed}; generations continued from checkpoints {continued}")
    console.print(f"{comparison.rows_found} rows of {comparison.rows_expected} are in the output")
    for difference in comparison.differences:
        console.print(difference, style="red")
    if comparison.exact:
        console.print("exactly the totals that Arrow computes from the same payments")
    if not demo.all_survived:
        console.print("not every kill was done and survived: take more rows", style="red")
    sys.exit(0 if comparison.exact and demo.all_survived else 1)


if __name__ == "__main__":
    main()
