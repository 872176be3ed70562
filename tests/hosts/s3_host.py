"""An S3 server on a host of its own."""

import sys
from pathlib import Path

from tests.objectstore.s3_servers import ACCESS_KEY, SECRET_KEY
from verification.hosts.network import Network
from verification.hosts.spark_cluster import environment_of
from verification.hosts.waiting import wait_until

HOST, PORT, BUCKET = "s", 9000, "laminar"
CLIENT = f"""
import sys
from pathlib import Path
from boto3.session import Session
session = Session({ACCESS_KEY!r}, {SECRET_KEY!r}, region_name="us-east-1")
client = session.client("s3", endpoint_url="http://127.0.0.1:{PORT}")
"""
MAKE_BUCKET = f"client.create_bucket(Bucket={BUCKET!r})"
UPLOAD = f"""
for file in Path(sys.argv[1]).iterdir():
    client.upload_file(str(file), {BUCKET!r}, f"{{sys.argv[2]}}/{{file.name}}")
"""
DOWNLOAD = f"""
for found in client.list_objects_v2(Bucket={BUCKET!r}, Prefix=sys.argv[1])["Contents"]:
    file = Path(sys.argv[2], found["Key"].removeprefix(sys.argv[1]).strip("/"))
    file.parent.mkdir(parents=True, exist_ok=True)
    client.download_file({BUCKET!r}, found["Key"], str(file))
"""


class S3Host:
    """The server; its bucket is in its memory."""

    def __init__(self, network: Network) -> None:
        """Boot the host, start the server on it, and make the bucket."""
        network.add(HOST)
        self._host = network[HOST]
        own = {"BIND_HOST": "0.0.0.0", "GATEWAY_PORT": str(PORT), "SERVICES": "s3"}
        environment = {**environment_of(self._host.address), **own}
        log = network.folder / "s3.log"
        self._host.start(sys.executable, "-m", "ministack", log=log, environment=environment)
        listens = f":{PORT}"
        wait_until("the S3 server", lambda: listens in self._host.run("ss", "-tln"), log.read_text)
        self._run(MAKE_BUCKET)

    def uri(self, prefix: str) -> str:
        """Return the URI of a folder in the bucket, for every host."""
        return f"s3://{BUCKET}/{prefix}?endpoint_url=http://{self._host.address}:{PORT}"

    def upload(self, folder: Path, prefix: str) -> None:
        """Copy the files of a folder into the bucket."""
        self._run(UPLOAD, str(folder), prefix)

    def download(self, prefix: str, folder: Path) -> None:
        """Copy what is below a prefix into a folder."""
        self._run(DOWNLOAD, prefix, str(folder))

    def _run(self, program: str, *words: str) -> None:
        self._host.run(sys.executable, "-c", CLIENT + program, *words)
