"""Optional packages: where one is missing, one line says how to install it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from laminar_core.errors import ErrorCode, MissingExtraError

Extra = Literal[
    "azure",
    "dagster",
    "kafka",
    "kafka-avro",
    "kafka-transaction",
    "kubernetes",
    "metrics",
    "rocksdb",
    "s3",
]

_PACKAGES: dict[Extra, tuple[str, ...]] = {
    "azure": ("obstore",),
    "dagster": ("dagster", "yaml"),
    "kafka": ("confluent_kafka",),
    "kafka-avro": ("fastavro", "requests", "urllib3"),
    "kafka-transaction": ("kafka",),
    "kubernetes": ("kubernetes", "urllib3"),
    "metrics": ("google", "opentelemetry", "prometheus_client", "requests"),
    "rocksdb": ("rocksdict",),
    "s3": ("boto3", "botocore"),
}
"""Top-level packages that come with an extra of ``pyproject.toml`` and not without it."""


@contextmanager
def needs_extra(extra: Extra, what: str) -> Iterator[None]:
    """Wrap an import of an optional package; ``what`` is what the user needs it for.

    Raises:
        MissingExtraError: a package of the extra is not installed. An import that fails for any
            other reason fails as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES[extra]:
            raise
        raise MissingExtraError(
            ErrorCode.MISSING_EXTRA, f"{what} need: pip install 'laminar-core[{extra}]'"
        ) from error
