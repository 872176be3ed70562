"""``laminar status`` and ``laminar jobs``: the state of one job, or one line per job."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict

import click
from pydantic import TypeAdapter

from laminar_core.cli.groups import examples
from laminar_core.cli.jobs import job_option, open_job
from laminar_core.cli.options import DURATION, json_option, store_option
from laminar_core.cli.recovery_view import age
from laminar_core.cli.retention_view import pin_as_json, pin_as_remark
from laminar_core.cli.views import print_table, size_text, wall_time
from laminar_core.errors import ErrorCode, LaminarError, StorageUnavailable
from laminar_core.host.clock import SystemClock
from laminar_core.host.terminal import say
from laminar_core.records.bad_rows import BadRowTotals
from laminar_core.records.record import JsonObject
from laminar_core.records.sink_numbers import SinkNumbers, sinks_of
from laminar_core.records.source_numbers import SourceNumbers, sources_of
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.job_probe import SILENCE_MS_MAX, Probe, ProbeAnswer, answer_probe
from laminar_core.store.job_status import (
    CheckpointStatus,
    DriverStatus,
    JobStatus,
    ModeStatus,
    read_status,
)
from laminar_core.store.jobs import job_names
from laminar_core.units import duration_ms

STORE_ANSWER_MAX_S = 10.0
"""A probe waits no longer for the store: Kubernetes counts a probe that takes too long as failed.
"""

_NUMBERS_SHOWN = ("rows_in", "rows_out", "rows_late")


@click.command(
    epilog=examples(
        "laminar status --store build/store",
        "laminar status --store build/store --job payments --json",
        "laminar status --store build/store --job payments --probe ready",
    ),
)
@store_option
@job_option
@click.option(
    "--probe",
    type=click.Choice(("live", "ready")),
    help="Only answer with the exit code: 0, or 1 if the driver here is stuck (live), or if the "
    "workers do not run (ready).",
)
@click.option(
    "--silence",
    type=DURATION,
    help="With --probe: a heartbeat may be so old  [default: live 10 minutes, ready 1 minute].",
)
@json_option
def status(
    *, store: str, job: str | None, probe: Probe | None, silence: str | None, as_json: bool
) -> None:
    """Show the state of a job.

    It names the driver, the newest checkpoint, the mode, pins, and the last drill. Only the store
    is read; the heartbeat shows whether a driver on another machine is alive.
    """
    if probe is not None:
        silence_ms = SILENCE_MS_MAX[probe] if silence is None else duration_ms(silence)
        answer = _probed(store, job, probe, silence_ms)
        say(json.dumps(asdict(answer)) if as_json else answer.message)
        sys.exit(answer.exit_code)
    if silence is not None:
        raise click.UsageError(
            "--silence needs --probe: nothing else compares the age of a heartbeat"
        )
    found = read_status(open_job(store, job), SystemClock().now_ms())
    if as_json:
        click.echo(json.dumps(status_as_json(found), indent=1))
        return
    for line in _lines(found):
        say(line)


def _probed(store: str, job: str | None, probe: Probe, silence_ms: int) -> ProbeAnswer:
    """Answer a probe within ``STORE_ANSWER_MAX_S``.

    Nobody is killed because the store does not answer: the driver knows that better.

    Raises:
        LaminarError: the job is not found, or the store does not answer; not for ``live``.
    """

    def read() -> ProbeAnswer:
        opened = open_job(store, None) if job is None else CheckpointStore.open(store, job)
        return answer_probe(read_status(opened, SystemClock().now_ms()), probe, silence_ms)

    try:
        return _within(read, STORE_ANSWER_MAX_S)
    except LaminarError as error:
        if probe == "ready":
            raise
        return ProbeAnswer(probe, None, f"nothing is known of the driver: {error}")


def _within(read: Callable[[], ProbeAnswer], duration_s: float) -> ProbeAnswer:
    """Call ``read`` in a thread that may be left behind.

    Raises:
        StorageUnavailable: it takes longer than this, or raised this itself.
    """
    result: Future[ProbeAnswer] = Future()

    def run() -> None:
        try:
            result.set_result(read())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            result.set_exception(error)

    threading.Thread(target=run, name="laminar-probe", daemon=True).start()
    try:
        return result.result(duration_s)
    except TimeoutError:
        raise StorageUnavailable(
            ErrorCode.STORE_IO, f"the store did not answer within {duration_s:g} s"
        ) from None


@click.command(
    epilog=examples("laminar jobs --store build/store"),
)
@store_option
@json_option
def jobs(*, store: str, as_json: bool) -> None:
    """List the jobs in a store, and the state of each."""
    now_ms = SystemClock().now_ms()
    found = [read_status(CheckpointStore.open(store, job), now_ms) for job in job_names(store)]
    if as_json:
        click.echo(json.dumps([status_as_json(one) for one in found], indent=1))
        return
    headings = ("job", "generation", "driver", "heartbeat", "checkpoint", "completed", "remarks")
    print_table(headings, map(_row, found))


def status_as_json(found: JobStatus) -> dict[str, object]:
    """Return the whole status under the names of its fields."""
    return {
        **TypeAdapter(JobStatus).dump_python(found, mode="json"),
        "pins": [pin_as_json(pin) for pin in found.pins],
    }


def _row(found: JobStatus) -> tuple[str, ...]:
    driver, checkpoint = found.driver, found.checkpoint
    beat_ms = None if driver is None else driver.heartbeat_age_ms
    return (
        found.job,
        "" if driver is None else str(driver.generation),
        "never ran" if driver is None else driver.outcome or driver.state,
        "" if beat_ms is None else f"{age(beat_ms)} ago",
        "" if checkpoint is None else str(checkpoint.checkpoint_id),
        "" if checkpoint is None else f"{age(checkpoint.age_ms)} ago",
        "; ".join(found.problems),
    )


def _lines(found: JobStatus) -> Iterator[str]:
    if found.driver is None:
        yield f"job {found.job} never ran"
        return
    yield from _of_driver(found.job, found.driver)
    yield (
        "no completed checkpoint" if found.checkpoint is None else _of_checkpoint(found.checkpoint)
    )
    if found.checkpoint is not None and found.checkpoint.output_expires_at_ms is not None:
        left_ms = found.checkpoint.output_expires_at_ms - found.read_at_ms
        yield f"its output waits for its commit, and {_of_expiry(left_ms)}"
    if found.driver.state != "ended":
        yield _of_mode(found.mode)
    for pin in found.pins:
        yield f"checkpoint {pin.checkpoint_id} is {pin_as_remark(pin, found.read_at_ms)}"
    if (drill := found.drill) is not None:
        which = "" if drill.checkpoint_id is None else f" of checkpoint {drill.checkpoint_id}"
        since_ms = max(found.read_at_ms - drill.started_at_ms, 0)
        yield f"drill {drill.number}{which} {drill.outcome}, {age(since_ms)} ago"
    for problem in found.problems:
        yield f"cannot be read: {problem}"


def _of_driver(job: str, driver: DriverStatus) -> Iterator[str]:
    who = "its claim cannot be read"
    if driver.owner is not None:
        host = driver.owner.host_id.partition("/")[0]
        who = f"process {driver.owner.pid} of {driver.owner.user} on {host}"
    beat_ms = driver.heartbeat_age_ms
    beat = "no sign of life yet" if beat_ms is None else f"last sign of life {age(beat_ms)} ago"
    now = {
        "ended": _of_end(driver),
        "running": f"runs as {who}, {beat}",
        "gone": f"is gone and recorded no end ({who}), {beat}",
        "unseen": f"cannot be seen from here ({who}), {beat}",
    }[driver.state]
    yield f"job {job}, generation {driver.generation} {now}"
    if driver.actor is not None:
        restored = driver.restored_checkpoint_id
        base = "from the beginning" if restored is None else f"from checkpoint {restored}"
        base = base if driver.has_started else "and has not recorded its base yet"
        since = wall_time(driver.claimed_at_ms)
        yield f"started {since} UTC by {driver.actor} {base}: {driver.reason}"
    numbers = [(name, driver.progress.get(name)) for name in _NUMBERS_SHOWN]
    told = [f"{n:,} {name.replace('_', ' ')}" for name, n in numbers if isinstance(n, int)]
    if bad_rows := BadRowTotals.of_properties(driver.progress):
        told.append(str(bad_rows))
    if isinstance(rate := driver.progress.get("rows_per_s"), int | float):
        told.append(f"{rate:,.0f} rows per s")
    if told:
        yield ", ".join(told)
    yield from _of_sources(driver.progress)
    yield from _of_sinks(driver)
    waiting = driver.progress.get("uncommitted_checkpoints")
    if isinstance(waiting, int) and waiting > 1:
        retries = driver.progress.get("commit_retries")
        yield f"output of {waiting} checkpoints waits for its commit, {retries} attempts failed"


def _of_sources(progress: JsonObject) -> Iterator[str]:
    """Yield a line for each source that knows how far it is behind; an older driver has none."""
    for name, numbers in sources_of(progress).items():
        if numbers.splits is None:
            continue
        lag = "an unknown number of" if numbers.lag_rows is None else f"{numbers.lag_rows:,}"
        seconds = "" if numbers.lag_seconds is None else f" ({numbers.lag_seconds:,.0f} s)"
        states = {"idle": numbers.splits_idle, "blocked": numbers.splits_blocked}
        told = [f", {count} {state}" for state, count in states.items() if count is not None]
        yield f"source {name}: {lag} rows{seconds} behind, {numbers.splits} splits{''.join(told)}"
        if (headroom := _of_headroom(numbers)) is not None:
            yield f"source {name}: checkpoint {numbers.headroom_checkpoint_id}, {headroom}"


def _of_sinks(driver: DriverStatus) -> Iterator[str]:
    """Yield a line for each sink that knows a number. Without a driver only the store tells."""
    for name, numbers in sinks_of(driver.progress).items():
        told: list[str] = []
        if numbers.publish_rows_per_s is not None:
            told.append(f"publishes {numbers.publish_rows_per_s:,.0f} rows per s")
        if driver.state in ("running", "unseen") and (expiry := _of_waiting(numbers, driver)):
            told.append(expiry)
        if told:
            yield f"sink {name}: {', '.join(told)}"


def _of_waiting(numbers: SinkNumbers, driver: DriverStatus) -> str | None:
    if (expires_in_ms := numbers.transaction_expires_in_ms) is None:
        return None
    return f"output that waits {_of_expiry(expires_in_ms - (driver.heartbeat_age_ms or 0))}"


def _of_expiry(left_ms: int) -> str:
    return f"expires in {age(left_ms)}" if left_ms > 0 else f"may have expired {age(-left_ms)} ago"


def _of_headroom(numbers: SourceNumbers) -> str | None:
    if numbers.headroom_rows is not None and numbers.headroom_rows < 0:
        return f"the oldest, needs {-numbers.headroom_rows:,} rows that the source has deleted"
    if numbers.headroom_seconds is not None:
        return f"the oldest, can be restored for {age(round(1000 * numbers.headroom_seconds))}"
    return None


def _of_end(driver: DriverStatus) -> str:
    why = driver.outcome_reason or ("its input ended" if driver.outcome == "finished" else "")
    if not why:
        return str(driver.outcome)
    # The reason of a stop is who asked for it.
    return f"{driver.outcome}{', ' if driver.outcome == 'stopped' else ': '}{why}"


def _of_checkpoint(checkpoint: CheckpointStatus) -> str:
    inflight = f", {checkpoint.inflight_rows:,} rows in flight" if checkpoint.inflight_rows else ""
    return (
        f"checkpoint {checkpoint.checkpoint_id} completed {age(checkpoint.age_ms)} ago: "
        f"{checkpoint.kind.value}, {checkpoint.mode}, {checkpoint.duration_ms:.0f} ms, "
        f"{size_text(checkpoint.size_bytes)} ({size_text(checkpoint.written_bytes)} new){inflight}"
    )


def _of_mode(mode: ModeStatus | None) -> str:
    if mode is None:
        return "checkpoints align as the driver was started"
    how = f"overtake after {mode.mode} ms" if isinstance(mode.mode, int) else f"are {mode.mode}"
    return f"checkpoints {how}: command {mode.command} by {mode.actor}, {mode.reason}"
