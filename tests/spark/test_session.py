"""Spark starts with Laminar's defaults and without a word, or says in one line why not."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from laminar_core.spark.session import _start_jvm, _why

ROOT = Path(__file__).parent.parent.parent
WITHIN_S = 20
JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'x'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3335)
Caused by: something else
"""

SCRIPT = """
import json
import os
from pyspark import SparkContext
from laminar_core.spark.session import open_session

os.environ["LAMINAR_AUDIT_KEY"] = "secret"
mine = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.app.mine": "1"}
spark = open_session("local[2]", "opened", mine)
python = spark.range(1).mapInPandas(
    lambda frames: (f.assign(id=__import__("os").getppid()) for f in frames), "id long"
)
daemon = open(f"/proc/{python.first()[0]}/cmdline").read()
jvm = SparkContext._gateway.proc.pid
groups = os.getpgid(jvm) == jvm, os.getsid(jvm) == os.getsid(0)
names = ["spark.sql.session.timeZone", "spark.app.mine", "spark.ui.enabled"]
key = spark.sparkContext._jvm.System.getenv("LAMINAR_AUDIT_KEY")
assert (key, os.environ["LAMINAR_AUDIT_KEY"]) == (None, "secret"), key
print(json.dumps([jvm, groups, daemon, *(spark.conf.get(name) for name in names)]))
spark.stop()
"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (JAVA, "org.apache.spark.SparkException: Could not parse Master URL: 'x'"),
        ("  \nno port\nmore", "no port"),
        ("", "ValueError"),
    ],
    ids=["java", "python", "silent"],
)
def test_the_line_that_says_what_happened_is_chosen(message: str, line: str) -> None:
    assert _why(ValueError(message)) == line


class Conf:
    """Settings that need no JVM."""

    def setAll(self, settings: list[tuple[str, str]]) -> "Conf":  # noqa: N802 - as in PySpark
        assert settings == []
        return self


def ends(pid: int) -> bool:
    """Whether a process that is no child of this one ends, or has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    readable, _, _ = select.select([descriptor], [], [], WITHIN_S)
    os.close(descriptor)
    return bool(readable)


def test_an_interrupt_waits_until_the_jvm_has_been_started(monkeypatch) -> None:
    """Else PySpark tidies up before the JVM is ready, which then never ends."""
    acts: list[str] = []

    def launch(_conf: object, options: dict[str, object]) -> None:
        assert options == {"process_group": 0}
        signal.raise_signal(signal.SIGINT)
        acts.append("launched")

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr("laminar_core.spark.session.launch_gateway", launch)
    monkeypatch.setattr("laminar_core.spark.session.SparkConf", Conf)
    # Who starts the tests in the background of a shell makes them deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _start_jvm({})
    finally:
        signal.signal(signal.SIGINT, before)
    assert acts == ["launched"]


@pytest.mark.spark
def test_a_session_opens_without_a_word_and_with_the_settings_it_was_given() -> None:
    """Goal: defaults, the caller's settings over them, our daemon, and a quiet terminal.

    Method: a process of its own, because a process has one JVM.
    """
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    jvm, groups, daemon, zone, mine, ui = json.loads(answer.stdout)
    assert answer.stderr == ""
    assert (zone, mine, ui) == ("Asia/Tokyo", "1", "false")
    assert "laminar_core.spark.daemon" in daemon
    assert groups == [True, True], "signals to the driver's group do not reach the JVM"
    assert ends(jvm), "it ends with the driver"
