"""Cost of a store: a directory, a local bucket, and a bucket behind a slow link.

The server is ministack, or versitygw if the machine has it (``tests/objectstore/s3_servers.py``).
The slow link gives each connection 10 ms and 40 MiB/s, about what a virtual machine sees of S3.
"""

# Keys come out of a generator of any kind.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from unittest.mock import patch
from urllib.parse import urlsplit

from benchmarks.result import Result, median
from laminar_core.objectstore.opening import ObjectStore, open_object_store
from tests.objectstore.s3_servers import VERSITYGW, S3Server, environment, ministack, versitygw

SMALL = bytes(4 * 1024)
LARGE_MIB = 64
TARGET_PARALLEL_RATIO = 2.0
_SMALL_OBJECTS = 100
_ROUNDS = 3
_THREADS = 8
_DELAY_MS, _MIB_PER_S = 10, 40
_NUMBERS = count(1)


def storage() -> list[Result]:
    """Small and large objects in a directory and in a bucket; parts one by one and in parallel."""
    with _server() as server, TemporaryDirectory() as directory:
        near = open_object_store(server.uri())
        local = open_object_store(directory)
        results = [*_small("local", local), *_small("s3", near)]
        with _slow_link(server) as far:
            serial = open_object_store(server.uri("parallel=1", endpoint=far))
            parallel = open_object_store(server.uri(endpoint=far))
            results += [*_concurrent(parallel), *_large(serial, parallel)]
    return results


def _small(name: str, objects: ObjectStore) -> list[Result]:
    """Milliseconds for one object of 4 KiB, one after the other."""
    keys = [f"small/{next(_NUMBERS)}" for _ in range(_SMALL_OBJECTS)]
    put_ms = [_ms(lambda key=key: objects.put_if_absent(key, SMALL)) for key in keys]
    get_ms = [_ms(lambda key=key: objects.get(key)) for key in keys]
    return [
        Result(f"storage_{name}_create_4kib", median(put_ms), "ms", "lower"),
        Result(f"storage_{name}_get_4kib", median(get_ms), "ms", "lower"),
    ]


def _concurrent(objects: ObjectStore) -> list[Result]:
    """How many times as many small objects eight threads create as one does."""

    def create_all(threads: int) -> float:
        keys = [f"many/{next(_NUMBERS)}" for _ in range(_SMALL_OBJECTS)]
        with ThreadPoolExecutor(threads) as pool:
            return _ms(lambda: list(pool.map(lambda key: objects.put_if_absent(key, SMALL), keys)))

    ratio = median([create_all(1) / create_all(_THREADS) for _ in range(_ROUNDS)])
    return [Result("storage_s3_create_8_threads_ratio", ratio, "x", "higher")]


def _large(serial: ObjectStore, parallel: ObjectStore) -> list[Result]:
    """An object of 64 MiB, in turns: parts one by one, and eight at a time."""
    data = os.urandom(LARGE_MIB * 1024**2)
    measured: dict[str, list[float]] = {}

    def measure(name: str, action: Callable[[], object]) -> None:
        measured.setdefault(name, []).append(LARGE_MIB / (_ms(action) / 1e3))

    for _ in range(_ROUNDS):
        for name, objects in (("serial", serial), ("parallel", parallel)):
            key = f"large/{next(_NUMBERS)}"
            measure(f"create_{name}", lambda o=objects, k=key: o.put_if_absent(k, data))
            measure(f"get_{name}", lambda o=objects, k=key: o.get(k))
    rates = {name: median(values) for name, values in measured.items()}
    return [
        *(
            Result(f"storage_s3_{name}_64mib", rate, "MiB/s", "higher")
            for name, rate in rates.items()
        ),
        *(
            Result(
                f"storage_s3_{verb}_parallel_ratio",
                rates[f"{verb}_parallel"] / rates[f"{verb}_serial"],
                "x",
                "higher",
                TARGET_PARALLEL_RATIO,
            )
            for verb in ("create", "get")
        ),
    ]


@contextmanager
def _server() -> Iterator[S3Server]:
    with TemporaryDirectory() as root, patch.dict(os.environ, environment(Path(root))):
        objects = Path(root, "objects")
        objects.mkdir()
        with versitygw(objects) if VERSITYGW else ministack() as server:
            yield server


@contextmanager
def _slow_link(server: S3Server) -> Iterator[str]:
    """Another address of the same server."""
    port = urlsplit(server.endpoint).port
    command = [sys.executable, "-m", "benchmarks.slow_link"]
    arguments = [str(value) for value in (port, _DELAY_MS, _MIB_PER_S)]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as link:  # noqa: S603 - this program
        assert link.stdout is not None
        try:
            yield f"http://127.0.0.1:{link.stdout.readline().strip()}"
        finally:
            link.kill()


def _ms(action: Callable[[], object]) -> float:
    started = perf_counter()
    action()
    return 1e3 * (perf_counter() - started)
