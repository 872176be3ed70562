"""Open a store by its URI, and probe it before it is used."""

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.host.extras import needs_extra
from laminar_core.objectstore.azure_options import AzureOptions
from laminar_core.objectstore.bucket_options import BucketOptions
from laminar_core.objectstore.contract import CountedStore, ObjectStore, SelfProbing
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.local import LocalObjectStore, translated
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.regular_files import names_in
from laminar_core.objectstore.s3_options import S3Options
from laminar_core.records.paths import PROBE_FOLDER

__all__ = ["ObjectStore", "address", "open_object_store", "place_below", "probe"]

_RACERS = 4
_REFUSALS = {
    ErrorCode.STORE_READ_ONLY: ErrorCode.STORE_NOT_WRITABLE,
    ErrorCode.STORE_ACCESS_DENIED: ErrorCode.STORE_ACCESS_DENIED,
}
"""Storage errors of a running job that are configuration errors before it starts."""
_PROBE_NUMBERS = count(1)
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT}
"""Errors of a name that the system does not accept, or of a working directory that is gone."""


@contextmanager
def place_errors(place: str) -> Iterator[None]:
    """Turn failures to make sense of a path or URI, or to look at it, into errors of one line.

    Raises:
        ConfigurationError: it is not a valid path or URI.
        StorageUnavailable: it may not be looked at, or does not answer.
    """
    with translated("open", Path(place)):
        try:
            yield
        except (ValueError, RuntimeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_NAME:
                raise
            raise ConfigurationError(
                ErrorCode.INVALID_OPTION, f"cannot open {place!r}: {error}; check the path or URI"
            ) from error


def open_object_store(uri: str) -> CountedStore:
    """Open the store at a path, a ``file://``, ``s3://`` or ``az://`` URI; nothing is sent yet.

    ``memory://NAME`` finds a store that a test has made with ``MemoryObjectStore.named``.

    Raises:
        ConfigurationError: a file instead of a directory, a scheme that is not supported, a file
            URI of another host, or the URI of a bucket with a parameter that does not exist or does
            not belong there, or what is no valid path or URI.
        StorageUnavailable: this user may not look at the place.
        MissingExtraError: an ``s3://`` URI and no boto3, or an ``az://`` URI and no obstore.
    """
    require_instance(
        uri, str, "a store must be text, such as checkpoints or s3://bucket/checkpoints"
    )
    if uri.startswith("s3://"):
        with needs_extra("s3", "s3:// stores"):  # Imported here, because boto3 starts slowly.
            from laminar_core.objectstore.s3 import S3ObjectStore  # noqa: PLC0415
        return S3ObjectStore(uri)
    if uri.startswith("az://"):
        with needs_extra("azure", "az:// stores"):
            from laminar_core.objectstore.azure import AzureObjectStore  # noqa: PLC0415
        return AzureObjectStore(uri)
    with place_errors(uri):
        return _open_here(uri)


def _open_here(uri: str) -> CountedStore:
    """Open a store that this machine has."""
    parts = urlsplit(uri)
    if not uri or "\0" in uri:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"{uri!r} is not a store: give a directory"
        )
    if "://" not in uri and parts.scheme != "file":
        return CountedObjectStore(_directory(uri))
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path:
        return CountedObjectStore(_directory(unquote(parts.path)))
    if parts.scheme == "memory" and (found := MemoryObjectStore.find(parts.netloc)):
        return CountedObjectStore(found)
    raise ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"{uri!r} is no store that can be opened: give a directory that driver and workers share, "
        "as a path or as file:///path, or a bucket as s3://bucket/prefix or az://container/prefix",
    )


def _directory(path: str) -> LocalObjectStore:
    objects = LocalObjectStore(path)
    if Path(objects.uri).is_file():
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION, f"{objects.uri} is a file, not a store: give a directory"
        )
    return objects


def absolute_uri(target: str) -> str:
    """Return the target as an absolute path; a URI is returned unchanged.

    Raises:
        ConfigurationError: it is no text, or the working directory is gone.
    """
    is_uri = "://" in target or target.startswith("file:")
    with place_errors(target):
        target.encode()
        return target if is_uri else os.path.abspath(target)  # noqa: PTH100 - links stay


def bucket_options(uri: str) -> BucketOptions:
    """Return the options in the URI of a bucket or container.

    Raises:
        ConfigurationError: it has a parameter that does not exist, or contains a secret.
    """
    return (AzureOptions if uri.startswith("az://") else S3Options).parse(uri)


