"""A job that a cluster cannot run is refused, with the reason and with what there is."""

import re
from pathlib import Path

import pytest

from tests.hosts.conftest import SparkHosts
from verification.hosts.answer import prepare
from verification.hosts.stream import Driver, Stream
from verification.hosts.waiting import wait_until

ROWS = 20_000
REFUSED_CODE = 2
SHORT_START = ("--start-timeout", "20 seconds")


def ended(
    spark_hosts: SparkHosts, folder: Path, store: Path, *options: str, workers: int
) -> Driver:
    """Start a driver on d2, and return it when it has ended."""
    folder.mkdir()
    made = Stream(spark_hosts.network, spark_hosts.cluster.url, prepare(folder, ROWS), str(store))
    driver = made.start("d2", "--restarts", "0", *options, workers=workers)
    wait_until("the end of the driver", lambda: driver.has_ended, driver.said)
    return driver


def test_a_store_that_is_not_shared_is_refused_before_anything_is_read(
    spark_hosts: SparkHosts,
) -> None:
    """Every host has the directory, and each its own."""
    folder = spark_hosts.network.folder / "not-shared"
    two = ("--conf", "spark.cores.max=2")
    driver = ended(spark_hosts, folder, spark_hosts.apart / "store", *two, workers=2)
    failed = driver.newest("generation-failed")
    assert failed is not None, driver.said()
    assert (failed["code"], failed["restart_in_ms"]) == ("store-not-shared", None)
    assert driver.exit_code == REFUSED_CODE
    assert driver.newest("checkpoint-completed") is None


def test_too_few_slots_are_told_with_their_number(spark_hosts: SparkHosts) -> None:
    """Slots may still come, so the driver waits for them as long as it may."""
    folder = spark_hosts.network.folder / "slots"
    settings = ("spark.cores.max=40", "spark.executor.cores=2")
    wants = (*(word for each in settings for word in ("--conf", each)), *SHORT_START)
    driver = ended(spark_hosts, folder, folder / "store", *wants, workers=40)
    failed = driver.newest("generation-failed")
    assert failed is not None, driver.said()
    assert failed["code"] == "not-enough-slots"
    assert "0 of 40 workers started" in failed["reason"]
    number = re.search(r"Task slots of Spark now: (\d+)\b", failed["reason"])
    assert number is not None, failed["reason"]
    assert int(number[1]) <= 8, "a busy machine may have started fewer executors by then"


@pytest.mark.nightly
def test_more_workers_than_spark_will_ever_give_are_refused_at_once(
    spark_hosts: SparkHosts,
) -> None:
    folder = spark_hosts.network.folder / "never"
    driver = ended(spark_hosts, folder, folder / "store", workers=4)
    assert driver.exit_code == REFUSED_CODE
    assert driver.newest("generation-started") is None
    assert "Spark has 3 (spark.cores.max=3)" in driver.said()
