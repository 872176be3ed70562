"""Suppress the output of Spark's start unless the user asked for it.

Two sources write to standard error: Spark's logging, which a configuration file turns off, and the
JVM itself, which always comments on the options that Spark starts it with. Java 17 names the
incubator module, and newer versions each package that Spark opens and that no longer exists.
"""

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_LEVEL = "spark.log.level"
_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
_CHATTER = re.compile(
    rb"^(WARNING: Using incubator modules: "
    rb"|WARNING: package [\w.]+ not in [\w.]+$"
    rb"|WARNING: Unknown module: [\w.]+ specified to --add-"
    rb"|\tat )[^\n]*\n?",
    re.MULTILINE,
)
"""The JVM's comments on its options, and stack frames below an exception in it."""

_READ_BYTES_MAX = 65_536
_STDERR = 2


def without_logging(conf: Mapping[str, str]) -> dict[str, str]:
    """Return ``conf`` with the driver's logging turned off, unless ``conf`` configures it.

    Executors are unchanged: they log into files.
    """
    options = conf.get(JAVA_OPTIONS, "")
    if "log4j" in options or _LOG_LEVEL in conf:
        return dict(conf)
    configured = f"{options} -Dlog4j2.configurationFile={_CONFIGURATION.as_uri()}"
    return {**conf, JAVA_OPTIONS: configured.strip()}


@contextmanager
def without_chatter() -> Iterator[None]:
    """Pass on what processes started inside write to standard error, but for the chatter.

    They inherit a pipe; a thread reads it for as long as one of them lives.
    """
    try:
        original = os.dup(_STDERR)
    except OSError:  # There is no standard error, so there is nobody to be spared.
        yield
        return
    read_end, write_end = os.pipe()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    reader = threading.Thread(
        target=_pass_on, args=(read_end, os.dup(original)), name="laminar-stderr", daemon=True
    )
    reader.start()
    try:
        yield
    finally:
        os.dup2(original, _STDERR)
        os.close(original)


def _pass_on(read_end: int, target: int) -> None:
    with (
        suppress(OSError),  # The terminal is gone, and whoever looked at it.
        open(read_end, "rb", buffering=0) as source,
        open(target, "wb", buffering=0) as sink,
    ):
        while data := source.read(_READ_BYTES_MAX):
            sink.write(_CHATTER.sub(b"", data))
