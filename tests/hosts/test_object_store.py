"""Checkpoints go to an S3 server on a host of its own, which is away for a while."""

import sys
from collections.abc import Callable

import pytest

from tests.hosts.conftest import SparkHosts
from tests.objectstore.s3_servers import ACCESS_KEY, SECRET_KEY, environment
from verification.hosts.answer import prepare
from verification.hosts.driver_events import Reaction, flow_times
from verification.hosts.network import Network
from verification.hosts.spark_cluster import environment_of
from verification.hosts.stream import Stream
from verification.hosts.waiting import wait_until

ROWS = 150_000
PORT, BUCKET = 9000, "laminar"
AWAY_S = 20
MAKE_BUCKET = f"""
from boto3.session import Session
session = Session({ACCESS_KEY!r}, {SECRET_KEY!r}, region_name="us-east-1")
session.client("s3", endpoint_url="http://127.0.0.1:{PORT}").create_bucket(Bucket={BUCKET!r})
"""


def start_s3(network: Network, python: str) -> str:
    """Start the server on host s, and return the URI of a store in it."""
    network.add("s")
    at = network["s"]
    own = {"BIND_HOST": "0.0.0.0", "GATEWAY_PORT": str(PORT), "SERVICES": "s3"}
    log = network.folder / "s3.log"
    at.start(python, "-m", "ministack", log=log, environment=environment_of(at.address) | own)
    wait_until("the S3 server", lambda: f":{PORT}" in at.run("ss", "-tln"), log.read_text)
    at.run(python, "-c", MAKE_BUCKET)
    return f"s3://{BUCKET}/hosts?endpoint_url=http://{at.address}:{PORT}"


@pytest.mark.nightly
def test_a_store_that_is_away_delays_checkpoints_and_no_rows(
    spark_hosts: SparkHosts, note: Callable[[str, Reaction], None]
) -> None:
    network = spark_hosts.network
    folder = network.folder / "object-store"
    folder.mkdir()
    store = start_s3(network, sys.executable)
    keys = environment(folder)
    answer = prepare(folder, ROWS)
    stream = Stream(network, spark_hosts.cluster.url, answer, store, environment=keys)
    since_ms = stream.now_ms()
    stream.start("d2")
    stream.wait_for_rows("the first rows", since_ms)
    away_ms = stream.now_ms()
    network.unplug("s")
    stream.pause(AWAY_S)
    network.plug("s")
    back_ms = stream.now_ms()
    stream.wait_for_rows("checkpoints in the store that is back", back_ms)
    found = stream.reaction(away_ms)
    note("store-away", found)
    assert found.generations == 0
    in_order = sorted(stream.events, key=lambda event: event["time_ms"])
    assert [at for at in flow_times(in_order) if away_ms + 2_000 < at < back_ms]
    assert stream.finish("d2") == len(answer.rows)
