"""Stores on a test server: with a clock that waits for nobody, and objects that go in parts."""

from random import Random

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.objectstore.s3_options import MIB
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.s3_servers import S3Server

LARGE = Random(7).randbytes(11 * MIB)
"""Three parts."""
SMALL_PARTS = ("part_size=5MiB", "multipart_threshold=5MiB")


def open_through(server: S3Server, proxy: FaultProxy, *parameters: str) -> S3ObjectStore:
    """A store behind ``proxy``; its retries take no time."""
    uri = server.uri(*SMALL_PARTS, *parameters, endpoint=proxy.endpoint)
    return S3ObjectStore(uri, clock=ManualClock(), random=Random(1))
