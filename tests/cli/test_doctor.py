"""``laminar doctor``: its table, its JSON, and what it refuses before Spark starts."""

import json

import pytest

from laminar_core.cli.doctor import heap_bytes, show
from laminar_core.spark.doctor.findings import Finding

FINDINGS = [
    Finding("store", "h1", "failed", "does not see what h0 wrote", "mount the same directory"),
    Finding("clock", "all hosts", "ok", "they agree within a minute"),
]


def test_the_table_says_what_failed_and_what_to_do(capsys: pytest.CaptureFixture[str]):
    show(FINDINGS, as_json=False)
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines() if line] == [
        "check",
        "store",
        "clock",
        "1",
    ]
    assert "mount the same directory" in printed
    assert "1 of 2 checks failed" in printed


def test_json_has_the_same_under_names(capsys: pytest.CaptureFixture[str]):
    show(FINDINGS, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["ok"] is False
    assert shown["checks"][0] == {
        "check": "store",
        "subject": "h1",
        "result": "failed",
        "detail": "does not see what h0 wrote",
        "advice": "mount the same directory",
    }


def test_warnings_are_no_failure(capsys: pytest.CaptureFixture[str]):
    show([Finding("clock", "h1", "warning", "90 s behind", "NTP")], as_json=True)
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--master", "sc://h:15002"), "Spark Connect"),
        (("--master", "local[1]", "--workers", "2"), "2 workers need"),
        (("nowhere.py", "--workers", "1"), "no such file: nowhere.py"),
    ],
    ids=["connect", "slots", "target"],
)
def test_what_cannot_be_is_refused_before_spark_starts(cli, words, problem):
    answer = cli("doctor", *words)
    assert answer.code == 2
    assert problem in answer.err


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("2g", 2 << 30), ("512m", 512 << 20), ("1024", 1 << 30), ("1GB", 1 << 30), ("?", 1 << 30)],
)
def test_a_heap_is_written_as_spark_writes_it(text: str, size_bytes: int):
    assert heap_bytes(text) == size_bytes
