"""The JVM behind Spark's Python API: check that it answers, and release it.

PySpark starts one JVM per process and has no call that replaces it, so all references to the old
one are cleared here by name. Every wait is bounded, because a call into a suspended JVM never
returns.
"""

# PySpark has no public names for these.
# pyright: reportPrivateUsage=false

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession, SQLContext

from laminar_core.errors import ErrorCode, JobFailedError

T = TypeVar("T")

ANSWER_MAX_S = 30.0
"""A JVM that is in the midst of a long garbage collection answers later than one that is well."""

END_MAX_S = 5.0
"""How long a killed JVM may take to exit."""


def is_lost(spark: SparkSession) -> bool:
    """Return whether ``spark`` can run nothing any more.

    Its JVM is gone or does not answer, or Spark itself has ended inside: the master gave it up, or
    an error in the JVM shut it down.
    """

    def is_stopped() -> bool:
        context: Any = spark.sparkContext
        return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001 - Spark says it nowhere else

    return answer_of(is_stopped, "laminar-jvm-probe", ANSWER_MAX_S) is not False


def answer_of(question: Callable[[], T], name: str, limit_s: float) -> T | None:
    """Ask the JVM in a thread called ``name``; None if there is no answer, or an error.

    A call into a suspended JVM never returns, so the caller waits ``limit_s`` at most.
    """
    answer: Future[T] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except Exception as error:  # noqa: BLE001 - whatever it is, it was no answer
            answer.set_exception(error)

    in_background(ask, name)
    try:
        return answer.result(limit_s)
    except (Exception, FutureTimeoutError):  # noqa: BLE001 - as above
        return None


@contextmanager
def lost_if_silent() -> Iterator[None]:
    """Turn what a call into a JVM that has gone raises into the error that a restart heals.

    Raises:
        JobFailedError: the JVM did not answer.
    """
    try:
        yield
    except (Py4JError, OSError, EOFError) as error:
        raise spark_lost(error) from error


def spark_lost(error: BaseException) -> JobFailedError:
    """Return the error for a lost JVM."""
    lines = str(error).splitlines()
    why = f" ({type(error).__name__}: {lines[0]})" if lines else ""
    return JobFailedError(ErrorCode.SPARK_LOST, f"Spark's JVM is gone or has ended Spark{why}")


def stop(spark: SparkSession, within_s: float) -> None:
    """Stop Spark, and leave behind nothing that runs; never raises.

    A JVM that does not answer is killed.
    """
    stopped = threading.Event()

    def ask() -> None:
        with suppress(Exception):  # The JVM may be gone; there is nothing left to stop.
            spark.stop()
        stopped.set()

    if is_lost(spark):
        forget()
        return
    in_background(ask, "laminar-spark-stop")
    if not stopped.wait(within_s):
        forget()


def forget() -> None:
    """Kill this process's JVM, if it is still there, and let PySpark forget it.

    The next session starts one of its own. Executors and Python workers of the old one end when
    they find it gone.
    """
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context  # noqa: SLF001
    _kill(getattr(gateway, "proc", None))
    if context is not None:
        context._jsc = None  # type: ignore[assignment]  # noqa: SLF001 - it cannot be asked to stop
        with suppress(Exception):
            context.stop()
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    SQLContext._instantiatedContext = None  # noqa: SLF001


def _kill(process: Any) -> None:  # noqa: ANN401 - PySpark's own, without a type
    """Kill the JVM and, where it leads a group, what it started in it."""
    if process is None:
        return  # It was there before this process, as with spark-submit.
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(Exception):
        process.wait(END_MAX_S)


def in_background(ask: Any, name: str) -> None:  # noqa: ANN401
    """Call the JVM in a background thread, without waiting for the answer."""
    threading.Thread(target=ask, name=name, daemon=True).start()
