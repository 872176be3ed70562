"""Flink SQL gets one statement a line, and the last one carries the messages."""

from pathlib import Path

from benchmarks.topics.flink_sql import settings, statements


def test_each_statement_is_one_line_with_its_topics() -> None:
    source, target, insert = statements("127.0.0.1:9092", "payments", "totals-1")
    assert "'topic'='payments'" in source
    assert "'topic'='totals-1'" in target
    assert insert.startswith("INSERT INTO `totals-1` SELECT")
    assert not [line for line in (source, target, insert) if "\n" in line or "{" in line]


def test_settings_are_pairs(tmp_path: Path) -> None:
    lines = settings(tmp_path)
    assert [line for line in lines if not line.startswith("SET ") or line.count("=") != 1] == []
    assert f"SET execution.checkpointing.dir=file://{tmp_path}" in lines
