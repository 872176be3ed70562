"""Flink SQL with the window of ``jobs/payments.py``: the command that starts it, its statements."""

from collections.abc import Sequence
from pathlib import Path

WORKERS = 2
_OPENED = (
    "lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent",
    "util.concurrent.atomic", "util.concurrent.locks",
)  # fmt: skip
_TOTALS = (
    "merchant STRING, window_start TIMESTAMP_LTZ(6), window_end TIMESTAMP_LTZ(6), payments BIGINT, "
    "total_cents BIGINT, min_cents BIGINT, max_cents BIGINT, average_cents DOUBLE"
)

_INSERT = (
    "INSERT INTO `{target}` SELECT merchant, CAST(window_start AS TIMESTAMP_LTZ(6)), "
    "CAST(window_end AS TIMESTAMP_LTZ(6)), COUNT(*), SUM(amount_cents), MIN(amount_cents), "
    "MAX(amount_cents), AVG(CAST(amount_cents AS DOUBLE)) FROM TABLE(TUMBLE(TABLE `{source}`, "
    "DESCRIPTOR(paid_at), INTERVAL '5' MINUTES)) GROUP BY merchant, window_start, window_end"
)


def command(java: Path, folder: Path, more: Sequence[str] = ()) -> list[str]:
    """Return the command for Flink's jars below ``folder``; all of it runs in one process.

    ``more``: further jars.
    """
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    opened.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
    jars = ":".join([f"{folder}/pyflink/lib/*", f"{folder}/jars/*", *more])
    program = Path(__file__).with_name("FlinkSql.java")
    return [str(java), "-Xmx2g", *opened, "-cp", jars, str(program)]


def settings(checkpoints: Path) -> list[str]:
    """Return the statements that come first: exactly once, a checkpoint every second."""
    values = {
        "parallelism.default": str(WORKERS),
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": checkpoints.absolute().as_uri(),
        "restart-strategy.type": "none",  # What fails says why, instead of trying for ever.
    }
    return [f"SET {name}={value}" for name, value in values.items()]


def statements(bootstrap: str, source: str, target: str) -> list[str]:
    """Return the statements that carry one topic to another; the last one does it."""
    # Tables are made anew in each run. Event time in Flink has milliseconds at most.
    columns = (
        "merchant STRING, amount_cents BIGINT, paid_at TIMESTAMP_LTZ(3), "
        "WATERMARK FOR paid_at AS paid_at - INTERVAL '1' MINUTE"
    )
    reading = {
        "topic": source,
        "properties.group.id": "flink",
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    writing = {
        "topic": target,
        "key.format": "raw",
        "key.fields": "merchant",
        "value.format": "json",
        "value.json.timestamp-format.standard": "ISO-8601",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": target,
        "properties.transaction.timeout.ms": "600000",
    }
    return [
        _table(f"source of {target}", columns, bootstrap, reading),
        _table(target, _TOTALS, bootstrap, writing),
        _INSERT.format(source=f"source of {target}", target=target),
    ]


def _table(name: str, columns: str, bootstrap: str, options: dict[str, str]) -> str:
    written = {"connector": "kafka", "properties.bootstrap.servers": bootstrap} | options
    options_text = ", ".join(f"'{option}'='{value}'" for option, value in written.items())
    return f"CREATE TABLE `{name}` ({columns}) WITH ({options_text})"
