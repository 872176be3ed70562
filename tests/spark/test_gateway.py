"""A JVM that is gone, ended or silent is found out within a bound, and let go of."""

import os
import subprocess
import sys
import threading

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from laminar_core.errors import ErrorCode, JobFailedError
from laminar_core.spark import gateway

REMEMBERED = [
    (SparkContext, "_gateway"),
    (SparkContext, "_jvm"),
    (SparkContext, "_active_spark_context"),
    (SparkSession, "_instantiatedSession"),
    (SparkSession, "_activeSession"),
    (SQLContext, "_instantiatedContext"),
]
"""Everything in PySpark that outlives a session and knows its JVM."""


class Jvm:
    """In place of Spark: says whether it has ended, raises, or never answers."""

    def __init__(self, answer: object, *, opened: bool = True) -> None:
        self._answer = answer
        self.stops = 0
        self._jsc = self if opened else None

    @property
    def sparkContext(self) -> "Jvm":  # noqa: N802 - as in PySpark
        return self

    def sc(self) -> "Jvm":
        return self

    def isStopped(self) -> object:  # noqa: N802
        if isinstance(self._answer, threading.Event):
            self._answer.wait()
            return False
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def stop(self) -> None:
        self.stops += 1
        if isinstance(self._answer, threading.Event):
            self._answer.wait()


class Process:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, timeout: float) -> None:
        assert timeout == gateway.END_MAX_S
        os.waitpid(self.pid, 0)


class Gateway:
    def __init__(self, process: Process | None) -> None:
        self.proc = process
        self.shut_down = 0

    def shutdown(self) -> None:
        self.shut_down += 1
        raise Py4JNetworkError("nobody is there")


@pytest.fixture
def remembered(monkeypatch) -> list[object]:
    """PySpark as it is with a session; the real one of the tests comes back afterwards."""
    values = [Gateway(None), object(), None, object(), object(), object()]
    for (owner, name), value in zip(REMEMBERED, values, strict=True):
        assert hasattr(owner, name), "PySpark remembers its JVM elsewhere: see to gateway.forget"
        monkeypatch.setattr(owner, name, value)
    return values


@pytest.mark.parametrize(
    ("jvm", "lost"),
    [
        (Jvm(answer=False), False),
        (Jvm(answer=True), True),
        (Jvm(ConnectionRefusedError(111, "refused")), True),
        (Jvm(Py4JNetworkError("Answer from Java side is empty")), True),
        (Jvm(answer=False, opened=False), True),
    ],
    ids=["lives", "Spark ended inside", "gone", "gone in a call", "was stopped"],
)
def test_a_session_is_lost_unless_its_jvm_says_that_spark_runs(jvm, lost) -> None:
    assert gateway.is_lost(jvm) == lost


def test_a_jvm_that_does_not_answer_is_lost(monkeypatch) -> None:
    monkeypatch.setattr(gateway, "ANSWER_MAX_S", 0.01)
    released = threading.Event()
    assert gateway.is_lost(Jvm(released))
    released.set()


@pytest.mark.parametrize("error", [Py4JNetworkError("empty"), ConnectionResetError(), EOFError()])
def test_a_call_into_a_jvm_that_has_gone_is_a_failure_that_a_restart_heals(error) -> None:
    with pytest.raises(JobFailedError, match="JVM is gone") as caught, gateway.lost_if_silent():
        raise error
    assert caught.value.code is ErrorCode.SPARK_LOST


def test_forgetting_clears_every_name(remembered) -> None:
    gateway.forget()
    assert [getattr(owner, name) for owner, name in REMEMBERED] == [None] * len(REMEMBERED)
    assert remembered[0].shut_down == 1


@pytest.mark.parametrize("own_group", [True, False])
def test_forgetting_kills_the_jvm_and_waits_for_its_end(remembered, own_group) -> None:
    group, command = 0 if own_group else None, [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=group) as jvm:
        remembered[0].proc = jvm
        gateway.forget()
        assert jvm.returncode == -9


def test_forgetting_twice_is_as_forgetting_once(remembered) -> None:
    del remembered
    gateway.forget()
    gateway.forget()


def test_spark_that_answers_is_stopped_and_its_jvm_is_kept(monkeypatch) -> None:
    monkeypatch.setattr(gateway, "forget", lambda: pytest.fail("the JVM was well"))
    jvm = Jvm(answer=False)
    gateway.stop(jvm, within_s=30)
    assert jvm.stops == 1


def test_spark_that_is_lost_is_not_asked_to_stop(monkeypatch) -> None:
    forgotten = []
    monkeypatch.setattr(gateway, "forget", lambda: forgotten.append(True))
    jvm = Jvm(ConnectionRefusedError())
    gateway.stop(jvm, within_s=30)
    assert (jvm.stops, forgotten) == (0, [True])


def test_spark_that_does_not_stop_is_killed(monkeypatch) -> None:
    forgotten, released = [], threading.Event()
    monkeypatch.setattr(gateway, "forget", lambda: forgotten.append(True))
    monkeypatch.setattr(gateway, "is_lost", lambda _: False)
    gateway.stop(Jvm(released), within_s=0.01)
    assert forgotten == [True]
    released.set()
