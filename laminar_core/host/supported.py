"""Refuse an unsupported system before an import fails there without a reason."""

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Optional, Tuple  # noqa: UP035 - an old Python has to get as far as its refusal

PYTHON_MIN = (3, 11)
PYSPARK_MIN, PYSPARK_END = (4, 0), (4, 4)
_INSTALL = "pip install 'pyspark>={}.{},<{}.{}'".format(*PYSPARK_MIN, *PYSPARK_END)
UNSUPPORTED_EXIT_CODE = 2


def refuse_unsupported() -> None:
    """End the process with one line if Laminar cannot run here."""
    problem = unsupported(sys.platform, tuple(sys.version_info[:2]), _pyspark())
    if problem is not None:
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(UNSUPPORTED_EXIT_CODE)


def unsupported(
    platform: str,
    python: Tuple[int, ...],  # noqa: UP006
    pyspark: Optional[str],  # noqa: UP045
) -> Optional[str]:  # noqa: UP045
    """Return what is not supported and what to do, or None.

    >>> unsupported("linux", (3, 11), "3.5.9")
    "PySpark 3.5.9 is not supported: pip install 'pyspark>=4.0,<4.4'"
    """
    if platform in ("win32", "cygwin"):
        return "Windows is not supported: run Laminar in WSL, or in a Linux container"
    if python < PYTHON_MIN:
        found = ".".join(map(str, python))
        return f"Python {found} is not supported: use Python 3.11 or newer"
    if pyspark is None:
        return f"PySpark is not installed: {_INSTALL}"
    parts = tuple(int(part) for part in pyspark.split(".")[:2])
    if not PYSPARK_MIN <= parts < PYSPARK_END:
        return f"PySpark {pyspark} is not supported: {_INSTALL}"
    return None


def _pyspark() -> Optional[str]:  # noqa: UP045
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None
