"""A small payments job with a known answer, in this process or as a driver; a kill of a worker."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.parquet_commit import read_committed
from laminar_core.driver.events import CheckpointCompleted, JobEvent, WorkersRunning
from laminar_core.jobs.payments_data import write_payments

ROOT = Path(__file__).parent.parent.parent
ROWS = 240_000
WINDOW_US = 5 * 60 * 1_000_000
RESULT = ["merchant", "window_start", "payments", "total_cents", "min_cents", "max_cents"]


@dataclass(frozen=True)
class SmallJob:
    """Where the input is, and where output and checkpoints go."""

    folder: Path

    @property
    def input(self) -> str:
        return str(self.folder / "input")

    @property
    def output(self) -> str:
        return str(self.folder / "output")

    @property
    def store(self) -> str:
        return str(self.folder / "store")

    def write_input(self) -> "SmallJob":
        write_payments(self.input, rows=ROWS, files=4, merchants=500, events_per_second=100)
        return self

    def command(self, *more: str, rows_per_second: int = 40_000) -> list[str]:
        return [
            *(sys.executable, "-m", "laminar_core.cli", "run", "jobs/payments.py", "--json"),
            *("--set", f"input={self.input}", "--set", f"output={self.output}"),
            *("--set", f"rows_per_second={rows_per_second}", "--store", self.store),
            *("--checkpoint-interval", "250 milliseconds", "--restarts", "100", *more),
        ]

    def expected(self) -> list[dict]:
        """The answer, computed by Arrow alone from the same files."""
        rows = pq.read_table(self.input)
        paid_us = rows.column("paid_at").cast(pa.int64()).to_numpy()
        starts = pa.array(paid_us - paid_us % WINDOW_US).cast(pa.timestamp("us", tz="UTC"))
        rows = rows.append_column("window_start", starts)
        grouped = rows.group_by(["merchant", "window_start"]).aggregate(
            [("amount_cents", what) for what in ("count", "sum", "min", "max")]
        )
        names = {
            "amount_cents_count": "payments",
            "amount_cents_sum": "total_cents",
            "amount_cents_min": "min_cents",
            "amount_cents_max": "max_cents",
        }
        return _sorted(grouped.rename_columns([names.get(n, n) for n in grouped.column_names]))

    def committed(self) -> list[dict]:
        """Return the rows that a reader of the committed set sees."""
        return _sorted(read_committed(self.output))

    def visible(self) -> list[dict]:
        """Return the rows that a reader of all Parquet files of the directory sees."""
        files = list(Path(self.output).glob("*.parquet"))
        return _sorted(pq.read_table(self.output)) if files else []


def _sorted(table: pa.Table) -> list[dict]:
    table = table.select(RESULT)
    table = table.set_column(0, "merchant", table.column("merchant").cast(pa.string()))
    return table.sort_by([("merchant", "ascending"), ("window_start", "ascending")]).to_pylist()


class Driver:
    """A driver in a process group of its own, and the events that it prints."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()

    def events(self) -> Iterator[dict]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def wait_for(self, event: str) -> dict:
        for found in self.events():
            if found["event"] == event:
                return found
        raise AssertionError(f"the driver ended before {event}, exit code {self.process.wait()}")


def kill_after_checkpoint(events: SimpleQueue[JobEvent], number: int) -> None:
    """Kill the second worker once so many checkpoints are complete."""
    pids: tuple[int, ...] = ()
    while number:
        event = events.get(timeout=60)
        if isinstance(event, WorkersRunning):
            pids = event.pids
        number -= isinstance(event, CheckpointCompleted)
    os.kill(pids[1], signal.SIGKILL)
