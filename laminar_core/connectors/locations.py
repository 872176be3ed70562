"""Where the files of a source or a sink are: a path, or ``s3://bucket/prefix?region=…``."""

import os
from pathlib import Path

from laminar_core.arguments import require_instance
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.s3_options import S3Options


def is_bucket(location: str) -> bool:
    """Return whether this is the URI of a bucket.

    >>> is_bucket("s3://bucket/clicks"), is_bucket("/data/clicks")
    (True, False)
    """
    return location.startswith("s3://")


def location_text(given: str | os.PathLike[str]) -> str:
    """Return a path or a URI as text.

    Raises:
        ConfigurationError: it is neither (INVALID_OPTION).
    """
    require_instance(
        given, str | os.PathLike, "a path must be text, such as data or s3://bucket/data"
    )
    return os.fspath(given)


def checked_location(given: str | os.PathLike[str]) -> str:
    """Return a path as an absolute one, because workers may run in other directories, or a URI.

    Raises:
        ConfigurationError: a URI of another kind, with a parameter that does not exist, or with a
            secret (INVALID_OPTION).
    """
    text = location_text(given)
    if is_bucket(text):
        S3Options.parse(text)
        return text
    if "://" in text:
        raise ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{text!r}: give a path, or a URI such as s3://bucket/prefix",
        )
    return str(Path(text).absolute())


def without_parameters(location: str) -> str:
    """Return the location for a fingerprint: parameters of a bucket may change between runs.

    >>> without_parameters("s3://bucket/clicks?region=eu-central-1"), without_parameters("/a?b")
    ('s3://bucket/clicks', '/a?b')
    """
    return location.partition("?")[0] if is_bucket(location) else location
