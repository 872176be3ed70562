"""The table of what was wanted of Laminar, and what the stored results say of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.record import Figure, Record
from benchmarks.tables import shown

HEADINGS = ("figure", "measured", "wanted", "", "in the same run", "when, and load")
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of a benchmark, and what is wanted of it."""

    label: str
    benchmark: str
    figure: str
    wanted: float | None = None
    """None: it is there to be compared."""
    beside: Mapping[str, str] = field(default_factory=dict[str, str])
    """Figures of the same benchmark to compare with, by label."""
    of: Literal["median", "worst"] = "median"


_KEPT = "10,000 checkpoints kept: "
ROWS = (
    Row(
        "payments from Parquet, two workers, a checkpoint each second",
        "payments-beside",
        "payments_beside_laminar",
        beside={
            "by hand": "payments_beside_by_hand",
            "DuckDB": "payments_beside_duckdb",
            "Polars": "payments_beside_polars",
            "DataFusion": "payments_beside_datafusion",
        },
    ),
    Row(
        "to numpy by hand",
        "payments-beside",
        "payments_beside_by_hand_ratio",
        0.7,
        {
            "CPU per million rows": "payments_beside_laminar_cpu",
            "by hand": "payments_beside_by_hand_cpu",
            "DuckDB": "payments_beside_duckdb_cpu",
            "Polars": "payments_beside_polars_cpu",
            "DataFusion": "payments_beside_datafusion_cpu",
            "without verification of pages, to numpy": "payments_beside_unverified_to_by_hand",
        },
    ),
    Row(
        "to the best engine that has whole files",
        "payments-beside",
        "payments_beside_whole_files_ratio",
        1.3,
        {
            "to DuckDB": "payments_beside_duckdb_ratio",
            "to Polars": "payments_beside_polars_ratio",
            "to DataFusion": "payments_beside_datafusion_ratio",
            "without verification of pages, to DuckDB": "payments_beside_unverified_to_duckdb",
        },
    ),
    Row(
        "to Flink SQL, 12 million payments",
        "payments-beside",
        "payments_beside_12m_flink_sql_ratio",
        beside={
            "CPU per million rows": "payments_beside_12m_laminar_cpu",
            "Flink SQL": "payments_beside_12m_flink_sql_cpu",
        },
    ),
    Row("generated rows, to Bytewax with Arrow", "generator", "generator_to_bytewax", 2.0),
    *(
        Row(
            f"{words} keys, to DuckDB",
            "payments-keys",
            f"payments_keys_{keys}_duckdb_ratio",
            beside={
                "CPU per million rows": f"payments_keys_{keys}_laminar_cpu",
                "DuckDB": f"payments_keys_{keys}_duckdb_cpu",
            },
        )
        for words, keys in (("a million", 1_000_000), ("ten million", 10_000_000))
    ),
    Row(
        "two workers to one",
        "payments-workers",
        "second_worker_laminar",
        1.7,
        {"by hand": "second_worker_by_hand", "DuckDB": "second_worker_duckdb"},
    ),
    Row(
        "unaligned checkpoint behind a slow operator",
        "backpressure",
        "checkpoint_unaligned_slow_100x",
        30.0,
        {"aligned": "checkpoint_aligned_slow_100x"},
    ),
    Row(
        "the longest of these",
        "backpressure",
        "checkpoint_unaligned_slow_100x",
        50.0,
        of="worst",
    ),
    Row("SIGKILL of the driver to rows", "driver-recovery", "driver_kill_to_data", 5.5),
    Row(
        "the same with a standby",
        "standby-recovery",
        "driver_kill_to_data_standby",
        1.0,
        {"without": "driver_kill_to_data_beside"},
    ),
    Row("SIGKILL of a worker to rows", "worker-recovery", "worker_kill_to_data", 0.45),
    Row(
        "lost to a checkpoint each second",
        "payments",
        "payments_lost_to_checkpoints",
        3.0,
        {"standard error": "payments_lost_to_checkpoints_error"},
    ),
    Row(
        "running totals, batches of 20 rows", "small", "small_job_running_totals", 6_400.0
    ),
    Row(
        "latency of running totals, 99th percentile",
        "small",
        "small_latency_running_totals_p99",
        10.0,
        {"median": "small_latency_running_totals_p50"},
    ),
    Row(
        f"{_KEPT}`checkpoints list`",
        "kept",
        "kept_10000_list",
        1.0,
        {"CPU": "kept_10000_list_cpu"},
    ),
    Row(
        f"{_KEPT}`retention plan`",
        "kept",
        "kept_10000_plan",
        1.0,
        {"CPU": "kept_10000_plan_cpu"},
    ),
    Row(
        f"{_KEPT}a tick of Dagster",
        "kept",
        "kept_10000_tick",
        1.0,
        {"while it catches up": "kept_10000_tick_behind"},
    ),
    Row("restore, in memory", "state", "state_memory_restore", 4.0),
    Row("restore, RocksDB", "state", "state_rocksdb_restore", 4.0),
    Row("import of the command line", "start", "start_import", 0.3, {"CPU": "start_import_cpu"}),
)  # fmt: skip


