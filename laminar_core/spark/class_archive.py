"""An archive of the classes that Spark loads. With it a JVM starts with half of the work.

Java writes such an archive when a JVM ends, and maps it into memory when another one starts
(JEP 350). It passes over an archive that other jars or another Java made; both are part of the
name here, so each has an archive of its own. ``archive_making`` makes one.
"""

# PySpark has no public name for its home.
# pyright: reportPrivateUsage=false

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from laminar_core.spark.caches import cache_folders
from laminar_core.spark.quiet import JAVA_OPTIONS

SILENT = "-Xlog:cds*=off"
"""Java comments on archives on standard output, which belongs to the program."""

_MADE_BY_WORK = 2
"""Higher when ``archive_making`` loads other classes, so that an older archive is made anew."""


def with_archive(conf: Mapping[str, str], java_home: Path) -> dict[str, str]:
    """Return ``conf`` with the archive for this Java and this Spark, if there is one.

    A ``conf`` that speaks of archives itself stays as it is.
    """
    options = conf.get(JAVA_OPTIONS, "")
    archive = find_archive(archive_name(java_home))
    if archive is None or " " in str(archive) or "-Xshare" in options or "Archive" in options:
        return dict(conf)
    return {**conf, JAVA_OPTIONS: f"{options} -XX:SharedArchiveFile={archive} {SILENT}".strip()}


def find_archive(name: str) -> Path | None:
    """Return the path of the archive with this name, or None if there is none."""
    places = [folder / name for folder in cache_folders()]
    return next(filter(os.path.isfile, places), None)


def archive_name(java_home: Path) -> str:
    """Return the name of the archive for this Java, this Spark, and what was done to make it."""
    return name_for(f"spark-{_MADE_BY_WORK}", java_home, Path(_find_spark_home()) / "jars")


def name_for(program: str, java_home: Path, jars: Path, pattern: str = "*") -> str:
    """Return the name of the archive of a program: a digest of what decides if Java accepts it.

    That is the Java itself, and the jars with their sizes and times of change. ``pattern``: which
    files of the folder count.
    """
    facts = [str(java_home.resolve()), str(jars)]
    with suppress(OSError):
        facts.append((java_home / "release").read_text())
    with suppress(OSError):
        found = [(path.relative_to(jars), path.stat()) for path in jars.glob(pattern)]
        facts += sorted(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in found)
    return f"{program}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsa"
