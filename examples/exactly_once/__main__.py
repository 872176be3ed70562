"""``make demo``: writes the payments, runs the stream in Dagster, kills it, compares the output."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from examples.exactly_once.faults import FaultPlan
from examples.exactly_once.fresh_start import begin_anew, open_instance
from examples.exactly_once.summary import DemoSummary, show
from examples.oracle import Comparison, batch_answer, committed_output, compare
from examples.screen import perform
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments_data import write_payments
from laminar_core.orchestration.definitions import defs
from laminar_core.orchestration.streams import DEMO, PAYMENTS, ROOT
from laminar_core.resources import (
    CheckpointStoreResource,
    DetachedDriver,
    DriverEvent,
    SparkDriverClient,
)
from laminar_core.resources.names import STREAM_FIELD, job_name
from laminar_core.spark import open_session
from laminar_core.store.checkpoint_store import CheckpointStore

EVENTS = 24_000_000
_INPUT, _OUTPUT = Path(PAYMENTS.arguments["input"]), Path(PAYMENTS.arguments["output"])
_STORE, _EVENT_LOG = DEMO / "store", DEMO / "events.jsonl"
_FOLLOW_S = 0.02
_DOING = {
    "generation-started": "workers start",
    "restore-progress": "workers restore their state",
    "workers-running": "workers wait for the first rows",
    "data-flowing": "stream in Spark",
    "generation-failed": "a new generation is prepared",
}
"""Texts of the progress bar after an event. The count of rows stands still until they flow."""

_RUN_TAGS = {".dagster/repository": "__repository__@laminar"}
"""Lets the UI list the run under its job, as if it had been started there."""


class Demo:
    """One demonstration; ``run`` is called once, in the main thread: it owns the driver."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console, self._bar = console, bar
        self._clock = SystemClock()
        self._faults = FaultPlan()
        self._flowing_since_ms = 0
        self._finished: DriverEvent = {}
        self._timings: dict[str, float] = {}

    def run(self) -> DemoSummary:
        """Run all steps and return the summary.

        Raises:
            LaminarError: the machine has a problem, such as a full disk.
            dagster.Failure: the streaming job failed.
        """
        with self._timed("generate_s"):
            self._write_input()
        store = CheckpointStore.open(str(_STORE), PAYMENTS.name)
        with self._timed("stream_s"), open_instance() as instance:
            begin_anew(instance, store, remove=(_STORE, _OUTPUT, _EVENT_LOG))
            run_id = self._run_stream(instance)
        with self._timed("batch_s"):
            comparison = self._compare()
        completed = [
            each
            for each in store.list_summaries()
            if each.outcome == "completed" and not each.orphan
        ]
        return DemoSummary(
            events=self._finished.get("rows_in", 0),
            events_late=self._finished.get("rows_late", 0),
            rows_per_second_paced=int(PAYMENTS.arguments["rows_per_second"]),
            flowing_s=(self._finished.get("time_ms", 0) - self._flowing_since_ms) / 1000,
            timings=self._timings,
            checkpoints=tuple(completed),
            kills=tuple(self._faults.kills),
            kills_planned=len(self._faults.plan),
            comparison=comparison,
            dagster_run_id=run_id,
        )

    def _write_input(self) -> None:
        task = self._bar.add_task("writing payments", total=EVENTS)
        lock = threading.Lock()

        def advance(rows: int) -> None:
            with lock:
                self._bar.advance(task, rows)

        write_payments(_INPUT, rows=EVENTS, progress=advance)
        self._bar.update(task, completed=EVENTS)

    def _run_stream(self, instance: dg.DagsterInstance) -> str:
        """Materialise the output, while a background thread watches and kills."""
        task, job = self._bar.add_task("Dagster and Spark start", total=EVENTS), job_name("run")
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(task, over))
        watcher.start()
        try:
            result = defs.resolve_job_def(job).execute_in_process(
                instance=instance,
                resources={
                    "laminar_checkpoints": CheckpointStoreResource(uri=str(_STORE)),
                    "laminar_driver": SparkDriverClient(event_log=str(_EVENT_LOG)),
                    "laminar_launcher": DetachedDriver(),
                },
                run_config={
                    "ops": {job: {"config": {STREAM_FIELD: PAYMENTS.name}}},
                    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                },
                tags=_RUN_TAGS,
                raise_on_error=False,
            )
        finally:
            over.set()
            watcher.join()
        if not result.success:
            raise dg.Failure(_why(result))
        return result.run_id

    def _watch(self, task: TaskID, over: threading.Event) -> None:
        for event in follow(_EVENT_LOG, over):
            due = self._faults.hear(event)
            if due is not None:
                due.at_ms = self._clock.now_ms()
                with suppress(ProcessLookupError):
                    os.kill(due.pid, signal.SIGKILL)
                self._console.print(f"SIGKILL for {due.victim} {due.pid}")
                self._bar.update(task, description=f"the death of the {due.victim} is noticed")
            self._show_event(task, event)

    def _show_event(self, task: TaskID, event: DriverEvent) -> None:
        if (doing := doing_after(event["event"])) is not None:
            self._bar.update(task, description=doing)
        match event["event"]:
            case "progress":
                self._bar.update(task, completed=event["rows_in"])
            case "data-flowing":
                self._flowing_since_ms = self._flowing_since_ms or event["time_ms"]
            case "generation-started" if event["restored_checkpoint_id"]:
                restored = event["restored_checkpoint_id"]
                generation = event["generation"]
                self._console.print(f"generation {generation} continues from {restored}")
            case "finished":
                self._finished = event
                self._bar.update(task, completed=event["rows_in"])
            case _:
                pass

    def _compare(self) -> Comparison:
        task = self._bar.add_task("the same as a batch query", total=None)
        spark = open_session("local[2]", "laminar demo: batch query")
        try:
            comparison = compare(batch_answer(spark, _INPUT), committed_output(_OUTPUT))
        finally:
            spark.stop()
        self._bar.update(task, total=EVENTS, completed=EVENTS)
        return comparison

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started_ms = self._clock.monotonic_ms()
        yield
        self._timings[name] = round((self._clock.monotonic_ms() - started_ms) / 1000, 3)