def lines(records: Mapping[str, Record], *, missing: bool = True) -> list[tuple[str, ...]]:
    """Return the cells of all rows; ``missing``: also of those that were not measured."""
    found = ((row, _line(row, records)) for row in ROWS)
    return [line or _none(row) for row, line in found if line or missing]


def markdown(records: Mapping[str, Record]) -> str:
    """Return the table for the page."""
    heading, *rows = (
        "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
        for cells in (HEADINGS, *lines(records))
    )
    return "\n".join([heading, "|" + "---|" * len(HEADINGS), *rows, ""])


def _line(row: Row, records: Mapping[str, Record]) -> tuple[str, ...] | None:
    record = records.get(row.benchmark)
    figure = record.figure(row.figure) if record else None
    if record is None or figure is None:
        return None
    if row.of == "worst" and len(figure.values) == 1:  # A median that was stored without rounds.
        return None
    value = figure.median if row.of == "median" else _worst(figure)
    others = {label: record.figure(name) for label, name in row.beside.items()}
    return (
        row.label,
        _measured(row, figure, value),
        _wanted(row, figure),
        _verdict(row, figure, value),
        "; ".join(f"{label} {shown(f.median)}" for label, f in others.items() if f is not None),
        f"{record.began:%Y-%m-%d %H:%M}, {_load(record)}",
    )


def _none(row: Row) -> tuple[str, ...]:
    wanted = "" if row.wanted is None else shown(row.wanted)
    return (row.label, NOT_MEASURED, wanted, "", "", "")


def _worst(figure: Figure) -> float:
    return min(figure.values) if figure.better == "higher" else max(figure.values)


def _measured(row: Row, figure: Figure, value: float) -> str:
    lowest, highest = shown(min(figure.values)), shown(max(figure.values))
    spread = f" ({lowest} to {highest})" if lowest != highest and row.of == "median" else ""
    return f"{shown(value)} {figure.unit}{spread}"


def _wanted(row: Row, figure: Figure) -> str:
    if row.wanted is None:
        return ""
    return f"{'at least' if figure.better == 'higher' else 'at most'} {shown(row.wanted)}"


def _verdict(row: Row, figure: Figure, value: float) -> str:
    if row.wanted is None:
        return ""
    met = value >= row.wanted if figure.better == "higher" else value <= row.wanted
    return "met" if met else f"missed: {shown(value / row.wanted)} times the target"


def _load(record: Record) -> str:
    loads = [load for load in (record.load_before, record.load_after) if load is not None]
    return f"load {' to '.join(f'{load:g}' for load in loads)}" if loads else "load not noted"