def is_bucket(uri: str) -> bool:
    """Return whether this is the URI of a bucket or container, which may have parameters."""
    return uri.startswith(("s3://", "az://"))


def place_below(uri: str, folder: str) -> str:
    """Return the URI of a folder of the store at ``uri``, to be opened as a store of its own.

    >>> place_below("s3://bucket/savepoints?region=eu-central-1", "before-upgrade")
    's3://bucket/savepoints/before-upgrade?region=eu-central-1'
    """
    place, mark, parameters = uri.partition("?") if is_bucket(uri) else (uri, "", "")
    name = folder.strip("/")
    name = quote(name) if is_bucket(uri) or uri.startswith("file:") else name
    return f"{place.rstrip('/')}/{name}{mark}{parameters}"


def names_at(objects: ObjectStore) -> list[str]:
    """Return the names directly in a store, also those that others gave and no object can have.

    Names of folders end with ``/``.

    Raises:
        StorageUnavailable: it may not be looked at, or does not answer.
    """
    if "://" in objects.uri:
        return objects.children("")
    with translated("list", Path(objects.uri)):
        return names_in(objects.uri)


def folders_between(uri: str, place: str) -> tuple[str, ...] | None:
    """Return the folders from one opened store down to another; None if it is elsewhere.

    Parameters of buckets are not compared: two servers may be one.

    >>> folders_between("s3://bucket/store", "s3://bucket/store/payments/shared?region=eu-central-1")
    ('payments', 'shared')
    """
    if is_bucket(uri) and is_bucket(place):
        top, inner = bucket_options(uri), bucket_options(place)
        if (top.scheme, top.bucket) != (inner.scheme, inner.bucket):
            return None
        uri, place = f"/{top.prefix}", f"/{inner.prefix}"
    below = PurePosixPath(place)
    return below.relative_to(uri).parts if below.is_relative_to(uri) else None


def address(objects: ObjectStore, key: str) -> str:
    """Return the place of an object for messages, without the parameters of a bucket's URI."""
    uri = objects.uri.partition("?")[0] if is_bucket(objects.uri) else objects.uri
    return f"{uri}/{key}"


def probe(objects: ObjectStore) -> None:
    """Try the store out before a job relies on it; leave nothing behind.

    Raises:
        ConfigurationError: it cannot be written, or it overwrites objects that must stay, or does
            not show what was written. Two drivers could then own one job.
        StorageUnavailable: it is full, or does not answer.
    """
    key = f"{PROBE_FOLDER}{os.uname().nodename}-{os.getpid()}-{next(_PROBE_NUMBERS)}"
    try:
        _check_conditions(objects, key)
        objects.delete(key)
        _expect(objects, objects.get(key) is None, "a deleted object is still there")
    except StorageUnavailable as error:
        if error.code in _REFUSALS:
            raise ConfigurationError(_REFUSALS[error.code], str(error)) from error
        raise


def _check_conditions(objects: ObjectStore, key: str) -> None:
    start = threading.Barrier(_RACERS)

    def race(racer: int) -> bool:
        start.wait()
        return objects.put_if_absent(key, b"%d" % racer)

    with ThreadPoolExecutor(_RACERS) as pool:
        won = list(pool.map(race, range(_RACERS)))
    _expect(objects, sum(won) == 1, f"{sum(won)} of {_RACERS} writers created the same object")
    winner = b"%d" % won.index(True)
    _expect(objects, not objects.put_if_absent(key, b"late"), "an object was created twice")
    if isinstance(objects, SelfProbing) and (problem := objects.check_conditions(key)):
        _expect(objects, False, problem)  # noqa: FBT003 - an assertion
    _expect(objects, objects.get(key) == winner, "an object was overwritten")
    _expect(objects, key in objects.list(PROBE_FOLDER), "a new object is not listed")
    objects.put(key, b"overwritten")
    _expect(objects, objects.get(key) == b"overwritten", "an overwritten object has its old value")


def _expect(objects: ObjectStore, kept: bool, problem: str) -> None:  # noqa: FBT001 - an assertion
    if not kept:
        raise ConfigurationError(
            ErrorCode.STORE_IGNORES_CONDITIONS,
            f"{objects.uri} is not safe for checkpoints ({problem}): use a local or NFS directory, "
            "or an object store that honours create-if-absent",
        )
