"""One Spark cluster over hosts for all tests, and the figures of their faults."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hosts.presence import require_hosts
from verification.hosts.driver_events import Reaction
from verification.hosts.network import Network
from verification.hosts.spark_cluster import SparkCluster, shared_folders

FIGURES: list[tuple[str, Reaction]] = []


@dataclass(frozen=True)
class SparkHosts:
    """The hosts, and Spark on them: the master on m, workers on w1 to w3, drivers on d and d2."""

    network: Network
    cluster: SparkCluster
    apart: Path
    """A folder that each host has with contents of its own."""


@pytest.fixture(scope="session")
def spark_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHosts]:
    """Three hosts with two slots each; nothing is left of them afterwards."""
    require_hosts(takes_minutes=True)
    folder = tmp_path_factory.mktemp("hosts")
    with Network(folder, shared_folders(), [folder / "apart"]) as network:
        network.add("m", "w1", "w2", "w3", "d", "d2")
        cluster = SparkCluster(network, "m")
        cluster.start("w1", "w2", "w3")
        yield SparkHosts(network, cluster, folder / "apart")


@pytest.fixture(scope="session")
def note() -> Callable[[str, Reaction], None]:
    """Keep the figures of a fault for the end of the run."""
    return lambda name, found: FIGURES.append((name, found))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes too long for each change."""
    left = [item for item in items if item.get_closest_marker("nightly")]
    if left and not config.getoption("--all-cases"):
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures."""
    if FIGURES:
        terminalreporter.section("faults of hosts: seconds until noticed, until rows, without rows")
    for name, found in FIGURES:
        times = (found.noticed_ms, found.rows_ms, found.standstill_ms)
        said = "  ".join("   never" if ms is None else f"{ms / 1000:8.1f}" for ms in times)
        terminalreporter.line(
            f"{name:20} {said}  {found.code or '-'}, {found.generations} generations"
        )
