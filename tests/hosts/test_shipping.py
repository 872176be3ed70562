"""Hosts whose Python has no Laminar run a job that brings it along, over a narrow network."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.hosts.conftest import SparkHosts
from verification.hosts.answer import prepare
from verification.hosts.stream import Stream
from verification.hosts.waiting import wait_until

ROWS = 60_000
HOSTS = ("w1", "w2", "w3", "d")
MEGABIT_PER_SECOND = 20


def python_without_laminar(folder: Path) -> Path:
    """Return an interpreter that has all packages of this one but Laminar.

    A path in a ``.pth`` file is searched for packages, but not for more ``.pth`` files, of which
    one names this checkout.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    Path(own, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def made(spark_hosts: SparkHosts, name: str, *options: str) -> Stream:
    """Return a stream whose executors run that Python; the master comes by ``--conf``."""
    folder = spark_hosts.network.folder / name
    folder.mkdir()
    python = python_without_laminar(folder / "python")
    settings = (f"spark.pyspark.python={python}", f"spark.master={spark_hosts.cluster.url}")
    words = [word for each in settings for word in ("--conf", each)]
    answer = prepare(folder, ROWS)
    return Stream(
        spark_hosts.network,
        "",
        answer,
        str(folder / "store"),
        options=[*words, *options],
        environment={"PYSPARK_PYTHON": str(python)},
    )


@pytest.mark.nightly
def test_without_it_the_reason_is_that_laminar_is_missing(spark_hosts: SparkHosts) -> None:
    stream = made(spark_hosts, "not-shipped", "--restarts", "0")
    driver = stream.start("d")
    wait_until("the end of the driver", lambda: driver.has_ended, driver.said)
    failed = driver.newest("generation-failed")
    assert failed is not None, driver.said()
    assert "laminar_core" in failed["reason"]
    assert "barrier" not in failed["reason"], "that is Spark's answer to it"


@pytest.mark.nightly
def test_a_job_brings_laminar_along_and_loses_packets(spark_hosts: SparkHosts) -> None:
    network = spark_hosts.network
    stream = made(spark_hosts, "shipped", "--ship")
    for name in HOSTS:
        network.narrow(name, MEGABIT_PER_SECOND)
    try:
        rows = stream.finish("d")
    finally:
        dropped = sum(network.widen(name) for name in HOSTS)
    assert rows == stream.answer.count
    assert dropped > 0, "no packet was lost"
