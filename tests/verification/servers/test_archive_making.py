"""Archives and an empty store are made once, and appear whole or not at all."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from laminar_core.spark.jvm import ensure_java
from verification.servers import archive_making
from verification.servers.archive_making import make_archives
from verification.servers.class_archives import archive_of, formatted_store

Runs = list[Path]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The servers of ``make_archives``, which write what real ones would; the runs so far."""
    seen: Runs = []

    def run(scratch: Path, drafts: Mapping[str, Path], *_: object) -> None:
        seen.append(scratch)
        (scratch / "formatted").mkdir()
        for draft in drafts.values():
            draft.write_bytes(b"classes")

    monkeypatch.setattr(archive_making, "_run_once", run)
    return seen


def folder(tmp_path: Path, name: str) -> Path:
    jars = tmp_path / name
    jars.mkdir()
    (jars / "a.jar").touch()
    return jars


def test_they_are_made_once_and_again_for_other_jars(tmp_path: Path, runs: Runs) -> None:
    kafka, registry = folder(tmp_path, "kafka"), folder(tmp_path, "registry")
    for _ in range(2):
        make_archives(kafka, registry)
    assert len(runs) == 1
    assert archive_of("kafka", ensure_java(), kafka).read_bytes() == b"classes"
    assert archive_of("registry", ensure_java(), registry).is_file()
    assert formatted_store(kafka).is_dir()
    assert not runs[0].exists()
    (registry / "b.jar").touch()
    make_archives(kafka, registry)
    assert len(runs) == 2


def test_a_server_that_does_not_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: `make servers` goes on, and servers start as ever."""
    kafka = folder(tmp_path, "kafka")

    def fail(*_: object) -> None:
        raise RuntimeError("the broker did not start")

    monkeypatch.setattr(archive_making, "_run_once", fail)
    monkeypatch.setattr(archive_making, "jars_of", lambda _: kafka)
    monkeypatch.setattr(archive_making, "registry_jars", lambda _: None)
    assert archive_making._main() == 1
    said = "servers: they start without archives of classes: the broker did not start\n"
    assert capsys.readouterr().err == said
    assert [path.name for path in tmp_path.rglob("*")] == ["kafka", "a.jar"]
