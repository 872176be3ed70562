"""Import PySpark from where it is installed, and not from the archive that Spark names first.

Spark puts archives of PySpark and py4j first on the path of its Python processes. Python compiles
what it imports from an archive anew each time, and each worker reads the archive's long list of
files again, once for each package (``importlib.invalidate_caches``).
"""

from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

_PACKAGES = ("pyspark", "py4j")
"""The packages in those archives."""


def without_archives(path: Sequence[str]) -> list[str]:
    """Return a search path without the archives that lie inside the PySpark installed on it.

    Such archives have the same version. Those of another Spark stay, and so do all if one of the
    packages is only in an archive.
    """
    folders = [entry for entry in path if not _is_archive(entry)]
    found = [PathFinder.find_spec(package, folders) for package in _PACKAGES]
    origins = [spec.origin for spec in found if spec is not None and spec.origin is not None]
    if len(origins) < len(_PACKAGES):
        return list(path)
    installed = Path(origins[0]).parent.resolve()
    return [
        entry
        for entry in path
        if not (_is_archive(entry) and Path(entry).resolve().is_relative_to(installed))
    ]


def _is_archive(entry: str) -> bool:
    return Path(entry).is_file()
