"""Write generated rows as Parquet files, once: the same files for the same parameters."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from laminar_core.connectors import DatagenSource
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError

ROW_GROUP_ROWS = 500_000
CHUNK_ROWS = 32_768
"""Generated at a time: small enough to stay in the processor's cache."""

WRITERS = 2
MICROSECONDS = 1_000_000
DATASET = "_dataset.json"


class Part(NamedTuple):
    """The rows of a bounded source, in files whose names begin with ``prefix``."""

    prefix: str
    """It may begin with a folder: ``trades/trades-``."""
    source: DatagenSource
    dictionaries: tuple[str, ...]
    """Columns that are dictionary-encoded."""


def write_data_set(
    path: str | os.PathLike[str],
    name: str,
    parameters: Mapping[str, object],
    parts: Sequence[Part],
    files: int,
    progress: Callable[[int], None],
) -> bool:
    """Write each part as so many files, unless the same data set is there already.

    ``parameters``: everything that rows and files depend on, as JSON has it. ``progress`` gets the
    number of rows just written, and is called from several threads.

    Returns:
        True if it was written, False if it was there.

    Raises:
        ConfigurationError: ``path`` holds something else (INVALID_OPTION).
    """
    target = Path(path).absolute()
    if _is_complete(target, parameters):
        return False
    _refuse_foreign(target, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for part in parts:
            _write_files(building, part, files, progress)
        _describe(building, parameters)
        shutil.rmtree(target, ignore_errors=True)
        building.chmod(0o755)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return True


def show_writing(
    name: str, path: Path, rows: int, write: Callable[[Callable[[int], None]], bool]
) -> None:
    """Call ``write`` with a progress bar of ``rows``, and say what it did; or the error, and exit.

    ``write`` is called with a function that takes the number of rows just written, and returns
    whether it wrote anything.
    """
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns) as bar:
            task = bar.add_task(name, total=rows)
            written = write(lambda count: bar.advance(task, count))
            bar.update(task, completed=rows)
    except LaminarError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from error
    click.echo(f"{rows:,} {name} {'written to' if written else 'were already in'} {path}")


def start_us(start: str) -> int:
    """Return the microseconds since 1970 of a moment like 2026-01-01T00:00:00Z.

    Raises:
        ConfigurationError: it is no moment, or has no time zone (INVALID_OPTION).
    """
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid(f"start must be like 2026-01-01T00:00:00Z, with a time zone, not {start!r}")
    return round(moment.timestamp()) * MICROSECONDS


def invalid(message: str) -> ConfigurationError:
    """Return the error of a wrong argument."""
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)


def _write_files(building: Path, part: Part, files: int, progress: Callable[[int], None]) -> None:
    """Two files at a time: Arrow and NumPy let go of the interpreter lock."""
    rows = part.source.rows or 0
    bounds = [rows * at // files for at in range(files + 1)]

    def write(at: int) -> None:
        file = building / f"{part.prefix}{at:03d}.parquet"
        file.parent.mkdir(exist_ok=True)
        _write_file(file, part, range(bounds[at], bounds[at + 1]), progress)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(files)))


def _write_file(file: Path, part: Part, rows: range, progress: Callable[[int], None]) -> None:
    with pq.ParquetWriter(
        file,
        part.source.schema(),
        compression="lz4",
        use_dictionary=[*part.dictionaries],  # pyright: ignore[reportArgumentType] - it is allowed
        write_page_checksum=True,
        store_schema=False,  # A key is a string to every reader; its dictionary is encoding.
    ) as writer:
        for start in range(rows.start, rows.stop, ROW_GROUP_ROWS):
            group = range(start, min(start + ROW_GROUP_ROWS, rows.stop))
            chunks = [
                part.source.rows_between(at, min(at + CHUNK_ROWS, group.stop))
                for at in range(group.start, group.stop, CHUNK_ROWS)
            ]
            writer.write_table(pa.Table.from_batches(chunks), row_group_size=ROW_GROUP_ROWS)
            progress(len(group))


def _describe(folder: Path, parameters: Mapping[str, object]) -> None:
    content = {"parameters": parameters, "files": _sizes(folder)}
    (folder / DATASET).write_text(json.dumps(content, indent=1) + "\n")


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(folder.rglob("*.parquet"))
    return {file.relative_to(folder).as_posix(): file.stat().st_size for file in files}


def _is_complete(path: Path, parameters: Mapping[str, object]) -> bool:
    try:
        content = json.loads((path / DATASET).read_text())
        return content == {"parameters": parameters, "files": _sizes(path)}
    except (OSError, ValueError):
        return False


def _refuse_foreign(path: Path, name: str) -> None:
    is_replaceable = path.is_dir() and ((path / DATASET).exists() or not any(path.iterdir()))
    if path.exists() and not is_replaceable:
        raise invalid(f"{path} exists and is not a {name} data set: give another path")
