"""S3 servers to test against: started by the tests, with a bucket, ended with them."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from boto3.session import Session

BUCKET = "laminar-tests"
ACCESS_KEY, SECRET_KEY = "AKIATESTING", "not-a-secret-at-all"
_BUILT = Path(__file__).parents[2] / "build" / "tools"
VERSITYGW = os.environ.get("LAMINAR_VERSITYGW") or shutil.which(
    "versitygw", path=os.pathsep.join([os.environ.get("PATH", ""), str(_BUILT)])
)
_START_MAX_S = 60
_PREFIXES = count(1)


@dataclass(frozen=True)
class S3Server:
    endpoint: str

    def uri(self, *parameters: str, endpoint: str | None = None) -> str:
        """A prefix of its own for each call."""
        query = "&".join([f"endpoint_url={endpoint or self.endpoint}", *parameters])
        return f"s3://{BUCKET}/{os.getpid()}/{next(_PREFIXES)}?{query}"


def environment(tmp_path: Path) -> dict[str, str]:
    """Return the variables for boto3: these keys, and no settings of the machine's user."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }


@contextmanager
def ministack() -> Iterator[S3Server]:
    """The fast one, from PyPI: everything in memory; it believes every signature."""
    port = free_port()
    changes = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3"}
    command = [sys.executable, "-m", "ministack"]
    with _running(command, changes, port) as server:
        yield server


@contextmanager
def versitygw(root: Path) -> Iterator[S3Server]:
    """The one that keeps objects in files and checks signatures."""
    assert VERSITYGW is not None
    port = free_port()
    changes = {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY}
    command = [VERSITYGW, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(root)]
    with _running(command, changes, port) as server:
        yield server


@contextmanager
def _running(command: Sequence[str], changes: dict[str, str], port: int) -> Iterator[S3Server]:
    process = subprocess.Popen(
        command, env={**os.environ, **changes}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port, process)
        server = S3Server(f"http://127.0.0.1:{port}")
        client(server.endpoint).create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.kill()
        process.wait()


def client(endpoint: str):
    """A plain client, to look at a bucket past the store."""
    session = Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    nothing = threading.Event()
    for _ in range(_START_MAX_S * 50):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, f"the server ended with {process.returncode}"
        nothing.wait(0.02)
    raise AssertionError(f"no server on port {port}")
