"""Checkpoints, input and output are in a bucket of an S3 server on a host of its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.hosts.conftest import SparkHosts
from tests.hosts.s3_host import HOST, S3Host
from tests.objectstore.s3_servers import environment
from verification.hosts.answer import prepare, prepare_loop
from verification.hosts.driver_events import JsonEvent, Reaction, flow_times
from verification.hosts.faults import FaultKind, Faults
from verification.hosts.stream import Stream

ROWS, LOOP_ROWS = 150_000, 60_000
AWAY_S = 20
DRIVERS = ("d2", "d")


@pytest.fixture(scope="module")
def s3(spark_hosts: SparkHosts) -> S3Host:
    """The server, once for both tests."""
    return S3Host(spark_hosts.network)


@pytest.mark.nightly
def test_a_store_that_is_away_delays_checkpoints_and_no_rows(
    spark_hosts: SparkHosts, s3: S3Host, note: Callable[[str, Reaction], None]
) -> None:
    network = spark_hosts.network
    folder = network.folder / "object-store"
    folder.mkdir()
    keys = environment(folder)
    answer = prepare(folder, ROWS)
    master, store = spark_hosts.cluster.url, s3.uri("checkpoints")
    stream = Stream(network, master, answer, store, environment=keys)
    since_ms = stream.now_ms()
    stream.start("d2")
    stream.wait_for_rows("the first rows", since_ms)
    away_ms = stream.now_ms()
    network.unplug(HOST)
    stream.pause(AWAY_S)
    network.plug(HOST)
    back_ms = stream.now_ms()
    stream.wait_for_rows("checkpoints in the store that is back", back_ms)
    found = stream.reaction(away_ms)
    note("store-away", found)
    assert found.generations == 0
    in_order = sorted(stream.events, key=lambda event: event["time_ms"])
    assert [at for at in flow_times(in_order) if away_ms + 2_000 < at < back_ms]
    assert stream.finish("d2") == answer.count


@pytest.mark.nightly
def test_a_loop_needs_no_shared_folder_and_restores_what_is_in_flight(
    spark_hosts: SparkHosts, s3: S3Host
) -> None:
    """Its barriers overtake from the start; an executor dies while rows are on their way back."""
    network = spark_hosts.network
    folder = network.folder / "loop"
    folder.mkdir()
    answer = replace(prepare_loop(folder, LOOP_ROWS), bucket=s3.uri("loop"))
    s3.upload(answer.input, "loop/input")
    stream = Stream(
        network,
        spark_hosts.cluster.url,
        answer,
        s3.uri("loop/checkpoints"),
        options=["--unaligned"],
        environment=environment(folder),
    )
    since_ms = stream.now_ms()
    stream.start("d2")
    stream.wait_for_rows("the first rows", since_ms)
    found = Faults(spark_hosts.cluster, stream, DRIVERS).hit(FaultKind.EXECUTOR_KILLED)
    assert found.generations >= 1
    stream.finish_unseen("d2")
    assert {event["mode"] for event in _completed(stream.events)} >= {"unaligned"}
    assert any(event["inflight_rows"] for event in _completed(stream.events))
    assert not answer.output.exists(), "it is in the bucket only"
    s3.download("loop/output", answer.output)
    assert answer.check() == LOOP_ROWS


def _completed(events: Sequence[JsonEvent]) -> list[JsonEvent]:
    return [event for event in events if event["event"] == "checkpoint-completed"]
