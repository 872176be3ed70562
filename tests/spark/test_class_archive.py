"""A JVM starts from the archive that belongs to its Java and its Spark, and from no other."""

import os
import sys
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext

from laminar_core.spark import class_archive
from laminar_core.spark.class_archive import archive_name, find_archive, with_archive
from laminar_core.spark.jvm import ensure_java
from laminar_core.spark.quiet import JAVA_OPTIONS


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders of the environment and of the user, both empty."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folders = tmp_path / "environment" / "share" / "laminar", tmp_path / "cache" / "laminar"
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


@pytest.fixture
def java(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    return home


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars of a Spark of its own: one."""
    folder = tmp_path / "spark" / "jars"
    folder.mkdir(parents=True)
    (folder / "spark-core.jar").write_bytes(b"classes")
    monkeypatch.setattr(class_archive, "_find_spark_home", lambda: str(folder.parent))
    return folder


@pytest.mark.usefixtures("places")
def test_without_an_archive_nothing_is_said_to_java(java) -> None:
    assert with_archive({"spark.a": "b"}, java) == {"spark.a": "b"}


@pytest.mark.parametrize("kept_by", [0, 1], ids=["the environment", "the user"])
def test_an_archive_is_added_to_the_other_options(places, java, kept_by: int) -> None:
    archive = places[kept_by] / archive_name(java)
    archive.touch()
    conf = with_archive({JAVA_OPTIONS: "-Xmx1g", "spark.a": "b"}, java)
    expected = f"-Xmx1g -XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    assert conf == {JAVA_OPTIONS: expected, "spark.a": "b"}
    assert with_archive({}, java)[JAVA_OPTIONS] == expected.removeprefix("-Xmx1g ")


@pytest.mark.parametrize(
    "options", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=a.jsa"]
)
def test_a_person_who_speaks_of_archives_is_not_overruled(places, java, options: str) -> None:
    (places[0] / archive_name(java)).touch()
    assert with_archive({JAVA_OPTIONS: options}, java) == {JAVA_OPTIONS: options}


def test_a_path_that_spark_would_divide_at_its_space_is_not_passed_on(
    tmp_path: Path, java, monkeypatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my environment"))
    folder = tmp_path / "my environment" / "share" / "laminar"
    folder.mkdir(parents=True)
    (folder / archive_name(java)).touch()
    assert with_archive({}, java) == {}


def test_another_java_or_other_jars_have_another_archive(java, jars, tmp_path: Path) -> None:
    names = [archive_name(java)]
    (java / "release").write_text('JAVA_VERSION="21"\n')
    names.append(archive_name(java))
    names.append(archive_name(tmp_path))
    (jars / "spark-sql.jar").touch()
    names.append(archive_name(java))
    os.utime(jars / "spark-sql.jar", (1, 1))
    names.append(archive_name(java))
    (jars / "spark-core.jar").write_bytes(b"other classes")
    os.utime(jars / "spark-core.jar", (1, 1))
    names.append(archive_name(java))
    assert len(set(names)) == len(names)
    assert names[-1] == archive_name(java)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_session_has_the_archive_of_this_environment_in_its_memory() -> None:
    archive = find_archive(archive_name(ensure_java()))
    if archive is None:
        pytest.skip("there is no archive; this Java makes none")
    mapped = psutil.Process(SparkContext._gateway.proc.pid).memory_maps()
    assert str(archive) in {region.path for region in mapped}
