"""Which figures stand where in docs/benchmarks.md."""

from benchmarks.tables import ONE_COLUMN, Table

TABLES = {
    "payments-beside": Table(
        "payments-beside",
        {
            "Laminar": "laminar",
            "Laminar, pages not verified": "unverified",
            "numpy and pyarrow by hand": "by_hand",
            "DuckDB": "duckdb",
            "Polars": "polars",
            "DataFusion": "datafusion",
            "Laminar, 12 million payments": "12m_laminar",
            "Flink SQL, 12 million payments": "12m_flink_sql",
        },
        {
            "rows/s": "payments_beside_{}",
            "s of CPU per million rows": "payments_beside_{}_cpu",
            "Laminar's speed to it": "payments_beside_{}_ratio",
        },
        corner="two workers",
    ),
    "generator": Table(
        "generator",
        {"Laminar": "laminar", "Bytewax with Arrow": "bytewax"},
        {"rows/s": "generator_{}", "s of CPU per million rows": "generator_{}_cpu"},
        corner="two workers",
    ),
    "payments-keys": Table(
        "payments-keys",
        {f"{keys:,} keys": f"{keys}" for keys in (1_000, 10_000, 100_000, 1_000_000, 10_000_000)},
        {
            "Laminar": "payments_keys_{}_laminar",
            "by hand": "payments_keys_{}_by_hand",
            "DuckDB": "payments_keys_{}_duckdb",
            "Polars": "payments_keys_{}_polars",
            "Laminar, CPU": "payments_keys_{}_laminar_cpu",
            "by hand, CPU": "payments_keys_{}_by_hand_cpu",
            "DuckDB, CPU": "payments_keys_{}_duckdb_cpu",
        },
        corner="rows/s",
        picture="Payments of more and more merchants",
        drawn=("Laminar", "by hand", "DuckDB", "Polars"),
    ),
    "payments-workers": Table(
        "payments-workers",
        {"1 worker": "1"} | {f"{workers} workers": f"{workers}" for workers in (2, 4, 8)},
        {
            "Laminar": "payments_workers_{}_laminar",
            "by hand": "payments_workers_{}_by_hand",
            "DuckDB": "payments_workers_{}_duckdb",
        },
        corner="rows/s",
        picture="Payments with more and more workers",
    ),
    "state-growth": Table(
        "state-growth",
        {f"{keys:,} keys": f"{keys}" for keys in (10_000, 100_000, 1_000_000, 4_000_000)},
        {
            "state, GB": "state_growth_{}_size",
            "pause at a cut, ms": "state_growth_{}_pause_median",
            "the longest, ms": "state_growth_{}_pause_max",
            "first checkpoint, s": "state_growth_{}_first_checkpoint",
            "to linear": "state_growth_{}_first_checkpoint_growth",
            "restore, s": "state_growth_{}_restore_time",
            "restore, to linear": "state_growth_{}_restore_time_growth",
            "restore, s/GB": "state_growth_{}_restore",
        },
        corner="one subtask",
        picture="First checkpoint and restore of more and more keys",
        drawn=("first checkpoint, s", "restore, s"),
    ),
    "kept": Table(
        "kept",
        {"1": "1", "100": "100", "1,000": "1000", "10,000": "10000"},
        {
            "list": "kept_{}_list",
            "list, CPU": "kept_{}_list_cpu",
            "plan": "kept_{}_plan",
            "plan, CPU": "kept_{}_plan_cpu",
            "tick": "kept_{}_tick",
            "tick, CPU": "kept_{}_tick_cpu",
            "catching up": "kept_{}_tick_behind",
            "catching up, CPU": "kept_{}_tick_behind_cpu",
        },
        corner="checkpoints kept; s",
        picture="CPU with more and more checkpoints kept",
        drawn=("list, CPU", "plan, CPU", "tick, CPU", "catching up, CPU"),
    ),
    "payments": Table(
        "payments",
        {
            "payments per second, a checkpoint each second": "payments",
            "without periodic checkpoints": "payments_without_checkpoints",
            "lost to checkpoints": "payments_lost_to_checkpoints",
            "standard error of that": "payments_lost_to_checkpoints_error",
            "Spark batch query over the same files, same session": "spark_batch",
            "Laminar to Spark batch": "payments_to_spark_batch",
        },
        ONE_COLUMN,
    ),
    "state": Table(
        "state",
        {
            "state in the store, GB": "size",
            "pause at a cut, median, ms": "pause_median",
            "the longest, ms": "pause_max",
            "uploaded for each byte that changed": "uploaded_to_changed",
            "the same with the merging of chains": "with_merging",
            "filling, rows/s": "fill",
            "changing, rows/s": "update",
            "first checkpoint, all of it, s": "first_checkpoint",
            "restore, s/GB": "restore",
            "peak memory of the process, GB": "peak_memory",
        },
        {"memory": "state_memory_{}", "rocksdb": "state_rocksdb_{}"},
        corner="a million keys",
    ),
    "worker-recovery": Table(
        "worker-recovery",
        {
            "SIGKILL of a worker to rows": "worker_kill_to_data",
            "the longest of seven": "worker_kill_to_data_worst",
        },
        ONE_COLUMN,
    ),
    "driver-recovery": Table(
        "driver-recovery",
        {
            "SIGKILL of the driver to rows": "driver_kill_to_data",
            "the longest of three": "driver_kill_to_data_worst",
        },
        ONE_COLUMN,
    ),
    "start": Table(
        "start",
        {
            "import of the command line": "import",
            "`laminar --version`": "version",
            "Python alone": "python",
        },
        {"s": "start_{}", "s of CPU": "start_{}_cpu"},
    ),
    "small": Table(
        "small",
        {
            "batches of 20 rows: `map`": "small_map",
            "combining before running totals": "small_combine",
            "running totals": "small_running_totals",
            "combining for windows": "small_window_combine",
            "merging windows": "small_window_merge",
            "a whole job of running totals": "small_job_running_totals",
            "latency, stateless, median": "small_latency_stateless_p50",
            "the same, 99th percentile": "small_latency_stateless_p99",
            "latency, running totals, median": "small_latency_running_totals_p50",
            "running totals, 99th percentile": "small_latency_running_totals_p99",
            "latency, from the end of a window to its row, median": "small_latency_window_end_p50",
            "end of a window, 99th percentile": "small_latency_window_end_p99",
        },
        ONE_COLUMN,
    ),
    "standby": Table(
        "standby-recovery",
        {
            "with a standby": "driver_kill_to_data_standby",
            "the longest with a standby": "driver_kill_to_data_standby_worst",
            "without, in turn": "driver_kill_to_data_beside",
        },
        ONE_COLUMN,
    ),
    "joins": Table(
        "joins",
        {
            "interval, 100,000": "interval_100k",
            "interval, 1,000,000": "interval_1000k",
            "as-of, 100,000": "as_of_100k",
            "as-of, 1,000,000": "as_of_1000k",
        },
        {
            "Laminar": "{}_laminar",
            "Flink SQL": "{}_flink_sql",
            "numpy": "{}_numpy",
            "Polars": "{}_polars",
            "DuckDB": "{}_duckdb",
        },
        corner="join, keys; rows/s",
    ),
    "joins-cpu": Table(
        "joins",
        {
            "interval, 100,000": "interval_100k",
            "interval, 1,000,000": "interval_1000k",
            "as-of, 100,000": "as_of_100k",
            "as-of, 1,000,000": "as_of_1000k",
        },
        {
            "to Flink SQL, all of the run": "{}_laminar_to_flink_sql",
            "to Flink SQL, further rows": "{}_laminar_to_flink_sql_further",
            "to numpy, further rows": "{}_laminar_to_numpy_further",
            "to Polars": "{}_laminar_to_polars_further",
            "to DuckDB": "{}_laminar_to_duckdb_further",
        },
        corner="join, keys",
    ),
    "skew": Table(
        "skew",
        {"median": "p50", "99th percentile": "p99"},
        {
            "unaligned, ms": "skew_checkpoint_unaligned_{}",
            "aligned, ms": "skew_checkpoint_aligned_{}",
        },
        corner="a checkpoint",
    ),
    "backpressure": Table(
        "backpressure",
        {"1x": "1x", "10x": "10x", "100x": "100x"},
        {
            "aligned, ms": "checkpoint_aligned_slow_{}",
            "unaligned, ms": "checkpoint_unaligned_slow_{}",
        },
        corner="the operator is slow",
        picture="A checkpoint behind a slow operator",
    ),
    "inflight-files": Table(
        "inflight-files",
        {
            f"{workers} workers, {place}": f"{workers}_workers_{word}"
            for place, word in (("a directory", "directory"), ("a slow store", "bucket"))
            for workers in (2, 4, 8)
        },
        {
            "one file, requests": "inflight_{}_puts",
            "a file per queue, requests": "inflight_{}_puts_apart",
            "one file, ms": "inflight_{}",
            "a file per queue, ms": "inflight_{}_apart",
            "ratio of times": "inflight_{}_to_apart",
        },
        corner="a worker's in-flight data",
    ),
    "workers": Table(
        "workers",
        {f"{workers} workers": f"{workers}" for workers in (2, 4, 8, 16)},
        {"aligned, ms": "workers_aligned_{}", "unaligned, ms": "workers_unaligned_{}"},
        corner="a checkpoint",
        picture="A checkpoint of more and more workers",
    ),
    "workers-requests": Table(
        "workers",
        {f"{workers} workers": f"{workers}" for workers in (2, 4, 8, 16)},
        {
            "aligned": "workers_aligned_{}_puts",
            "unaligned": "workers_unaligned_{}_puts",
            "of these, for data in flight": "workers_unaligned_{}_inflight_files",
            "if each queue had a file": "workers_unaligned_{}_queues",
            "bytes in flight": "workers_unaligned_{}_inflight_bytes",
        },
        corner="PUT requests of a checkpoint",
    ),
    "connections": Table(
        "connections",
        {f"{workers:,} workers": f"{workers}" for workers in (16, 64, 256, 1_000)},
        {
            "open files": "connections_{}_workers_open_files",
            "memory, bytes per peer": "connections_{}_workers_memory",
            "handshake, ms of CPU per peer, both ends": "connections_{}_workers_handshake",
        },
        corner="a worker's connections",
    ),
    "coordination-growth": Table(
        "coordination-growth",
        {f"{workers:,} workers": f"{workers}" for workers in (16, 64, 256, 1_000)},
        {
            "CPU of the coordinator, s": "coordinator_{}_workers",
            "an acknowledgement, bytes": "coordinator_{}_workers_acknowledgement",
        },
        corner="an aligned checkpoint, one exchange",
    ),
    "simulated-workers": Table(
        "simulated-workers",
        {f"{workers} workers": f"{workers}" for workers in (2, 4, 8, 16, 32, 64)},
        {
            "checkpoints": "simulated_{}_workers_checkpoints",
            "PUT requests of all workers, per checkpoint": "simulated_{}_workers_puts",
            "longest manifest, bytes": "simulated_{}_workers_manifest",
            "CPU of the simulation, s": "simulated_{}_workers_simulation",
        },
        corner="a simulated job",
    ),
    "manifest-size": Table(
        "manifest-size",
        {
            f"{label}, {mode}": f"{mode}{word}"
            for mode in ("aligned", "unaligned")
            for label, word in (
                ("manifest, bytes", "_bytes"),
                ("write the manifest, ms", "_write"),
                ("read it, ms", "_read"),
                ("with an entry for each channel, bytes", "_entries_bytes"),
                ("write this, ms", "_entries_write"),
                ("read this, ms", "_entries_read"),
                ("sent to each executor, bytes", "_task_bytes"),
                ("of these, a worker's part, unpacked, bytes", "_part_bytes"),
                ("the largest with three quarters of the workers, bytes", "_part_bytes_rescaled"),
                ("pack all parts in the driver, ms", "_task_pack"),
                ("unpack one in a worker, ms", "_task_unpack"),
                ("the same, if it were not divided, ms", "_undivided_unpickle"),
            )
        },
        {f"{workers} workers": f"manifest_{workers}_workers_{{}}" for workers in (2, 16, 64, 256)},
        corner="one exchange",
    ),
    "division": Table(
        "division",
        {
            f"{batch_rows:,}, {workers:,} receivers": f"{batch_rows}_{workers}"
            for batch_rows in (131_072, 4_096)
            for workers in (2, 16, 64, 256, 1_000)
        },
        {
            "one scan each": "division_{}_scans",
            "now": "division_{}_alone",
            "collected": "division_{}_collected",
        },
        corner="rows of a batch; rows/s of CPU",
    ),
    "formats": Table(
        "formats",
        {
            "JSON, one object of 79 bytes per message": "code_json",
            "CSV, one line per message": "code_csv",
            "Arrow IPC, 1,000 rows per message": "code_arrow_ipc",
            "bytes as they are": "code_raw",
            "JSON, one message of a hundred is broken": "code_json_1_percent_bad",
            "JSON, one of a hundred has a text for a number": "code_json_1_percent_of_another_type",
            "JSON, all messages are broken": "code_json_all_bad",
        },
        {"read": "de{}", "written": "en{}"},
        corner="format; rows/s of CPU",
    ),
}
"""The tables by the name that marks their place on the page."""
