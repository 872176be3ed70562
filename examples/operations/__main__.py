"""``make demo-ops``: Dagster runs payments through slowness, kills and damage.

    python -m examples.operations [--folder build/demo-ops] [--keep]

It starts webserver, daemon, sensors and schedules of its own on a free port, and ends them and
everything that they started, whatever happens; with ``--keep``, once you press Ctrl-C.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from examples.operations.browser import Shot, why_no_browser
from examples.operations.client import DagsterClient
from examples.operations.job import JobWatch
from examples.operations.report import OperationsReport, show
from examples.operations.screenshots import at_the_end, take, when_calm, while_slow
from examples.operations.server import end_all, free_port, serving
from examples.operations.stage import Stage, StepFailed
from examples.operations.steps import Operations
from examples.operations.stream import FOLDER_VARIABLE, brake_file, slow_payments
from examples.oracle import Comparison, batch_answer, committed_output, compare
from examples.screen import perform
from laminar_core.host.clock import SystemClock
from laminar_core.jobs.payments_data import write_payments
from laminar_core.orchestration.streams import ROOT
from laminar_core.spark import open_session

ROWS = 24_000_000
"""Ten minutes of rows; the rest at the end is read at full speed."""

DEFINITIONS = "examples.operations.definitions"
_PICTURES = "pictures of the UI"
_UP_S = 180
_REST_S = 300

Act = Callable[[Operations], None]
STEPS: tuple[tuple[str, Act], ...] = (
    ("start payments from the UI's API", Operations.start),
    ("one operator becomes slow", Operations.slow_down),
    ("it is fast again", Operations.speed_up),
    ("the driver is killed", Operations.kill),
    ("retention runs on schedule", Operations.retain),
    ("a restore drill", Operations.drill),
    ("the newest checkpoint is damaged and the driver killed", Operations.damage),
    ("stop with a last checkpoint", Operations.stop),
)
SHOTS: dict[Act, Callable[[Operations], list[Shot]]] = {
    Operations.slow_down: while_slow,
    Operations.speed_up: when_calm,
    Operations.damage: at_the_end,
}
"""Screenshots to take after each step."""

_SURROUNDINGS = ("payments to read", "dagster dev")
_END = ("the rest, with `laminar run`", "the same as a Spark batch query")


def prove(console: Console, folder: Path, pictures: Path | None, *, keep: bool = False) -> int:
    """Run the whole demonstration and return the exit code.

    Screenshots go into ``pictures``. With ``keep``, Dagster stays open until Ctrl-C.
    """
    clock = SystemClock()
    stage = Stage(console, clock)
    begun_ms = clock.monotonic_ms()
    comparison: Comparison | None = None
    operations: Operations | None = None
    with ended_by_signals(), ExitStack() as cleanup:
        cleanup.callback(end_all, folder, clock)
        try:
            _begin_anew(stage, folder)
            operations = cleanup.enter_context(_dagster(stage, folder))
            for name, act in STEPS:
                with stage.step(name):
                    act(operations)
                if pictures is not None and act in SHOTS:
                    with stage.step(_PICTURES):
                        take(operations, SHOTS[act](operations), pictures)
            comparison = _end(stage, folder)
        except StepFailed:
            pass  # It is in the report.
        except KeyboardInterrupt:
            keep = False
            console.print("interrupted: ending what was started", style="red")
        report = _report(stage, folder, comparison, begun_ms, pictures=pictures is not None)
        if keep and operations is not None:
            stay_open(console, f"http://localhost:{operations.ui.port}")
    return 1 if report.problems else 0


def _report(
    stage: Stage, folder: Path, comparison: Comparison | None, begun_ms: float, *, pictures: bool
) -> OperationsReport:
    """Show the report, and keep it beside the logs."""
    console = stage.console
    planned = len(_SURROUNDINGS) + len(STEPS) + len(_END) + len(SHOTS if pictures else ())
    took_s = stage.since_s(begun_ms)
    report = OperationsReport(tuple(stage.steps), planned, comparison, took_s)
    (folder / "summary.json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
    show(report, console)
    console.print(f"Logs and summary.json are in {folder}", soft_wrap=True, highlight=False)
    return report


def stay_open(console: Console, url: str, wait: Callable[[], object] = signal.pause) -> None:
    """Print where Dagster is, and wait until an interrupt ends the demonstration."""
    console.print(f"Dagster stays open on {url}. Ctrl-C ends it.", soft_wrap=True)
    try:
        while True:
            wait()
    except KeyboardInterrupt:
        console.print("ending what was started")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end the demonstration like Ctrl-C; the clean-up is not interrupted again."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = [(each, signal.signal(each, stop)) for each in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for each, handler in before:
            signal.signal(each, handler)


def _begin_anew(stage: Stage, folder: Path) -> None:
    with stage.step(_SURROUNDINGS[0]):
        spec = slow_payments(folder)
        if left := end_all(folder, stage.clock):
            stage.note(f"{left} processes of an earlier demonstration ended")
        for name in ("store", "output", "dagster", "drivers"):
            shutil.rmtree(folder / name, ignore_errors=True)
        brake_file(folder).unlink(missing_ok=True)
        written = write_payments(Path(spec.arguments["input"]), rows=ROWS)
        stage.note(f"{ROWS:,} payments {'written' if written else 'are there'}")


@contextmanager
def _dagster(stage: Stage, folder: Path) -> Iterator[Operations]:
    port = free_port()
    ui = DagsterClient(port)
    spec = slow_payments(folder)
    with serving(folder, DEFINITIONS, port, stage.clock):
        with stage.step(_SURROUNDINGS[1]):
            stage.wait_until("the webserver", lambda: ui.is_up() or None, _UP_S)
            stage.note(f"webserver, daemon and code location are up: http://localhost:{port}")
        job = JobWatch.of(folder / "store", spec.name)
        yield Operations(stage, ui, job, spec, brake_file(folder))


def _end(stage: Stage, folder: Path) -> Comparison:
    """Read what is left at full speed, then compare."""
    spec = slow_payments(folder)
    hurried = spec.model_copy(
        update={"arguments": {k: v for k, v in spec.arguments.items() if k != "rows_per_second"}}
    )
    with stage.step(_END[0]):
        _finish(hurried.command(str(folder / "store")), folder)
        newest = JobWatch.of(folder / "store", spec.name).generation()
        outcome = newest.end.outcome if newest and newest.end else "running"
        if outcome != "finished":
            raise StepFailed(f"the job is {outcome}, not finished")
        stage.note(f"generation {newest.generation if newest else '?'} finished")
    with stage.step(_END[1]):
        spark = open_session("local[2]", "laminar demo: batch query")
        try:
            expected = batch_answer(spark, Path(spec.arguments["input"]))
        finally:
            spark.stop()
        comparison = compare(expected, committed_output(Path(spec.arguments["output"])))
        stage.note(f"{comparison.rows_found:,} rows, {comparison.rows_expected:,} expected")
    return comparison


def _finish(command: list[str], folder: Path) -> None:
    with (folder / "finish.log").open("wb") as log:
        try:
            subprocess.run(  # noqa: S603 - its own words
                command,
                cwd=ROOT,
                env={**os.environ, FOLDER_VARIABLE: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_REST_S,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise StepFailed(f"{error}; it said why in {log.name}") from error


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=ROOT / "build" / "demo-ops",
    help="For everything that is written  [default: build/demo-ops]",
)
@click.option(
    "--screenshots",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also photograph the UI, into this directory (docs/images).",
)
@click.option("--keep", is_flag=True, help="Leave Dagster open at the end, until Ctrl-C.")
def main(folder: Path, screenshots: Path | None, *, keep: bool) -> None:
    """Prove that a stream under Dagster is operated as documented."""
    if screenshots is not None and (missing := why_no_browser()):
        raise click.UsageError(missing)
    folder = folder.absolute()
    os.environ[FOLDER_VARIABLE] = str(folder)
    pictures = None if screenshots is None else screenshots.absolute()
    sys.exit(perform(lambda console: prove(console, folder, pictures, keep=keep), folder))


if __name__ == "__main__":
    main()
