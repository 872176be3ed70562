"""Write the payments that ``jobs/payments.py`` aggregates: the same files for the same arguments.

    python -m laminar_core.jobs.payments_data build/payments --rows 24000000

Columns: ``merchant`` (string, Zipf-distributed), ``amount_cents`` (int64) and ``paid_at``
(timestamp[us, UTC]). Payment *i* happened at ``start + i * step`` and is up to ``max_disorder_s``
late, so a reader of row groups in order, of all or of every n-th one, never meets a payment further
behind than that.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from laminar_core.connectors import DatagenSource, EventTime, UniformInt, ZipfKey
from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError

ROW_GROUP_ROWS = 500_000
CHUNK_ROWS = 32_768
"""Generated at a time: small enough to stay in the processor's cache."""

WRITERS = 2
MICROSECONDS = 1_000_000
DATASET = "_dataset.json"
GENERATOR_VERSION = 1
"""Raised when the same parameters give other rows."""


@dataclass(frozen=True, slots=True)
class PaymentsParameters:
    """Everything that the rows and the files depend on."""

    rows: int
    files: int
    merchants: int
    zipf_exponent: float
    seed: int
    start: str
    events_per_second: int
    max_disorder_s: int
    generator_version: int = GENERATOR_VERSION

    def __post_init__(self) -> None:
        if min(self.rows, self.files, self.merchants) < 1 or self.max_disorder_s < 0:
            raise _invalid("rows, files and merchants must be at least 1, max_disorder_s 0")
        if not 1 <= self.events_per_second <= MICROSECONDS:
            raise _invalid("events_per_second must be from 1 to 1,000,000")

    def source(self) -> DatagenSource:
        """Return the payments as generated rows."""
        fields = {
            "merchant": ZipfKey(self.merchants, self.zipf_exponent, "merchant-"),
            "amount_cents": UniformInt(100, 100_000),
            "paid_at": EventTime(
                start_us=_seconds_since_1970(self.start) * MICROSECONDS,
                step_us=MICROSECONDS // self.events_per_second,
                jitter_us=self.max_disorder_s * MICROSECONDS,
            ),
        }
        return DatagenSource(fields, rows=self.rows, seed=self.seed)


def write_payments(  # noqa: PLR0913 - a data set has this many properties, all with defaults
    path: str | os.PathLike[str],
    *,
    rows: int = 24_000_000,
    files: int = 8,
    merchants: int = 12_000,
    zipf_exponent: float = 1.1,
    seed: int = 1,
    start: str = "2026-01-01T00:00:00Z",
    events_per_second: int = 2_000,
    max_disorder_s: int = 20,
    progress: Callable[[int], None] = lambda _: None,
) -> bool:
    """Write the data set, unless the same one is there already.

    Units: ``events_per_second`` counts seconds of event time; the default of 24 million rows spans
    forty windows of five minutes. ``progress`` gets the number of rows just written, and is called
    from several threads.

    Returns:
        True if it was written, False if it was there.

    Raises:
        ConfigurationError: ``path`` holds something else, or an argument is out of range.
    """
    parameters = PaymentsParameters(
        rows=rows,
        files=files,
        merchants=merchants,
        zipf_exponent=zipf_exponent,
        seed=seed,
        start=start,
        events_per_second=events_per_second,
        max_disorder_s=max_disorder_s,
    )
    source = parameters.source()
    target = Path(path).absolute()
    if _is_complete(target, parameters):
        return False
    _refuse_foreign(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _write_files(building, source, parameters, progress)
        _describe(building, parameters)
        shutil.rmtree(target, ignore_errors=True)
        building.chmod(0o755)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return True


def _write_files(
    building: Path,
    source: DatagenSource,
    parameters: PaymentsParameters,
    progress: Callable[[int], None],
) -> None:
    """Two files at a time: Arrow and NumPy let go of the interpreter lock."""
    bounds = [parameters.rows * at // parameters.files for at in range(parameters.files + 1)]

    def write(at: int) -> None:
        file = building / f"payments-{at:03d}.parquet"
        _write_file(file, source, range(bounds[at], bounds[at + 1]), progress)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(parameters.files)))


def _write_file(
    file: Path, source: DatagenSource, rows: range, progress: Callable[[int], None]
) -> None:
    with pq.ParquetWriter(
        file,
        source.schema(),
        compression="lz4",
        use_dictionary=["merchant"],  # pyright: ignore[reportArgumentType] - a list is allowed
        write_page_checksum=True,
        store_schema=False,  # A merchant is a string to every reader; its dictionary is encoding.
    ) as writer:
        for start in range(rows.start, rows.stop, ROW_GROUP_ROWS):
            group = range(start, min(start + ROW_GROUP_ROWS, rows.stop))
            chunks = [
                source.rows_between(at, min(at + CHUNK_ROWS, group.stop))
                for at in range(group.start, group.stop, CHUNK_ROWS)
            ]
            writer.write_table(pa.Table.from_batches(chunks), row_group_size=ROW_GROUP_ROWS)
            progress(len(group))


def _describe(folder: Path, parameters: PaymentsParameters) -> None:
    sizes = {file.name: file.stat().st_size for file in sorted(folder.glob("*.parquet"))}
    content = {"parameters": asdict(parameters), "files": sizes}
    (folder / DATASET).write_text(json.dumps(content, indent=1) + "\n")


def _is_complete(path: Path, parameters: PaymentsParameters) -> bool:
    try:
        content = json.loads((path / DATASET).read_text())
        sizes = {file.name: file.stat().st_size for file in path.glob("*.parquet")}
        return content == {"parameters": asdict(parameters), "files": sizes}
    except (OSError, ValueError):
        return False


def _refuse_foreign(path: Path) -> None:
    is_replaceable = path.is_dir() and ((path / DATASET).exists() or not any(path.iterdir()))
    if path.exists() and not is_replaceable:
        raise _invalid(f"{path} exists and is not a payments data set: give another path")


def _seconds_since_1970(start: str) -> int:
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _invalid(f"start must be like 2026-01-01T00:00:00Z, with a time zone, not {start!r}")
    return round(moment.timestamp())


def _invalid(message: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, message)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--rows", default=24_000_000, show_default=True)
@click.option("--files", default=8, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(path: Path, rows: int, files: int, seed: int) -> None:
    """Write payments as Parquet files into the directory PATH."""
    columns = (TextColumn("payments"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns) as bar:
            task = bar.add_task("payments", total=rows)
            written = write_payments(
                path, rows=rows, files=files, seed=seed, progress=lambda n: bar.advance(task, n)
            )
            bar.update(task, completed=rows)
    except LaminarError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from error
    click.echo(f"{rows:,} payments {'written to' if written else 'were already in'} {path}")


if __name__ == "__main__":
    main()
