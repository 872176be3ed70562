"""An archive appears whole, or the reason why there is none."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from laminar_core.errors import ConfigurationError
from laminar_core.spark import archive_making
from laminar_core.spark.archive_making import END_MAX_S, make_archive
from laminar_core.spark.class_archive import archive_name
from laminar_core.spark.jvm import ensure_java
from laminar_core.spark.quiet import JAVA_OPTIONS


class PlayedSpark:
    """Stands in for Spark and its JVM, which writes what it is told to write when it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ends: bool, writes: bool) -> None:
        self.options: dict[str, str] = {}
        self.events: list[str] = []
        self._ends, self._writes = ends, writes
        proc = SimpleNamespace(
            stdin=SimpleNamespace(close=lambda: self.events.append("pipe closed")),
            wait=self.wait,
            kill=lambda: self.events.append("killed"),
        )
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=proc))
        monkeypatch.setattr(archive_making, "open_session", self.open)
        monkeypatch.setattr(archive_making, "_work", lambda *_: self.events.append("worked"))

    def open(self, _master: str, _name: str, conf: dict[str, str]) -> SimpleNamespace:
        self.options = conf
        return SimpleNamespace(stop=lambda: self.events.append("stopped"))

    def wait(self, limit_s: float) -> None:
        self.events.append("waited")
        if not self._ends:
            raise subprocess.TimeoutExpired("java", limit_s)
        if self._writes:
            (word,) = [w for w in self.options[JAVA_OPTIONS].split() if "AtExit" in w]
            Path(word.partition("=")[2]).write_bytes(b"classes")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "environment" / "share" / "laminar"


def test_an_archive_is_what_a_jvm_wrote_at_its_end(environment, monkeypatch) -> None:
    played = PlayedSpark(monkeypatch, ends=True, writes=True)
    archive = make_archive()
    assert archive == environment / archive_name(ensure_java())
    assert archive.read_bytes() == b"classes"
    assert played.events == ["worked", "stopped", "pipe closed", "waited"]
    assert os.listdir(environment) == [archive.name]  # noqa: PTH208 - hidden ones as well


@pytest.mark.usefixtures("environment")
def test_an_archive_that_is_there_is_not_made_again(monkeypatch) -> None:
    played = PlayedSpark(monkeypatch, ends=True, writes=True)
    assert make_archive() == make_archive()
    assert played.events.count("worked") == 1


def test_a_user_keeps_it_where_the_environment_belongs_to_somebody_else(
    environment, monkeypatch, tmp_path: Path
) -> None:
    PlayedSpark(monkeypatch, ends=True, writes=True)
    environment.parent.parent.mkdir()
    environment.parent.touch()  # No folder can be made in a file.
    assert make_archive().parent == tmp_path / "cache" / "laminar"
    (tmp_path / "cache" / "laminar" / archive_name(ensure_java())).unlink()
    (tmp_path / "cache" / "laminar").rmdir()
    (tmp_path / "cache" / "laminar").touch()
    with pytest.raises(ConfigurationError, match="no folder can be written"):
        make_archive()


@pytest.mark.parametrize(
    ("ends", "reason"),
    [(True, "this Java writes none"), (False, f"Java did not end within {END_MAX_S} s")],
)
def test_a_jvm_that_writes_nothing_leaves_nothing(environment, monkeypatch, ends, reason) -> None:
    played = PlayedSpark(monkeypatch, ends=ends, writes=False)
    with pytest.raises(ConfigurationError, match=reason):
        make_archive()
    assert list(environment.iterdir()) == []
    assert ("killed" in played.events) is not ends


@pytest.mark.usefixtures("environment")
def test_the_jvm_ends_if_the_work_fails(monkeypatch) -> None:
    played = PlayedSpark(monkeypatch, ends=True, writes=True)

    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(archive_making, "_work", fail)
    with pytest.raises(RuntimeError):
        make_archive()
    assert played.events == ["pipe closed"]
