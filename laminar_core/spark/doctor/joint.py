"""Find out whether tasks see the same files, and reach each other."""

# Spark's own pickler has no types; it reads what the driver's process wrote.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import hashlib
import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import cast

from pyspark import cloudpickle

from laminar_core.errors import LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.link.sockets import require_descriptors
from laminar_core.objectstore.opening import open_object_store
from laminar_core.spark.doctor.facts import JointFacts, PathFacts, Request
from laminar_core.spark.doctor.links import try_links
from laminar_core.spark.doctor.memory import memory_limit_bytes

ENTRIES_MAX = 10_000
"""Files of a path that are compared; more would take long, and differ in the first ones already."""

DRIVER = "driver"
Gather = Callable[[str], list[str]]


def examine(
    payload: bytes, index: int, host: str, gather: Gather, clock: Clock | None = None
) -> JointFacts:
    """Return the facts of this task; every task calls it, and ``gather`` equally often."""
    request = cast("Request", cloudpickle.loads(payload))
    hosts = gather(host)
    with suppress(LaminarError):  # The limit that is left is reported.
        require_descriptors(0)
    tokens = _Tokens(request, index, hosts)
    store_problem = tokens.write()
    gather("written")
    store_missing = tokens.missing_in_store()
    paths = (*map(_source, request.source_paths), *map(tokens.sink, request.sink_paths))
    gather("read")
    tokens.delete()
    network = try_links(request, index, hosts, gather, clock or SystemClock())
    return JointFacts(
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        memory_bytes=memory_limit_bytes(),
        store_problem=store_problem,
        store_missing=store_missing,
        paths=paths,
        **network,
    )


class _Tokens:
    """Small files that each task writes, and that all others have to see."""

    def __init__(self, request: Request, index: int, hosts: list[str]) -> None:
        self._request, self._index = request, index
        self._names = {str(task): host for task, host in enumerate(hosts)}

    def write(self) -> str:
        """Write all tokens; return why the store did not take its one."""
        for path in self._request.sink_paths:
            with suppress(OSError):
                self._beside(path, str(self._index)).write_bytes(b"")
        try:
            return write_token(self._request, str(self._index))
        except (LaminarError, OSError) as error:
            return str(error)

    def missing_in_store(self) -> tuple[str, ...]:
        """Return who wrote a token that is not there, the driver included."""
        uri = self._request.store_uri
        if uri is None:
            return ()
        try:
            objects = open_object_store(uri)
            there = {
                task: objects.get(token_key(self._request, task)) is not None
                for task in (DRIVER, *self._names)
            }
        except (LaminarError, OSError):
            return ()  # Writing has failed with the same reason.
        return tuple(
            dict.fromkeys(self._names.get(task, task) for task, seen in there.items() if not seen)
        )

    def sink(self, path: str) -> PathFacts:
        """Return the state of an output directory: whose tokens it does not show."""
        if not Path(path).is_dir():
            return PathFacts(path=path, problem="no such directory")
        if not self._beside(path, str(self._index)).exists():
            return PathFacts(path=path, problem="cannot be written")
        unseen = [
            host
            for task, host in ((DRIVER, DRIVER), *self._names.items())
            if not self._beside(path, task).exists()
        ]
        return PathFacts(path=path, digest="", missing=tuple(dict.fromkeys(unseen)))

    def delete(self) -> None:
        """Delete the tokens of this task."""
        delete_tokens(self._request, str(self._index))

    def _beside(self, path: str, task: str) -> Path:
        return sink_token(self._request, path, task)


def token_key(request: Request, task: str) -> str:
    """Return the name of a token in the store."""
    return f"_probe/doctor-{request.run_id}-{task}"


def sink_token(request: Request, path: str, task: str) -> Path:
    """Return the path of a token in an output directory; readers skip such names."""
    return Path(path) / f".laminar-doctor-{request.run_id}-{task}"


def write_token(request: Request, task: str) -> str:
    """Write a token into the store, if there is one; return a problem or nothing.

    Raises:
        LaminarError: the store does not take it.
    """
    if request.store_uri is not None:
        open_object_store(request.store_uri).put_if_absent(token_key(request, task), b"")
    return ""


def delete_tokens(request: Request, task: str) -> None:
    """Delete the tokens of one task, or of the driver."""
    for path in request.sink_paths:
        with suppress(OSError):
            sink_token(request, path, task).unlink()
    if request.store_uri is not None:
        with suppress(LaminarError, OSError):
            open_object_store(request.store_uri).delete(token_key(request, task))


def _source(path: str) -> PathFacts:
    """Return a digest of the names and sizes at an input path, which may be a pattern."""
    try:
        return PathFacts(path=path, digest=digest_of(path))
    except OSError as error:
        return PathFacts(path=path, problem=error.strerror or str(error))


def digest_of(path: str) -> str:
    """Return a digest of the names and sizes of the files at a path.

    Raises:
        OSError: it is not there, or cannot be listed.
    """
    found = list(islice(_entries(Path(path)), ENTRIES_MAX))
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()[:12]


def _entries(path: Path) -> Iterator[tuple[str, int]]:
    if any(sign in path.name for sign in "*?["):
        for each in sorted(path.parent.glob(path.name)):
            yield str(each), each.stat().st_size
        return
    if not path.is_dir():
        yield str(path), path.stat().st_size
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            with suppress(FileNotFoundError):  # It was deleted meanwhile.
                file = Path(folder) / name
                yield str(file), file.stat().st_size
