"""Flink SQL with the same joins: its classpath, its settings, and its statements.

The interval join is a join with two comparisons of time; the as-of join is the temporal join
``FOR SYSTEM_TIME AS OF``. Flink reads Parquet with classes of Hadoop, which PySpark brings along.
"""

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.join_systems.question import LEFT, RIGHT, WIDTH_MS, WINDOW_MS, Question, Total
from benchmarks.topics import flink_sql

_BEFORE = "{} - INTERVAL '0.001' SECOND"
"""Rows of the same millisecond may follow. A watermark at the time itself says that none does, and
a price that comes then is too late for its own millisecond: Flink answers with an older one."""
_LEFT_COLUMNS = (
    "`key` BIGINT, kind INT, amount BIGINT, ordered_at TIMESTAMP(3), "
    f"WATERMARK FOR ordered_at AS {_BEFORE.format('ordered_at')}"
)
_RIGHT_COLUMNS = (
    "`key` BIGINT, price BIGINT, priced_at TIMESTAMP(3), "
    f"WATERMARK FOR priced_at AS {_BEFORE.format('priced_at')}, PRIMARY KEY (`key`) NOT ENFORCED"
)
_TOTALS = "kind INT, window_start TIMESTAMP(3), pairs BIGINT, amount BIGINT, price BIGINT"
_JOINS = {
    "interval": "JOIN {right} AS r ON l.`key` = r.`key` AND r.priced_at BETWEEN l.ordered_at AND "
    f"l.ordered_at + INTERVAL '{WIDTH_MS // 1000}' SECOND",
    "as-of": "JOIN {right} FOR SYSTEM_TIME AS OF l.ordered_at AS r ON l.`key` = r.`key`",
}

_PAIRS = (
    "CREATE VIEW `{pairs}` AS SELECT l.kind, l.ordered_at, l.amount, r.price FROM `{left}` AS l "
    "{joined}"
)
_INSERT = (
    "INSERT INTO `{out}` SELECT kind, window_start, COUNT(*), SUM(amount), SUM(price) FROM "
    "TABLE(TUMBLE(TABLE `{pairs}`, DESCRIPTOR(ordered_at), INTERVAL '{seconds}' SECOND)) "
    "GROUP BY kind, window_start, window_end"
)


def command(java: Path, folder: Path, hadoop: Path) -> list[str]:
    """Return the command for Flink's jars below ``folder``; ``hadoop``: a folder of PySpark."""
    names = ("hadoop-client-*.jar", "aircompressor-*.jar")  # The latter reads LZ4.
    jars = [str(path) for name in names for path in sorted(hadoop.glob(name))]
    return flink_sql.command(java, folder, jars)


def settings(checkpoints: Path) -> list[str]:
    """Return the statements that come first: exactly once, a checkpoint every second."""
    return flink_sql.settings(checkpoints)


def statements(question: Question, number: int) -> list[str]:
    """Return the statements of one run; the last one does it. Tables are made anew in each."""
    left, right, out = (f"{name} {number}" for name in ("left", "right", "out"))
    pairs = f"pairs {number}"
    joined = _JOINS[question.join].format(right=f"`{right}`")
    return [
        _table(left, _LEFT_COLUMNS, {"path": question.path(LEFT), "format": "parquet"}),
        _table(right, _RIGHT_COLUMNS, {"path": question.path(RIGHT), "format": "parquet"}),
        _table(out, _TOTALS, {"path": f"{question.output}.files", "format": "csv"}),
        _PAIRS.format(pairs=pairs, left=left, joined=joined),
        _INSERT.format(out=out, pairs=pairs, seconds=WINDOW_MS // 1000),
    ]


def _table(name: str, columns: str, options: Mapping[str, str]) -> str:
    written = {"connector": "filesystem"} | dict(options)
    written["path"] = Path(written["path"]).absolute().as_uri()
    options_text = ", ".join(f"'{option}'='{value}'" for option, value in written.items())
    return f"CREATE TABLE `{name}` ({columns}) WITH ({options_text})"


def totals(output: str) -> list[Total]:
    """Return what a run has written."""
    found: list[Total] = []
    for path in Path(f"{output}.files").rglob("part-*"):
        with path.open() as rows:
            found += [_total(row) for row in csv.reader(rows)]
    return sorted(found)


def _total(row: list[str]) -> Total:
    kind, start, pairs, amount, price = row
    moment = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return int(kind), round(1000 * moment.timestamp()), int(pairs), int(amount), int(price)
