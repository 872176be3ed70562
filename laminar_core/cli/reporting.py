"""Display a run: one JSON object per event, or a progress bar and a line per event."""

import json
from typing import Protocol, Self

import click
import pyarrow as pa
from pydantic_core import to_json

from laminar_core.cli.views import ROWS_SHOWN
from laminar_core.driver.events import JobEvent
from laminar_core.errors import LaminarError
from laminar_core.host.terminal import say
from laminar_core.pipeline.progress_bar import ProgressBar


class Reporter(Protocol):
    """Displays the events of a job; ``on_event`` is called from several threads."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def on_event(self, event: JobEvent) -> None:
        """Show one event."""
        ...

    def rows(self, sink: str, table: pa.Table) -> None:
        """Show the rows that a sink collected."""
        ...

    def failed(self, error: LaminarError) -> None:
        """Show why the job ended."""
        ...


class JsonReporter:
    """One object per line on standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def on_event(self, event: JobEvent) -> None:
        """Print the event as JSON."""
        click.echo(event.model_dump_json())

    def rows(self, sink: str, table: pa.Table) -> None:
        """Print one object per row."""
        for row in table.to_pylist():
            line = {"event": "row", "sink": sink, "row": row}
            # Times in ISO 8601, bytes in base 64; infinity is no number in JSON.
            click.echo(to_json(line, inf_nan_mode="strings", bytes_mode="base64"))

    def failed(self, error: LaminarError) -> None:
        """Print code and message."""
        click.echo(json.dumps({"event": "failed", "code": error.code.value, "message": str(error)}))


class TextReporter(ProgressBar):
    """Lines on standard error, with a bar below them on a terminal; rows on standard output."""

    def rows(self, sink: str, table: pa.Table) -> None:
        """Print the first rows on standard output."""
        say(f"{sink}: {table.num_rows:,} rows")
        for row in table.slice(0, ROWS_SHOWN).to_pylist():
            say("  " + ", ".join(f"{name}={value}" for name, value in row.items()))
        if table.num_rows > ROWS_SHOWN:
            say(f"  … and {table.num_rows - ROWS_SHOWN:,} more; --json prints all")

    def failed(self, error: LaminarError) -> None:
        """Do nothing: the command line prints the error as it exits."""
