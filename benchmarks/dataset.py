"""Input and output of the benchmarks: below ``build/bench``, created once."""

import shutil
from pathlib import Path

from laminar_core.jobs.payments_data import write_payments

ROOT = Path("build/bench")
THROUGHPUT_ROWS = 48_000_000
RECOVERY_ROWS = 24_000_000


def payments(rows: int) -> Path:
    """Return a data set of that size."""
    path = ROOT / f"payments-{rows}"
    write_payments(path, rows=rows)
    return path


def fresh(name: str) -> Path:
    """Return an empty folder for output."""
    path = ROOT / name
    shutil.rmtree(path, ignore_errors=True)
    return path