def doing_after(event: str) -> str | None:
    """Return the text of the progress bar after an event, or None if it stays the same."""
    return _DOING.get(event)


def follow(path: Path, over: threading.Event) -> Iterator[DriverEvent]:
    """Yield events as they are appended to ``path``, until ``over`` is set and all are read."""
    unread = ""
    offset = 0
    while True:
        last_look = over.wait(_FOLLOW_S)
        with suppress(FileNotFoundError), path.open() as file:
            file.seek(offset)
            unread += file.read()
            offset = file.tell()
        *lines, unread = unread.split("\n")
        yield from map(json.loads, lines)
        if last_look:
            return


def _why(result: dg.ExecuteInProcessResult) -> str:
    failures = [event for event in result.all_events if event.is_step_failure]
    error = failures[0].step_failure_data.error if failures else None
    if error is None:
        return "the streaming job failed"
    if error.cls_name == dg.DagsterExecutionInterruptedError.__name__:
        return "interrupted; the stream took a last checkpoint and stopped"
    return (error.cause or error).message.strip()


def demonstrate(console: Console) -> int:
    """Run the demo and show it; returns the exit code."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        summary = Demo(console, bar).run()
    target = DEMO / "summary.json"
    target.write_text(json.dumps(summary.to_json(), indent=2) + "\n")
    show(summary, console)
    console.print(f"{target.relative_to(ROOT)} has the same as JSON.")
    console.print("See the run and its checkpoints in Dagster: make ui")
    return 1 if summary.problems else 0


def main() -> int:
    """Run the demo; every failure is one line."""
    return perform(demonstrate, DEMO)


if __name__ == "__main__":
    sys.exit(main())
