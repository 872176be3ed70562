"""Chatter is kept out, everything else gets through, and nothing is left open."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from laminar_core.spark.quiet import without_chatter, without_logging

OPTIONS = "spark.driver.extraJavaOptions"
INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"
OPENED = "WARNING: package sun.security.action not in java.base"
UNKNOWN = "WARNING: Unknown module: jdk.old specified to --add-opens"
WITHIN_S = 10


def say(text: str) -> None:
    """A process that writes to its standard error, as a JVM would."""
    code = "import sys; sys.stderr.write(sys.argv[1] + chr(10))"
    subprocess.run([sys.executable, "-c", code, text], check=True)


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


_OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _readers_of_others() -> None:
    """A Spark session of another test keeps its reader for as long as its JVM lives."""
    _OTHERS.clear()
    _OTHERS.update(threading.enumerate())


def wait_for_the_reader() -> None:
    for thread in set(threading.enumerate()) - _OTHERS:
        if thread.name == "laminar-stderr":
            thread.join(WITHIN_S)
            assert not thread.is_alive()


def test_logging_is_configured_away_by_a_file_that_is_there() -> None:
    options = without_logging({})[OPTIONS]
    uri = options.removeprefix("-Dlog4j2.configurationFile=file://")
    assert Path(uri).name == "log4j2.properties"
    assert "rootLogger.level = off" in Path(uri).read_text()


def test_other_options_of_the_jvm_are_kept() -> None:
    conf = without_logging({OPTIONS: "-XX:+UseSerialGC", "spark.ui.enabled": "false"})
    assert conf[OPTIONS].startswith("-XX:+UseSerialGC -Dlog4j2.configurationFile=")
    assert conf["spark.ui.enabled"] == "false"


@pytest.mark.parametrize(
    "conf",
    [{OPTIONS: "-Dlog4j2.configurationFile=mine.xml -Xmx1g"}, {"spark.log.level": "INFO"}],
    ids=str,
)
def test_who_sets_logging_up_gets_it(conf: dict[str, str]) -> None:
    assert without_logging(conf) == conf


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([INCUBATOR], ""),
        ([INCUBATOR, "real"], "real\n"),
        (["before", INCUBATOR, "after"], "before\nafter\n"),
        ([OPENED, UNKNOWN, "real"], "real\n"),
        (["WARNING: package lost at sea"], "WARNING: package lost at sea\n"),
        (["java.lang.Error: heap", "\tat a.B.c(B.java:1)"], "java.lang.Error: heap\n"),
        (["look \tat this"], "look \tat this\n"),
    ],
    ids=["nothing but", "then", "between", "newer Java", "a user's", "stack", "like a stack"],
)
def test_chatter_is_dropped_and_the_rest_passed_on(capfd, lines, shown: str) -> None:
    with without_chatter():
        say("\n".join(lines))
    wait_for_the_reader()
    assert capfd.readouterr().err == shown


def test_a_process_that_outlives_the_start_is_still_heard(capfd) -> None:
    code = "import sys; sys.stdin.read(); print('last words', file=sys.stderr)"
    with without_chatter():
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    os.write(2, b"meanwhile\n")
    process.communicate()
    wait_for_the_reader()
    assert capfd.readouterr().err == "meanwhile\nlast words\n"


def test_a_terminal_that_went_away_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process still writes, and the reader has nowhere to put it."""
    read_end, write_end = os.pipe()
    original = os.dup(2)
    os.dup2(write_end, 2)
    os.close(write_end)
    os.close(read_end)
    problems: list[object] = []
    monkeypatch.setattr(threading, "excepthook", problems.append)
    try:
        with without_chatter():
            say("to nobody")
    finally:
        os.dup2(original, 2)
        os.close(original)
    wait_for_the_reader()
    assert problems == []


def test_a_failure_puts_standard_error_back_and_closes_what_was_opened(capfd) -> None:
    before = open_descriptors()
    with pytest.raises(ValueError, match="no start"), without_chatter():
        raise ValueError("no start")
    wait_for_the_reader()
    assert open_descriptors() == before
    os.write(2, b"\tat home again\n")
    assert capfd.readouterr().err == "\tat home again\n"


def test_without_standard_error_nothing_is_done() -> None:
    code = (
        "from laminar_core.spark.quiet import without_chatter\n"
        "with without_chatter(): print('started')"
    )
    shell = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    answer = subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True)
    assert answer.stdout == "started\n"
