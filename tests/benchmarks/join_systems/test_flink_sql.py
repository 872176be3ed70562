"""Flink SQL gets one statement a line, and its totals are those of the others."""

from pathlib import Path

import pytest

from benchmarks.join_systems.flink_sql import command, settings, statements, totals
from benchmarks.join_systems.question import Question


@pytest.mark.parametrize(
    ("join", "words"), [("interval", "BETWEEN"), ("as-of", "FOR SYSTEM_TIME AS OF l.ordered_at")]
)
def test_each_statement_is_one_line_and_the_last_one_does_it(join: str, words: str) -> None:
    lines = statements(Question(join, "/rows", "/out"), 7)
    assert not [line for line in lines if "\n" in line or "{" in line]
    assert words in lines[-2]
    assert lines[-1].startswith("INSERT INTO `out 7` SELECT")
    assert "'path'='file:///rows/left'" in lines[0]
    assert len({line.split("`")[1] for line in lines[:-1]}) == len(lines) - 1, "names are its own"


def test_classes_of_hadoop_are_on_the_classpath(tmp_path: Path) -> None:
    (tmp_path / "hadoop-client-api-3.jar").touch()
    (tmp_path / "other.jar").touch()
    words = command(Path("/java"), Path("/flink"), tmp_path)
    (paths,) = [word for word in words if ".jar" in word and ":" in word]
    assert paths.endswith(str(tmp_path / "hadoop-client-api-3.jar"))
    assert "other" not in paths
    assert settings(tmp_path)


def test_totals_are_read_from_all_parts(tmp_path: Path) -> None:
    files = tmp_path / "out.files" / "nested"
    files.mkdir(parents=True)
    (files / "part-1").write_text('3,"1970-01-01 00:01:00",2,30,400\n')
    (files / "part-0").write_text('1,"1970-01-01 00:00:00",1,20,300\n')
    assert totals(str(tmp_path / "out")) == [(1, 0, 1, 20, 300), (3, 60_000, 2, 30, 400)]
