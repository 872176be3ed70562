"""A job as a small table in a notebook: static HTML, every value escaped."""

from collections.abc import Iterator
from html import escape

from laminar_core.driver.options import JobResult
from laminar_core.records.record import JsonObject
from laminar_core.records.source_numbers import sources_of
from laminar_core.store.job_status import CheckpointStatus, DriverStatus, JobStatus


def status_html(found: JobStatus, result: JobResult | None = None) -> str:
    """Return the status as a table.

    ``result``: of a job that has ended, whose last sign of life may have older numbers.
    """
    rows = [("job", found.job)]
    if found.driver is None:
        rows.append(("state", "has not started"))
    else:
        rows += _of_driver(found.driver, result)
    if found.checkpoint is not None:
        rows.append(("last checkpoint", _of_checkpoint(found.checkpoint)))
    rows += [("cannot be read", problem) for problem in found.problems]
    return _table(rows)


def problem_html(problem: str) -> str:
    """Return a line in place of a status that cannot be read."""
    return f"<p>{escape(problem)}</p>"


def lines_html(lines: list[str]) -> str:
    """Return lines of text as they are."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _of_driver(driver: DriverStatus, result: JobResult | None) -> Iterator[tuple[str, str]]:
    why = f": {driver.outcome_reason}" if driver.outcome_reason else ""
    yield "state", f"{driver.outcome}{why}" if driver.outcome else driver.state
    yield "generation", str(driver.generation)
    if result is not None:
        numbers: JsonObject = {"rows_in": result.rows_in, "rows_out": result.rows_out}
        numbers["rows_late"] = result.rows_late
        yield from _of_rows(numbers)
        return
    yield from _of_rows(driver.progress)
    if driver.outcome is not None:
        return
    if isinstance(rate := driver.progress.get("rows_per_s"), int | float):
        yield "rate", f"{rate:,.0f} rows per s"
    for name, source in sources_of(driver.progress).items():
        if source.lag_rows is not None:
            seconds = "" if source.lag_seconds is None else f", {source.lag_seconds:,.0f} s"
            yield f"lag of {name}", f"{source.lag_rows:,} rows{seconds}"


def _of_rows(numbers: JsonObject) -> Iterator[tuple[str, str]]:
    for name in ("rows_in", "rows_out", "rows_late"):
        if isinstance(count := numbers.get(name), int) and (count or name != "rows_late"):
            yield name.replace("_", " "), f"{count:,}"


def _of_checkpoint(checkpoint: CheckpointStatus) -> str:
    return (
        f"{checkpoint.checkpoint_id}, {checkpoint.age_ms / 1000:,.0f} s ago: "
        f"{checkpoint.duration_ms:,.0f} ms, {checkpoint.size_bytes:,} bytes"
    )
