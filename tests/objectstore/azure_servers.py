"""Azurite, Microsoft's server for tests: started by the tests, with a container."""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import quote, urlencode, urlsplit

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.azure import AzureObjectStore
from tests.objectstore.fault_proxy import FaultProxy
from tests.objectstore.s3_servers import free_port, wait_for

CONTAINER = "laminar-tests"
ACCOUNT = "laminartests"
KEY = base64.b64encode(b"not-a-secret-at-all").decode()
_BUILT = Path(__file__).parents[2] / "build" / "tools" / "azurite" / "node_modules" / ".bin"
AZURITE = os.environ.get("LAMINAR_AZURITE") or shutil.which(
    "azurite-blob", path=os.pathsep.join([os.environ.get("PATH", ""), str(_BUILT)])
)
_PREFIXES = count(1)
_SAS_VERSION = "2019-12-12"
_NO_END = "2099-01-01T00:00:00Z"


@dataclass(frozen=True)
class AzureServer:
    endpoint: str

    def uri(self, *parameters: str, endpoint: str | None = None) -> str:
        """A prefix of its own for each call."""
        query = "&".join([f"endpoint={endpoint or self.endpoint}", *parameters])
        return f"az://{CONTAINER}/{os.getpid()}/{next(_PREFIXES)}?{query}"

    def request(self, method: str, path: str = "", body: bytes = b"", **query: str) -> int:
        """Send something past the store; return the status of the answer."""
        parts = urlsplit(self.endpoint)
        connection = HTTPConnection(parts.hostname, parts.port, timeout=30)
        signed = f"{urlencode(query)}&{shared_access_signature()}".lstrip("&")
        target = f"{parts.path}/{CONTAINER}{quote(path)}?{signed}"
        connection.request(method, target, body, {"x-ms-blob-type": "BlockBlob"})
        status = connection.getresponse().status
        connection.close()
        return status


def environment() -> dict[str, str]:
    """Return the variables for obstore. With a key it asks nobody for a token."""
    return {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}


def shared_access_signature() -> str:
    """A signature for everything; unlike a key's, it does not cover the headers of a request."""
    services, kinds, allowed = "b", "sco", "rwdlac"
    signed = [ACCOUNT, allowed, services, kinds, "", _NO_END, "", "https,http", _SAS_VERSION, ""]
    digest = hmac.digest(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)
    return urlencode({
        "sv": _SAS_VERSION, "ss": services, "srt": kinds, "sp": allowed, "se": _NO_END,
        "spr": "https,http", "sig": base64.b64encode(digest).decode(),
    })  # fmt: skip


@contextmanager
def azurite(root: Path) -> Iterator[AzureServer]:
    """Everything in memory; conditions and signatures are those of Azure."""
    assert AZURITE is not None
    port = free_port()
    command = [
        AZURITE, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent",
        "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=root, env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(port, process)
        server = AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}")
        assert server.request("PUT", restype="container") == 201
        yield server
    finally:
        process.kill()
        process.wait()


def operation_of(method: str, target: str) -> str:
    """The name that this kind of request has on S3, by which faults are scripted."""
    if method == "GET":
        return "ListObjectsV2" if "comp=list" in urlsplit(target).query else "GetObject"
    return {"PUT": "PutObject", "POST": "DeleteObject", "HEAD": "HeadObject"}[method]


class AzureProxy(FaultProxy):
    operation_of = staticmethod(operation_of)

    def __init__(self, server: AzureServer) -> None:
        super().__init__(server.endpoint)
        self.endpoint += urlsplit(server.endpoint).path


def open_through(server: AzureServer, proxy: AzureProxy, *parameters: str) -> AzureObjectStore:
    """A store behind ``proxy``; its retries take no time."""
    uri = server.uri(*parameters, endpoint=proxy.endpoint)
    return AzureObjectStore(uri, clock=ManualClock(), random=Random(1))
