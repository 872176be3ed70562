"""A server starts with the archive that was made beside its jars for this Java, if there is one."""

from pathlib import Path

import psutil
import pytest

from laminar_core.spark.jvm import ensure_java
from tests.servers.listening import processes_of
from verification.servers.class_archives import archive_of, archive_options


def test_without_an_archive_java_is_told_nothing_and_with_one_where_it_is(tmp_path: Path) -> None:
    jars, link = tmp_path / "jars", tmp_path / "link"
    (jars / "lib").mkdir(parents=True)
    link.symlink_to(jars)
    (jars / "lib" / "a.jar").touch()
    assert archive_options("kafka", tmp_path, jars) == ()
    archive = archive_of("kafka", tmp_path, link)
    archive.touch()
    assert archive_options("kafka", tmp_path, jars)[0] == f"-XX:SharedArchiveFile={archive}"
    assert archive_options("registry", tmp_path, jars) == ()
    (jars / "lib" / "a.jar").write_bytes(b"another")
    assert archive_options("kafka", tmp_path, jars) == ()


@pytest.mark.parametrize("program", ["kafka", "registry"])
def test_a_server_has_the_archive_in_its_memory(
    program: str, request: pytest.FixtureRequest
) -> None:
    """Java passes over an archive without a word if anything does not fit."""
    fixtures = {"kafka": ("kafka_jars", "kafka"), "registry": ("schema_registry_jars",) * 2}
    jars = request.getfixturevalue(fixtures[program][0])
    archive = archive_of(program, ensure_java(), jars)
    if not archive.is_file():
        pytest.skip("`make servers` made no archive with this Java")
    address = request.getfixturevalue("kafka" if program == "kafka" else "schema_registry")
    port = int(address.removeprefix("http://").split("/")[0].rpartition(":")[2])
    mapped = {region.path for each in processes_of(port) for region in maps_of(each)}
    assert str(archive) in mapped


def maps_of(process: psutil.Process) -> list:
    return process.memory_maps()
