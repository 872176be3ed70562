"""Write the payments that ``jobs/payments.py`` aggregates: the same files for the same arguments.

    python -m laminar_core.jobs.payments_data build/payments --rows 24000000

Columns: ``merchant`` (string, Zipf-distributed), ``amount_cents`` (int64) and ``paid_at``
(timestamp[us, UTC]). Payment *i* happened at ``start + i * step`` and is up to ``max_disorder_s``
late, so a reader of row groups in order, of all or of every n-th one, never meets a payment further
behind than that.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from laminar_core.connectors import DatagenSource, EventTime, UniformInt, ZipfKey
from laminar_core.jobs.data_sets import (
    MICROSECONDS,
    Part,
    invalid,
    show_writing,
    start_us,
    write_data_set,
)

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
            raise invalid("rows, files and merchants must be at least 1, max_disorder_s 0")
        if not 1 <= self.events_per_second <= MICROSECONDS:
            raise invalid("events_per_second must be from 1 to 1,000,000")

    def source(self) -> DatagenSource:
        """Return the payments as generated rows."""
        fields = {
            "merchant": ZipfKey(self.merchants, self.zipf_exponent, "merchant-"),
            "amount_cents": UniformInt(100, 100_000),
            "paid_at": EventTime(
                start_us=start_us(self.start),
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
    part = Part("payments-", parameters.source(), ("merchant",))
    return write_data_set(path, "payments", asdict(parameters), [part], files, progress)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--rows", default=24_000_000, show_default=True)
@click.option("--files", default=8, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(path: Path, rows: int, files: int, seed: int) -> None:
    """Write payments as Parquet files into the directory PATH."""
    show_writing(
        "payments",
        path,
        rows,
        lambda progress: write_payments(path, rows=rows, files=files, seed=seed, progress=progress),
    )


if __name__ == "__main__":
    main()
