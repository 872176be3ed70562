"""Fixtures for the whole suite, and an environment that is the same on every machine."""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laminar_core.spark.session import open_session

pytest_plugins = [
    "pytester",
    "tests.early",
    "tests.objectstore.azure_fixtures",
    "tests.objectstore.s3_fixtures",
    "tests.sampling",
    "tests.servers.fixtures",
    "tests.wheels",
]

OF_THE_MACHINE = re.compile(
    "(AWS|AZURE|DAGSTER|LAMINAR|OTEL|PYSPARK|PYTHON|SPARK)_?|(NO|FORCE)_COLOR$|COLUMNS$|LINES$|XDG_"
)
"""Variables that change what the programs under test do."""

CHOSEN = (
    "LAMINAR_AZURITE",
    "LAMINAR_HOSTS",
    "LAMINAR_KAFKA_JARS",
    "LAMINAR_SEEDS",
    "LAMINAR_SERVERS",
    "LAMINAR_VERSITYGW",
)
"""Variables that tests read themselves."""

for _variable in [name for name in os.environ if OF_THE_MACHINE.match(name)]:
    if _variable not in CHOSEN:
        del os.environ[_variable]
os.environ["LAMINAR_CONFIG"] = os.devnull  # And no laminar.toml of the working directory.
sys.dont_write_bytecode = False  # As it is where nothing is set.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # As a shell starts what is to run behind it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, and later not among what stands for them.

    These are more than half a million objects, and a search through them takes half a second.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes run the suite: one more than cores, or two for large tests.

    Each one has to import all tests, and may have a Spark of its own. The large tests wait for
    other programs a third of the time, and have limits that a crowded machine would not keep. More
    than five would not fit into memory.
    """
    more = 2 if config.getoption("--large") or config.getoption("--all-cases") else 1
    return min((os.cpu_count() or 1) + more, 5)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark for the whole session: four slots, UTC, files in a temporary directory."""
    scratch: Path = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    session = open_session("local[4]", "laminar-tests", conf)
    yield session
    session.stop()
