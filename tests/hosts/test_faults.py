"""A stream over several hosts loses links, hosts and its driver, and its output is exact.

The tests share one stream, which each of them hurts and leaves well: starting Spark takes longer
than most faults last. After each fault all rows that are committed are compared with the answer,
and in the end it is the whole answer.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.hosts.conftest import SparkHosts
from verification.hosts.answer import prepare
from verification.hosts.driver_events import Reaction
from verification.hosts.faults import FaultKind, Faults
from verification.hosts.stream import Stream

ROWS = 400_000
DRIVERS = ("d", "d2")
BROKEN = {"link-broken"}
LOST = {"worker-lost", "link-broken"}
"""When a host dies, its peers may notice the link before the driver notices the silence."""

Hit = Callable[..., Reaction]


@pytest.fixture(scope="module")
def stream(spark_hosts: SparkHosts) -> Iterator[Stream]:
    folder = spark_hosts.network.folder / "faults"
    folder.mkdir()
    answer = prepare(folder, ROWS)
    made = Stream(spark_hosts.network, spark_hosts.cluster.url, answer, str(folder / "store"))
    yield made
    if made.drivers and not made.driver.has_ended:
        made.stop()


@pytest.fixture
def hit(spark_hosts: SparkHosts, stream: Stream, note: Callable[[str, Reaction], None]) -> Hit:
    """Hit the stream, which is started if it does not run."""
    if not stream.drivers or stream.driver.has_ended:
        since_ms = stream.now_ms()
        options = ["--take-over"] if stream.drivers else []
        stream.start("d", *options)
        stream.wait_for_rows("the first rows", since_ms)
    faults = Faults(spark_hosts.cluster, stream, DRIVERS)

    def carry_out(kind: FaultKind, **details: float) -> Reaction:
        found = faults.hit(kind, **details)
        note(kind, found)
        return found

    return carry_out


def test_a_link_that_is_silent_for_eight_seconds_costs_no_restart(hit: Hit) -> None:
    """TCP sends again what was lost."""
    found = hit(FaultKind.SILENT_CUT, seconds=8)
    assert (found.generations, found.code) == (0, None)
    assert found.standstill_ms >= 7_000, "the cut did not hit the stream"


def test_a_connection_that_is_reset_under_load_costs_no_restart(hit: Hit) -> None:
    """Frames that were lost with the connection are sent again on the next one."""
    found = hit(FaultKind.RESET)
    assert (found.generations, found.code) == (0, None)


@pytest.mark.nightly
def test_a_connection_that_is_reset_without_load_costs_no_restart(
    hit: Hit, stream: Stream, spark_hosts: SparkHosts
) -> None:
    hit(FaultKind.SILENT_CUT, seconds=0)  # It runs, and is well.
    one, other = dict.fromkeys(stream.worker_hosts)
    since_ms = stream.now_ms()
    assert spark_hosts.network.reset(one, other) > 0
    stream.wait_for_rows("rows after a reset", since_ms)
    found = stream.reaction(since_ms)
    assert (found.generations, found.code) == (0, None)


def test_a_link_to_the_driver_that_is_silent_for_six_seconds_costs_no_restart(hit: Hit) -> None:
    """``--silence-timeout`` is 8 s here, and Spark's own limit 10 s."""
    found = hit(FaultKind.DRIVER_CUT, seconds=6)
    assert (found.generations, found.code) == (0, None)
    assert found.standstill_ms >= 5_000, "the cut did not hit the stream"


def test_spark_ends_an_executor_that_loses_its_connection_to_the_driver(hit: Hit) -> None:
    """It does so at once, whatever is set, so a restart is needed."""
    found = hit(FaultKind.DRIVER_RESET)
    assert found.code == "worker-lost"
    assert found.generations >= 1


def test_an_executor_that_dies_is_replaced(hit: Hit, stream: Stream) -> None:
    found = hit(FaultKind.EXECUTOR_KILLED, victim=1)
    assert found.code in LOST
    assert stream.driver.count("finished") == 0


def test_a_frozen_host_is_left_behind_and_is_no_danger_when_it_wakes(
    hit: Hit, stream: Stream
) -> None:
    found = hit(FaultKind.FROZEN_HOST, victim=1)
    assert found.code in LOST
    stream.wait_for_rows("rows beside the zombie", stream.now_ms())


def test_a_host_without_power_is_replaced_by_a_spare(hit: Hit, stream: Stream) -> None:
    """Its peers get neither FIN nor RST."""
    found = hit(FaultKind.POWER_CUT, victim=0)
    assert found.code in LOST
    assert len(stream.worker_hosts) == 2


@pytest.mark.nightly
def test_the_job_goes_on_while_the_master_is_started_again(hit: Hit) -> None:
    assert hit(FaultKind.MASTER_RESTARTED).generations == 0


@pytest.mark.nightly
def test_an_application_that_another_master_does_not_know_is_registered_anew(hit: Hit) -> None:
    """Workers end the executors of an unknown application, which then has no slots at all."""
    found = hit(FaultKind.MASTER_REPLACED)
    assert found.generations == 1, "no start waited for slots that could not come"
    assert found.code == "worker-lost"


@pytest.mark.nightly
def test_a_link_that_is_silent_for_long_costs_a_restart(hit: Hit) -> None:
    """``--link-timeout`` is 30 s, so it is away during the start of the next generation, too."""
    found = hit(FaultKind.SILENT_CUT, seconds=100)
    assert found.generations >= 1
    assert found.code in BROKEN


def test_a_job_is_taken_over_from_a_host_that_is_gone(hit: Hit, stream: Stream) -> None:
    before = stream.driver
    found = hit(FaultKind.DRIVER_HOST_LOST)
    assert found.generations >= 1
    assert before.has_ended
    assert stream.driver.newest("generation-failed") is None


def test_a_host_that_joins_takes_workers_and_the_output_is_exact(
    spark_hosts: SparkHosts, stream: Stream
) -> None:
    """The last one: it reads the rest of the input."""
    assert stream.drivers, "it ends the stream of the tests before it"
    network = spark_hosts.network
    if "w4" not in network.hosts:
        network.add("w4")
    spark_hosts.cluster.join("w4")
    if not stream.driver.has_ended:
        stream.stop()
    rows = stream.finish("d", "--conf", "spark.cores.max=4", workers=4)
    assert "w4" in stream.worker_hosts
    assert rows == stream.answer.count
