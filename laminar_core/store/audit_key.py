"""The key that signs the audit log: where it comes from, and which processes must not see it.

A child process inherits the environment: the JVM, Spark's Python workers, and the user code that
runs in them. So ``laminar`` takes the key out of its environment before it imports a pipeline, and
starts the JVM without it. A file that only its owner can read keeps the key out of every
environment.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from laminar_core.errors import ConfigurationError, ErrorCode

KEY_VARIABLE = "LAMINAR_AUDIT_KEY"
"""Environment variable; if it is set, everything that this process does to a job is signed."""

KEY_FILE_VARIABLE = "LAMINAR_AUDIT_KEY_FILE"
"""Environment variable; the path of a file with the key, instead."""

_KEY_BYTES_MAX = 4096
_taken: list[bytes] = []
"""The key taken out of the environment of this process; at most one."""


def find_key(variable: str = KEY_VARIABLE) -> bytes | None:
    """Return the key that ``variable`` has, or the default one's file; None if there is none.

    Raises:
        ConfigurationError: the file cannot be used, or there is a key besides it.
    """
    value = os.fsencode(os.environ.get(variable, ""))
    if variable != KEY_VARIABLE:
        return value or None
    value = value or b"".join(_taken)
    path = os.environ.get(KEY_FILE_VARIABLE, "")
    if not path:
        return value or None
    if value:
        raise _invalid(f"{KEY_VARIABLE} and {KEY_FILE_VARIABLE} are both set: unset one of them")
    return read_key(Path(path))


@contextmanager
def key_kept_private() -> Generator[None]:
    """Keep the key in this process, and out of the environment of processes started meanwhile."""
    value = os.environ.pop(KEY_VARIABLE, "")
    if not value:
        yield
        return
    _taken[:] = [os.fsencode(value)]
    try:
        yield
    finally:
        os.environ[KEY_VARIABLE] = value
        _taken.clear()


def read_key(path: Path) -> bytes:
    """Read the key from a file; a line end behind it is not part of the key.

    Raises:
        ConfigurationError: the file cannot be read, is not a regular file, belongs to another user,
            is readable for others, or is empty or too long.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _invalid(f"{KEY_FILE_VARIABLE}: {path} cannot be read: {error.strerror}") from error
    try:
        if problem := _problem_of(os.fstat(handle)):
            raise _invalid(f"{KEY_FILE_VARIABLE}: {path} {problem}")
        key = os.read(handle, _KEY_BYTES_MAX + 1).removesuffix(b"\n").removesuffix(b"\r")
    finally:
        os.close(handle)
    if not 0 < len(key) <= _KEY_BYTES_MAX:
        raise _invalid(f"{KEY_FILE_VARIABLE}: {path} must hold 1 to {_KEY_BYTES_MAX} bytes")
    return key


def _problem_of(found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid not in {os.getuid(), 0}:
        return "belongs to another user: the key must be a file of your own, or of root"
    if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        return f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 it"
    return None


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError(ErrorCode.INVALID_OPTION, problem)
