"""Send Laminar itself with a job, to hosts that do not have it.

The package and the modules beside the program become one ``.zip``, which Spark copies to every
executor and puts on the path of its Python workers (``--py-files``). What is compiled cannot come
from a ``.zip``: pyarrow, numpy, pyzmq and the other dependencies have to be on the hosts, or in an
environment that ``--archives`` sends.
"""

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

from pyspark import SparkFiles
from pyspark.sql import SparkSession

import laminar_core
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.worker.imports import PROGRAM_PREFIX

DAEMON = {"spark.python.daemon.module": "pyspark.daemon"}
"""Laminar's own daemon would be started before the ``.zip`` is on the path."""

NOT_FOR_WORKERS = ("orchestration", "resources", "sensors")
"""Parts of Laminar that need Dagster."""

_SINCE = (1980, 1, 1, 0, 0, 0)  # The first time that a .zip can have.


def ship(spark: SparkSession, folders: Iterable[Path]) -> Path:
    """Give Spark the package and the loaded modules of ``folders``; return the ``.zip``.

    Raises:
        ConfigurationError: Laminar is not installed as plain files.
    """
    # Executors fetch the file itself from here; Spark deletes its folder when it ends.
    folder = Path(SparkFiles.getRootDirectory()) / "laminar"
    folder.mkdir(exist_ok=True)
    packed = pack(folder, own_modules(sys.modules, folders))
    before = list(sys.path)
    spark.sparkContext.addPyFile(str(packed))
    sys.path[:] = before  # This process has the modules already.
    return packed


def pack(folder: Path, modules: Mapping[str, Path]) -> Path:
    """Write the ``.zip`` into ``folder``; equal contents give equal bytes and an equal name.

    Raises:
        ConfigurationError: Laminar is not installed as plain files.
    """
    draft = folder / "draft.zip"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted((*_package_files(), *modules.items())):
            entry = zipfile.ZipInfo(name, _SINCE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    digest = hashlib.sha256(draft.read_bytes()).hexdigest()[:12]
    # Executors keep files by their names, so another content needs another name.
    return draft.rename(folder / f"laminar-{digest}.zip")


def _package_files() -> Iterator[tuple[str, Path]]:
    root = Path(str(laminar_core.__file__)).parent
    if not root.is_dir():
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"--ship needs Laminar as plain files, and it is in {root.parent}: install it with pip",
        )
    for folder, folders, files in os.walk(root, followlinks=True):
        place = Path(folder).relative_to(root)
        folders[:] = sorted(
            name for name in folders if not (place == Path() and name in NOT_FOR_WORKERS)
        )
        for name in sorted(files):
            if name.endswith(".py"):
                yield f"laminar_core/{(place / name).as_posix()}", Path(folder) / name


def own_modules(
    loaded: Mapping[str, ModuleType | None], folders: Iterable[Path]
) -> dict[str, Path]:
    """Return the files of the user's modules by their names in the archive.

    Those are the modules and packages that this process has loaded from ``folders``: files beside
    the program. A package is sent with all its modules. What is installed lies elsewhere, and the
    program itself travels with its functions.
    """
    places = [folder.resolve() for folder in folders]
    found: dict[str, Path] = {}
    for name, module in list(loaded.items()):
        file = getattr(module, "__file__", None)
        if "." in name or not file or not str(file).endswith(".py") or _is_other(name):
            continue
        path = Path(file).resolve()
        package = path.name == "__init__.py"
        if (path.parent.parent if package else path.parent) not in places:
            continue
        if not package:
            found[f"{name}.py"] = path
            continue
        for each in sorted(path.parent.rglob("*.py")):
            found[f"{name}/{each.relative_to(path.parent).as_posix()}"] = each
    return found


def _is_other(name: str) -> bool:
    return name in ("__main__", "laminar_core") or name.startswith(PROGRAM_PREFIX)
